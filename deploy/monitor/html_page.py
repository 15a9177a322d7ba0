"""Pages of `pgm monitor` for people: the tree and one node, with the cells of `pgm top`."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from deploy.monitor.columns import COLUMNS, lost_of, total_of
from deploy.monitor.tree import in_tree
from deploy.status.detail import tables
from pgm.fleet.nodes import NodeRecord, NodeState, TreeView

_SHOWN = [key for key in COLUMNS if key not in ("topology", "host")]
_DEEPEST = 6  # levels of indentation; deeper nodes are indented as this level is
_REFRESH_S = 5  # of a page without scripts
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/monitor.css">
<script src="/monitor.js" defer></script>
<noscript><meta http-equiv="refresh" content="{seconds}"></noscript>
</head>
<body>
<p id="silent" hidden>The monitor has stopped answering; these are its last numbers.</p>
"""


def overview(view: TreeView) -> str:
    """Return the page of all nodes, with one table for each topology."""
    names = list(dict.fromkeys(node.topology for node in view.nodes))
    parts = [_facts(view)]
    for name in names:
        parts.append(f"<h2>{html.escape(name)}</h2>")
        parts.append(_tree([node for node in view.nodes if node.topology == name]))
    if not names:
        parts.append(
            "<p>No node runs on this machine as this user. Start one: <code>pgm run FILE --node NAME</code>.</p>"
        )
    if view.left_out:
        parts.append(f"<p class=bad>{view.left_out:,} more nodes were not asked.</p>")
    return _page("pgm monitor", "<h1>pgm monitor</h1>", parts, view)


def one_node(view: TreeView, node: NodeRecord) -> str:
    """Return the page of one node, with all tables of its snapshot."""
    title = f"{node.role} {node.name}"
    head = f'<p><a href="/">all nodes</a> / {html.escape(node.topology)}</p><h1>{html.escape(title)}</h1>'
    parts = [f"<p class={_kind(node)}>{html.escape(COLUMNS['state'].text(node))}</p>"]
    if node.snapshot is not None:
        event = COLUMNS["event"].text(node)
        memory, cpu = node.snapshot["rss_bytes"] / 1e6, node.snapshot["cpu_s"]
        parts.append(f"<p>{memory:.0f} MB, {cpu:,.1f} s of CPU time{html.escape(f'; {event}' if event else '')}</p>")
        for name, columns, cells in tables(node.snapshot):
            if cells:
                words = (0, len(columns) - 1) if name == "counters" else (0,)
                parts += [f"<h2>{html.escape(name)}</h2>", _table([column.heading for column in columns], cells, words)]
    return _page(title, head, parts, view)


def _page(title: str, head: str, parts: Iterable[str], view: TreeView) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    foot = f'<p class=note>asked at {at}, in {view.took_s * 1000:.0f} ms · <a href="/metrics">metrics</a> · <a href="/status.json">JSON</a></p>'
    body = "\n".join([head, *parts, foot])
    return f"{_HEAD.format(title=html.escape(title), seconds=_REFRESH_S)}<main>\n{body}\n</main>\n</body>\n</html>\n"


def _facts(view: TreeView) -> str:
    """Return the summary of all nodes in five numbers."""
    up = [node for node in view.nodes if node.is_up]
    away = sum(not node.is_up and node.state is not NodeState.ELSEWHERE for node in view.nodes)
    repaired, local = total_of(up, "repaired_sqns"), total_of(up, "repaired_locally")
    lost = sum(lost_of(node) for node in view.nodes)
    facts = [
        (f"{len(up)}", "nodes up", ""),
        (f"{away}", "nodes absent", "bad" if away else ""),
        (
            f"{sum(COLUMNS['out'].number(node) for node in up if node.role == 'source'):,.0f}",
            "packets/s sent by sources",
            "",
        ),
        (f"{local / repaired:.0%}" if repaired else "-", "of repairs from the own segment", ""),
        (f"{lost:,.0f}", "packets lost", "bad" if lost else ""),
    ]
    cells = (f'<div class="{kind}"><b>{value}</b>{name}</div>' for value, name, kind in facts)
    return f"<div id=facts>{''.join(cells)}</div>"


def _tree(nodes: Sequence[NodeRecord]) -> str:
    heads = "".join(
        f'<th title="{html.escape(COLUMNS[key].help)}"{_align(key)}>{COLUMNS[key].heading}</th>' for key in _SHOWN
    )
    rows = (_row(depth, node) for depth, node in in_tree(nodes))
    return f"<div class=wide><table class=tree><thead><tr>{heads}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>"


def _row(depth: int, node: NodeRecord) -> str:
    cells = []
    for key in _SHOWN:
        text = html.escape(COLUMNS[key].text(node))
        if key == "node":
            link = html.escape(f"/node?{urlencode({'topology': node.topology, 'name': node.name})}")
            text = f'<span class="in d{min(depth, _DEEPEST)}"></span><a href="{link}">{text}</a>'
        bad = " class=bad" if key == "lost" and lost_of(node) else _align(key)
        cells.append(f"<td{bad}>{text}</td>")
    return f'<tr class="{_kind(node)}">{"".join(cells)}</tr>\n'


def _kind(node: NodeRecord) -> str:
    return node.state.name.lower()


def _align(key: str) -> str:
    return " class=t" if COLUMNS[key].is_text else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int]) -> str:
    """Return a table whose columns `words` are aligned left."""

    def line(tag: str, cells: Sequence[str]) -> str:
        kinds = (" class=t" if at in words else "" for at in range(len(cells)))
        cells_html = (f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))
        return f"<tr>{''.join(cells_html)}</tr>\n"

    body = "".join(line("td", row) for row in rows)
    return f"<div class=wide><table><thead>{line('th', heads)}</thead><tbody>\n{body}</tbody></table></div>"
