// Puts the newest numbers in place of those that are shown, as long as somebody looks.
"use strict";

const EVERY_MS = 2000;
const PATIENCE_MS = 10000;

async function refresh() {
  if (!document.hidden) {
    const silent = document.getElementById("silent");
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const news = page.querySelector("main");
      if (!answer.ok || !news) throw new Error(answer.status);
      const old = document.querySelector("main");
      const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
      old.replaceWith(news);
      news.querySelectorAll(".wide").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
      silent.hidden = true;
    } catch (error) {
      silent.hidden = false;
    }
  }
  setTimeout(refresh, EVERY_MS);
}

setTimeout(refresh, EVERY_MS);
