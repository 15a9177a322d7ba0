"""Pages of `pgm monitor` for people: the tree and one node, with the cells of `pgm top`."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence

from deploy.monitor.columns import COLUMNS, event_text, events_of, health_of, lost_of, total_of
from deploy.monitor.history import SERIES, History
from deploy.monitor.pictures import anchor_of, chart, page_of, tree_pictures
from deploy.monitor.tree import in_tree
from deploy.status.detail import tables
from deploy.status.explain_page import PacketPage
from deploy.status.fleet import problems_of, told_of
from deploy.status.peers import PeerNames
from pgm.fleet.nodes import NodeRecord, NodeState, TreeView

_SMALL = ("node", "in", "out", "missing", "lost")  # columns on a narrow screen
_MOST_NARROW = 5  # columns of a table that a narrow screen has room for
_LEFT_OUT = 2  # rank from which on a narrow screen has no room for a column
_MOST_EVENTS = 20
_HOUR = 360  # samples of a chart
_DEEPEST = 6  # levels of indentation; deeper nodes are indented as this level is
_REFRESH_S = 5  # of a page without scripts
_REFRESHING = f"""<script src="/monitor.js" defer></script>
<noscript><meta http-equiv="refresh" content="{_REFRESH_S}"></noscript>
"""
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/monitor.css">
{refreshing}</head>
<body>
<p id="silent" hidden>The monitor has stopped answering; these are its last numbers.</p>
"""


def overview(view: TreeView, panel: Sequence[str] = ()) -> str:
    """Return the page of all nodes: for each topology the picture of its tree, and one table; then the parts of `panel`."""
    names = list(dict.fromkeys(node.topology for node in view.nodes))
    parts = [_facts(view)]
    if view.hosts:
        parts += _problems(view)
    for name in names:
        nodes = [node for node in view.nodes if node.topology == name]
        parts += [f"<h2>{html.escape(name)}</h2>", tree_pictures(nodes), _tree(nodes, has_hosts=bool(view.hosts))]
        worst = html.escape(PacketPage(name).path)
        parts.append(f'<p class=note><a href="{worst}">losses and slowest repairs</a>, packet by packet</p>')
    if not names:
        parts.append(
            "<p>No node runs on this machine as this user. Start one: <code>pgm run FILE --node NAME</code>.</p>"
        )
    if view.left_out:
        parts.append(f"<p class=bad>{view.left_out:,} more nodes were not asked.</p>")
    parts += [*panel, *_events(view), *_hosts(view)]
    return _page("pgm monitor", "<h1>pgm monitor</h1>", parts, view)


def one_node(view: TreeView, node: NodeRecord, history: History) -> str:
    """Return the page of one node: its last hour, and all tables of its snapshot."""
    title = f"{node.role} {node.name}"
    where = f" / {html.escape(node.host)}" if node.host else ""
    head = f'<p><a href="/">all nodes</a> / {html.escape(node.topology)}{where}</p><h1>{html.escape(title)}</h1>'
    parts = [f"<p class={_kind(node)}>{html.escape(COLUMNS['state'].text(node))}</p>"]
    if node.snapshot is not None:
        memory, cpu = node.snapshot["rss_bytes"] / 1e6, node.snapshot["cpu_s"]
        parts.append(f"<p>{memory:.0f} MB, {cpu:,.1f} s of CPU time</p>")
        names = PeerNames.of_nodes(view.nodes, node.topology)
        texts = [names.in_text(event_text(event)) for event in reversed(events_of(node))]
        lines = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
        parts += [f"<ul class=events>{lines}</ul>"] if lines else []
        parts += _charts(node, history)
        for name, columns, cells in tables(node.snapshot, names):
            if cells:
                words = {"counters": (0, len(columns) - 1), "counters by session": (0, 1)}.get(name, (0,))
                parts += [
                    f"<h2>{html.escape(name)}</h2>",
                    _table([column.heading for column in columns], cells, words, [column.rank for column in columns]),
                ]
    return _page(title, head, parts, view)


def _charts(node: NodeRecord, history: History) -> list[str]:
    times = history.times
    if len(times) < 2:
        return ["<p class=note>The last hour will be drawn here; a sample is taken every ten seconds.</p>"]
    since, until = (time.strftime("%H:%M", time.localtime(at_s)) for at_s in (times[0], times[-1]))
    cells = []
    for name, series in SERIES.items():
        values = history.of(node, name)
        known = [value for value in values if value == value]  # without NaN
        if any(known):
            unit = f" {series.unit}" if series.unit else ""
            text = f"<b>{known[-1]:,.4g}{unit}</b> {html.escape(series.heading)}, at most {max(known):,.4g}{unit}"
            cells.append(f"<div><p>{text}</p>{chart(values, _HOUR)}</div>")
    return [
        f"<h2>last hour, since {since}</h2>" if since != until else "<h2>last hour</h2>",
        f"<div id=charts>{''.join(cells)}</div>",
    ]


def _problems(view: TreeView) -> list[str]:
    """Return a line for each thing that is wrong in a fleet."""
    found = problems_of(view)
    lines = (
        f"<li>{html.escape(text)}{f' <i>({html.escape(advice)})</i>' if advice else ''}</li>" for text, advice in found
    )
    return [f"<ul class=problems>{''.join(lines)}</ul>"] if found else []


def _hosts(view: TreeView) -> list[str]:
    """Return the table of the hosts of a fleet."""
    if not view.hosts:
        return []
    rows = []
    for host in view.hosts:
        nodes = [node for node in view.nodes if node.host == host.name]
        file = "" if host.problem else "another" if host.has_other_file else "the same"
        answer = told_of(host) if host.problem else f"answers in {host.took_s * 1000:.0f} ms"
        up = f"{sum(node.is_up for node in nodes)} of {len(nodes)}"
        rows.append([host.name, host.address, up, file, host.version, answer])
    heads = ("host", "agent", "nodes up", "file", "version", "state")
    return ["<h2>hosts</h2>", _table(heads, rows, (0, 1, 3, 4, 5), (1, 4))]


def _events(view: TreeView) -> list[str]:
    """Return the newest events of all nodes."""
    told = [(event["at_s"], at, event) for at, node in enumerate(view.nodes) for event in events_of(node)]
    told.sort(key=lambda row: row[:2], reverse=True)
    names = {topology: PeerNames.of_nodes(view.nodes, topology) for topology in {node.topology for node in view.nodes}}
    lines = (
        f'<li><a href="{html.escape(page_of(node))}">{html.escape(node.name)}</a> '
        f"{html.escape(names[node.topology].in_text(event_text(event)))}</li>"
        for node, event in ((view.nodes[at], event) for _, at, event in told[:_MOST_EVENTS])
    )
    return ["<h2>last events</h2>", f"<ul class=events>{''.join(lines)}</ul>"] if told else []


def packet_page(asked: PacketPage, parts: Iterable[str], view: TreeView) -> str:
    """Return a page on packets. It stays as it is: each look at the recorders takes a while."""
    title = f"packet {asked.sqn}" if asked.sqn else "losses and slowest repairs"
    up = [f'<a href="/">all nodes</a> / {html.escape(asked.topology)}']
    up += [f'<a href="{html.escape(PacketPage(asked.topology).path)}">worst</a>'] if asked.sqn else []
    head = f"<p>{' / '.join(up)}</p><h1>{html.escape(title)}</h1>"
    return _page(title, head, parts, view, is_live=False)


def _page(title: str, head: str, parts: Iterable[str], view: TreeView, *, is_live: bool = True) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    foot = f'<p class=note>asked at {at}, in {view.took_s * 1000:.0f} ms · <a href="/metrics">metrics</a> · <a href="/status.json">JSON</a></p>'
    body = "\n".join([head, *parts, foot])
    return f"{_HEAD.format(title=html.escape(title), refreshing=_REFRESHING if is_live else '')}<main>\n{body}\n</main>\n</body>\n</html>\n"


def _facts(view: TreeView) -> str:
    """Return the summary of all nodes in a few numbers."""
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
    if view.hosts:
        silent = sum(bool(host.problem) for host in view.hosts)
        facts.insert(0, (f"{len(view.hosts) - silent} of {len(view.hosts)}", "hosts answer", "bad" if silent else ""))
    cells = (f'<div class="{kind}"><b>{value}</b>{name}</div>' for value, name, kind in facts)
    return f"<div id=facts>{''.join(cells)}</div>"


def _tree(nodes: Sequence[NodeRecord], *, has_hosts: bool) -> str:
    left_out = ("topology", "event") if has_hosts else ("topology", "event", "host")
    keys = [key for key in COLUMNS if key not in left_out]
    heads = "".join(
        f'<th title="{html.escape(COLUMNS[key].help)}"{_classes(key)}>{COLUMNS[key].heading}</th>' for key in keys
    )
    rows = (_row(keys, depth, node) for depth, node in in_tree(nodes))
    return f"<div class=wide><table class=tree><thead><tr>{heads}</tr></thead><tbody>\n{''.join(rows)}</tbody></table></div>"


def _row(keys: Sequence[str], depth: int, node: NodeRecord) -> str:
    cells = []
    for key in keys:
        text = html.escape(COLUMNS[key].text(node))
        if key == "node":
            text = f'<span class="in d{min(depth, _DEEPEST)}"></span><a href="{html.escape(page_of(node))}">{text}</a>'
        cells.append(f"<td{_classes(key, 'bad' if key == 'lost' and lost_of(node) else '')}>{text}</td>")
    return f'<tr class="{_kind(node)} {health_of(node)}" id="{html.escape(anchor_of(node))}">{"".join(cells)}</tr>\n'


def _kind(node: NodeRecord) -> str:
    return node.state.name.lower()


def _classes(key: str, more: str = "") -> str:
    """Return the class attribute of a cell: text, and columns that a narrow screen leaves out."""
    kinds = ["t" if COLUMNS[key].is_text else "", "" if key in _SMALL else "opt", more]
    named = " ".join(filter(None, kinds))
    return f' class="{named}"' if named else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int], ranks: Sequence[int] = ()) -> str:
    """Return a table whose columns `words` are aligned left.

    On a narrow screen a table of many columns has one card for each row, and other tables lack columns of a high rank.
    """
    is_wide = len(heads) > _MOST_NARROW

    def line(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, at, text) for at, text in enumerate(cells))}</tr>\n"

    def cell(tag: str, at: int, text: str) -> str:
        is_left_out = not is_wide and at < len(ranks) and ranks[at] >= _LEFT_OUT
        kinds = " ".join(filter(None, ("t" if at in words else "", "opt" if is_left_out else "")))
        kind = f' class="{kinds}"' if kinds else ""
        head = f' data-head="{html.escape(heads[at])}"' if is_wide and tag == "td" else ""
        return f"<{tag}{kind}{head}>{html.escape(text)}</{tag}>"

    body = "".join(line("td", row) for row in rows)
    kind = " class=cards" if is_wide else ""
    return f"<div class=wide><table{kind}><thead>{line('th', heads)}</thead><tbody>\n{body}</tbody></table></div>"
