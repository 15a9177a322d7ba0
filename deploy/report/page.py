"""Page of `pgm report`: one HTML file with embedded pictures, from the summary of the jobs."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from deploy.terminal import svg as pictures
from pgm.prediction.beside import Comparison, cells

_MOST_LINKS = 20
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; max-width: 900px; margin: 2em auto; padding: 0 1em }
h1 { margin-bottom: 0 } h2 { margin: 2em 0 .3em; border-bottom: 1px solid #e2e8f0 } p { margin: .4em 0 }
table { border-collapse: collapse; font-size: 13px; margin: .8em 0 } th, td { padding: .2em .7em; text-align: right }
th { border-bottom: 1px solid #a0aec0; font-weight: 600 } td:first-child, th:first-child, .t { text-align: left }
tr:nth-child(even) td { background: #f7fafc } .note { color: #4a5568; font-size: 13px } .bad { color: #c53030; font-weight: 600 }
.facts { display: flex; flex-wrap: wrap; gap: 1em; margin: 1em 0 } .facts div { background: #f7fafc; padding: .6em 1em; border-radius: 6px }
.facts b { display: block; font-size: 22px } svg { max-width: 100%; height: auto }
"""


def page(summary: dict[str, Any], title: str) -> str:
    """Return the HTML file for a summary."""
    parts = [_head(summary, title), _links(summary), _bursts(summary), _repairs(summary), _over_time(summary)]
    parts += [_timers(summary), _excessive_naks(summary), _traffic(summary), _predicted(summary)]
    body = "\n".join(part for part in parts if part)
    name = html.escape(title)
    return f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{name}</title><style>{_STYLE}</style>\n{body}\n</html>\n"


def percent(share: float | None) -> str:
    """Return a share as text in percent; a dash for None."""
    return "-" if share is None else f"{plain(100 * share)} %"


def milliseconds(value: float | None) -> str:
    """Return a time in ms as text; a dash for None."""
    return "-" if value is None else f"{plain(value)} ms"


def plain(value: float) -> str:
    """Return a number with three digits that count, without an exponent, as in 2,110 or 0.0123."""
    if not value:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}" if digits else f"{float(f'{value:.3g}'):,.0f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]], *, text: Sequence[int] = (0,)) -> str:
    """Return an HTML table; `text` are the indices of the columns with words."""

    def cell(tag: str, index: int, value: Any) -> str:
        words = f"{value:,}" if isinstance(value, int) else str(value)
        text_class = " class=t" if index in text else ""
        return f"<{tag}{text_class}>{words if words.startswith('<b') else html.escape(words)}</{tag}>"

    lines = ["".join(cell("th", index, head) for index, head in enumerate(heads))]
    lines += ["".join(cell("td", index, value) for index, value in enumerate(row)) for row in rows]
    return f"<table><tr>{'</tr><tr>'.join(lines)}</tr></table>"


def _facts(facts: dict[str, str]) -> str:
    return f"<div class=facts>{''.join(f'<div><b>{value}</b>{name}</div>' for name, value in facts.items())}</div>"


def _head(summary: dict[str, Any], title: str) -> str:
    links = summary["links"]
    packets, lost = sum(row["packets"] for row in links if row["node"]), sum(row["lost"] for row in links)
    shares = summary["shares"]
    repaired, local = sum(row["repaired"] for row in shares), sum(row["local"] for row in shares)
    gone = sum(row["lost"] for row in shares)
    wait = summary["repairs_of_all"]
    facts = {
        "of all packets lost on a link": percent(lost / packets if packets else None),
        "of the repairs from the same segment": percent(local / repaired if repaired else None),
        "median time of a repair": milliseconds(wait.get("p50_ms")),
        "99 % of the repairs took at most": milliseconds(wait.get("p99_ms")),
        "packets never repaired": f"<span class=bad>{gone:,}</span>" if gone else "0",
    }
    span = f"{summary['begins'][:19].replace('T', ' ')} to {summary['ends'][:19].replace('T', ' ')} UTC"
    extent = f"<p class=note>{summary['nodes']:,} nodes, {summary['events']:,} events, {span}</p>"
    warnings = "".join(
        f"<p class=bad>{html.escape(row['node'])} dropped {row['rows']:,} rows; this page does not include these rows.</p>"
        for row in summary["left_out"]
    )
    return f"<h1>{html.escape(title)}</h1>{extent}{warnings}{_facts(facts)}"


def _links(summary: dict[str, Any]) -> str:
    links = sorted((row for row in summary["links"] if row["lost"]), key=lambda row: -row["loss"])
    if not links:
        return "<h2>Losses by link</h2><p>No link lost packets.</p>"
    shown = links[:_MOST_LINKS]
    models = [row["model"] for row in shown]
    picture = pictures.stacked_rows(
        [row["link"] for row in shown],
        {
            "one by one": [100 * model["loss"] for model in models],
            "in bursts": [100 * model["burst_loss"] for model in models],
        },
        "% of the packets",
    )
    note = (
        "A link leads from a segment to a node, or from a relay or a source to the segment below. "
        "A packet that no node of a segment received counts as lost on the link to that segment."
    )
    more = (
        f" The table has the {len(shown)} worst of {len(links)} links with losses." if len(links) > len(shown) else ""
    )
    rows = [
        (row["link"], row["packets"], row["lost"], percent(row["loss"]), percent(row["model"]["loss"]),
         percent(row["model"]["burst_loss"]), plain(row["model"]["burst_length"]) if row["model"]["burst_loss"] else "-")
        for row in shown
    ]  # fmt: skip
    heads = ("link", "packets", "lost", "share", "one by one", "in bursts", "mean burst")
    return f"<h2>Losses by link</h2><p class=note>{note}{more}</p>{picture}{table(heads, rows)}"


def _bursts(summary: dict[str, Any]) -> str:
    rows = summary["burst_lengths"]
    if not rows:
        return ""
    picture = pictures.histogram(
        [row["length"] for row in rows], [row["bursts"] for row in rows], "packets lost in a row", "bursts"
    )
    longer = summary.get("longer_bursts")
    note = ""
    if longer and longer["bursts"]:
        note = f"<p class=note>Longer bursts are not drawn: {longer['bursts']:,} with {longer['packets']:,} packets, the longest with {longer['longest']:,}.</p>"  # fmt: skip
    return f"<h2>Burst lengths</h2>{picture}{note}"


def _repairs(summary: dict[str, Any]) -> str:
    waits, shares = summary["repairs"], {row["segment"]: row for row in summary["shares"]}
    doubled = {row["segment"]: row for row in summary["duplicates"]}
    if not waits:
        return ""
    picture = pictures.bars(
        [row["segment"] for row in waits],
        {
            "median": [row["p50_ms"] for row in waits],
            "95 %": [row["p95_ms"] for row in waits],
            "99 %": [row["p99_ms"] for row in waits],
        },
        "took at most, ms",
    )
    rows = []
    for row in waits:
        share, twice = shares.get(row["segment"], {}), doubled.get(row["segment"], {})
        rows.append(
            (row["segment"], share.get("missing", 0),
                share.get("late", 0), row["repaired"], percent(share.get("local_share")), milliseconds(row["p50_ms"]),
             milliseconds(row["p99_ms"]), percent(share.get("suppressed_share")), _times(twice.get("asked_ratio")), _times(twice.get("repair_ratio")))
        )  # fmt: skip
    heads = ("segment", "missed", "late", "repaired", "locally", "median", "99 % within", "NAKs suppressed", "NAKs per packet", "repairs per packet")  # fmt: skip
    note = (
        "A late packet arrived as data after its loss was detected: out of order, or recovered by the relay above. "
        "A NAK is suppressed if another receiver has sent the same request. "
        "The last two columns count NAKs and repairs of one packet on the segment; one is best."
    )
    return f"<h2>Repairs</h2>{picture}{table(heads, rows)}<p class=note>{note}</p>"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{plain(value)} times"


def _over_time(summary: dict[str, Any]) -> str:
    rows = summary["timeline"]
    if len(rows) < 2:
        return ""
    at = [index * summary["window_s"] for index in range(len(rows))]
    series = {
        "missed": [row["missing"] for row in rows],
        "repaired": [row["repaired"] for row in rows],
        "NAKed": [row["nak_sqns"] for row in rows],
    }
    picture = pictures.lines(at, series, "seconds", f"packets in {summary['window_s']} s")
    return f"<h2>Over time</h2>{picture}"


def _timers(summary: dict[str, Any]) -> str:
    rows = [
        (row["segment"], row["role"], row["timer"], milliseconds(row["set_ms"]), milliseconds(row["answers_p50_ms"]),
         milliseconds(row["answers_p99_ms"]), row["fired"], _verdict(row["verdict"]))
        for row in summary["timers"]
    ]  # fmt: skip
    if not rows:
        return ""
    heads = ("segment", "role", "timer", "value", "median answer", "99 % within", "fired", "verdict")
    note = (
        "A timer fires too early if the answer was still on its way, so that the repeat was needless. The nak_bo_ivl is too early if several "
        "receivers requested the same packet. A timer is too late if it is far longer than nearly all answers take: a lost request "
        "then costs more time than necessary. <code>pgm tune</code> simulates other values."
    )
    return f"<h2>Timers</h2>{table(heads, rows, text=(0, 1, 2, 7))}<p class=note>{note}</p>"


def _verdict(verdict: str) -> str:
    return verdict if verdict == "fits" else f"<b>{verdict}</b>"


def _excessive_naks(summary: dict[str, Any]) -> str:
    rows = [
        (row["child"], row["node"], row["window"][11:19], row["asked"], f"{row['usual']:.0f}", _times(row["times"]))
        for row in summary["excess_naks"]
    ]
    if not rows:
        return "<h2>Excessive NAKs</h2><p>No node sent far more NAKs than the other children of its parent.</p>"
    heads = ("node", "parent", "at", "requested", "others", "ratio")
    return f"<h2>Excessive NAKs</h2>{table(heads, rows, text=(0, 1))}"


def _traffic(summary: dict[str, Any]) -> str:
    rows = [row for row in summary["traffic"] if row["role"] != "receiver"]
    heads = ("node", "role", "data sent", "repairs sent", "NAKs received", "NAKs sent", "NCFs sent")
    cells = [
        (row["node"], row["role"], row["sent"], row["rdata"], row["nak_in"], row["nak_sent"], row["ncf_sent"])
        for row in rows
    ]
    return f"<h2>Sources, relays and repairers</h2>{table(heads, cells, text=(0, 1))}"


def _predicted(summary: dict[str, Any]) -> str:
    """Return the section of measured figures beside predicted ones; empty without a prediction."""
    rows = [
        (*row[:5], f"<b>{row[5]}</b>" if row[5] == "DIFFERS" else row[5])
        for row in cells(Comparison(**one) for one in summary.get("predicted", ()))
    ]
    if not rows:
        return ""
    heads = ("place", "figure", "measured", "predicted", "difference", "verdict")
    note = (
        "Repairs and NAKs are those of a packet of data. A figure differs if it is more than a third from its prediction. "
        "Figures of fewer than 30 events have no verdict."
    )
    return f"<h2>Beside the prediction</h2>{table(heads, rows, text=(0, 1, 5))}<p class=note>{note}</p>"
