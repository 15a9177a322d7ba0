"""Parts of the monitor's pages on packets: the worst of the last minutes, and the life of one with its ladder diagram."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

import attrs

from deploy.status.explain_text import WORST_COLUMNS, clock_line, lines_of, steps_of, stream_names, worst_rows
from deploy.status.recorders import Gather, view_of, worst_of
from deploy.terminal.tables import TableColumn
from pgm.errors import UsageError
from pgm.fleet.nodes import TreeView
from pgm.flight.verdicts.explanation import Explanation, explain
from pgm.flight.verdicts.ladder import ladder_svg
from pgm.flight.verdicts.worst import Trouble
from pgm.wire.formats import tsi_text

_MOST_WORST = 20
_MOST_DIGITS = 20  # of a sqn


@attrs.frozen
class PacketPage:
    """Question of a request: a packet as a node saw it, or the worst packets of a tree if `sqn` is empty."""

    topology: str
    stream: str = ""
    sqn: str = ""
    at: str = ""

    @property
    def path(self) -> str:
        """Return path and query of the page."""
        pairs = attrs.asdict(self)
        return f"/explain?{urlencode({name: value for name, value in pairs.items() if value})}"


def parts_untrusted(asked: PacketPage, view: TreeView, gather: Gather) -> list[str]:
    """Return the parts of a page, as HTML. Raises `UsageError` for a packet that is none, and `ProcessError`."""
    if not asked.sqn:
        return _worst(asked, view, gather)
    if not asked.sqn.isdecimal() or len(asked.sqn) > _MOST_DIGITS:
        raise UsageError(f"{asked.sqn[:80]!r} is no sequence number", remedy="write a number such as 184467")
    rings = gather(asked.topology, view, {"packet": (f"{asked.stream}:{asked.sqn}",)})
    flights = view_of(rings, asked.stream)
    one = explain(flights, asked.stream, int(asked.sqn), asked.at or None)
    return _packet(attrs.evolve(one, stream=stream_names(flights).get(one.tsi, asked.stream)))


def _worst(asked: PacketPage, view: TreeView, gather: Gather) -> list[str]:
    worst = worst_of(partial(gather, asked.topology, view), _MOST_WORST, None, is_excerpt=bool(view.hosts))
    if not worst.troubles:
        return ["<p>No loss and no repair in the recorders of the last minutes.</p>"]
    rows = worst_rows(worst.view, worst.troubles, worst.explanations)
    heads = "".join(f'<th class="{_class_of(column)}">{column.heading}</th>' for column in WORST_COLUMNS)
    body = "\n".join(_row(asked, trouble, cells) for trouble, cells in zip(worst.troubles, rows, strict=True))
    return [f"<div class=wide><table><thead><tr>{heads}</tr></thead><tbody>\n{body}</tbody></table></div>"]


def _row(asked: PacketPage, trouble: Trouble, cells: Sequence[str]) -> str:
    page = PacketPage(asked.topology, tsi_text(trouble.tsi), str(trouble.first), trouble.node)
    own = [html.escape(cell) for cell in cells]
    sqn = [column.heading for column in WORST_COLUMNS].index("sqn")
    own[sqn] = f'<a href="{html.escape(page.path)}">{own[sqn]}</a>'
    line = (f'<td class="{_class_of(column)}">{cell}</td>' for column, cell in zip(WORST_COLUMNS, own, strict=True))
    return f"<tr>{''.join(line)}</tr>"


def _class_of(column: TableColumn) -> str:
    """Return the classes of a column: text, and what a narrow screen leaves out."""
    return "t opt" if column.rank else "t"


def _packet(one: Explanation) -> list[str]:
    """Return the verdict as text, the ladder diagram, and the steps of the repair."""
    picture = base64.b64encode(ladder_svg(one).encode()).decode()
    text = html.escape("\n".join(lines_of(one)))
    alt = html.escape(f"ladder diagram of packet {one.sqn}: {one.loss.text}")
    parts = [
        f"<pre class=told>{text}</pre>",
        f'<div class=wide><img class=ladder alt="{alt}" src="data:image/svg+xml;base64,{picture}"></div>',
    ]
    lines = [*(steps_of(one) if one.steps else ()), *map(clock_line, one.clocks)]
    return [*parts, f"<pre class=told>{html.escape(chr(10).join(lines))}</pre>"]
