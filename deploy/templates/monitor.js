// Replaces the numbers on the page by the newest ones while the page is visible.
"use strict";

const EVERY_MS = 2000;
const TIMEOUT_MS = 10000;

async function refresh() {
  if (!document.hidden) {
    const silent = document.getElementById("silent");
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const news = page.querySelector("main");
      if (!answer.ok || !news) throw new Error(answer.status);
      const old = document.querySelector("main");
      const scrolled = [...old.querySelectorAll(".wide")].map((box) => box.scrollLeft);
      old.replaceWith(news);
      news.querySelectorAll(".wide").forEach((box, at) => { box.scrollLeft = scrolled[at] || 0; });
      silent.hidden = true;
    } catch (error) {
      silent.hidden = false;
    }
  }
  setTimeout(refresh, EVERY_MS);
}

setTimeout(refresh, EVERY_MS);
