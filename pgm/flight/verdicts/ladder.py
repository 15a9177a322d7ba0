"""Ladder diagram of a packet's life as SVG: a line for each node, time downwards, an arrow for each request and answer."""

from __future__ import annotations

import html
from collections.abc import Sequence

import attrs

from pgm.flight.record import FlightKind
from pgm.flight.verdicts.explanation import Explanation
from pgm.flight.verdicts.life import PacketState, Presence
from pgm.flight.verdicts.view import FlightEvent
from pgm.units import MILLISECOND, NEVER, SECOND

_COLUMN, _ROW, _LEFT, _TOP = 170, 26, 110, 96  # pixels
_MOST_NODES, _MOST_ROWS = 9, 120
_ARRIVALS = {
    FlightKind.NAK_OUT: (FlightKind.NAK_IN,),
    FlightKind.NCF_OUT: (FlightKind.NCF_IN,),
    FlightKind.RDATA_OUT: (FlightKind.RDATA_IN, FlightKind.REPAIRED),
}
_IN = frozenset(kind for kinds in _ARRIVALS.values() for kind in kinds)
_NAMES = {FlightKind.NAK_OUT: "NAK", FlightKind.NCF_OUT: "NCF", FlightKind.RDATA_OUT: "RDATA"}
_CLASSES = {FlightKind.NAK_OUT: "nak", FlightKind.NCF_OUT: "ncf", FlightKind.RDATA_OUT: "rdata"}
_LOCAL = {
    FlightKind.SENT: "sent by now",
    FlightKind.REACHED: "reached by now",
    FlightKind.GAP: "gap found",
    FlightKind.REPAIRED: "repaired",
    FlightKind.LATE: "came as ODATA",
    FlightKind.MENDED: "got it, sent it down",
    FlightKind.SKIPPED: "never sent",
    FlightKind.GAVE_UP: "gave up",
    FlightKind.SUPPRESSED: "asked by another",
    FlightKind.NCF_TIMEOUT: "no NCF in time",
    FlightKind.RDATA_TIMEOUT: "no RDATA in time",
    FlightKind.LOST: "lost",
    FlightKind.SHED: "budget",
    FlightKind.CONFLICT: "two copies differ",
    FlightKind.FORGED: "forged",
}
_BAD = frozenset(
    (
        FlightKind.GAP,
        FlightKind.GAVE_UP,
        FlightKind.NCF_TIMEOUT,
        FlightKind.RDATA_TIMEOUT,
        FlightKind.LOST,
        FlightKind.SHED,
        FlightKind.CONFLICT,
        FlightKind.FORGED,
    )
)
_MATCH_NS = SECOND  # between a packet that left and its arrival
_TOLERANCE_NS = 5 * MILLISECOND

_STYLE = """
:root{color-scheme:light dark}
text{font:12px system-ui,sans-serif;fill:#1a202c}.t{fill:#718096}.h{font-weight:600}.v{font-size:13px}
line.life{stroke:#a0aec0;stroke-width:1}.bg{fill:#fff}
.nak{stroke:#c05621;fill:#c05621}.ncf{stroke:#2b6cb0;fill:#2b6cb0}.rdata{stroke:#2f855a;fill:#2f855a}
text.nak,text.ncf,text.rdata{stroke:none}
.arrow{stroke-width:1.5;fill:none}.lost{stroke-dasharray:4 3}.dot{fill:#4a5568}.bad{fill:#c53030}text.bad{fill:#c53030}
@media (prefers-color-scheme:dark){text{fill:#e2e8f0}.t{fill:#a0aec0}.bg{fill:#1a202c}.dot{fill:#cbd5e0}.bad,text.bad{fill:#fc8181}}
""".strip()


@attrs.frozen
class _Mark:
    """One row: an arrow to other nodes, or a dot. `targets` have whether the packet arrived."""

    event: FlightEvent
    targets: tuple[tuple[str, bool], ...] = ()


def ladder_svg(explanation: Explanation) -> str:
    """Return the ladder diagram of an explanation, as one SVG document without scripts."""
    names = _columns(explanation)
    marks = _marks(explanation, names)[:_MOST_ROWS]
    width, height = _LEFT + _COLUMN * len(names) + 30, _TOP + _ROW * (len(marks) + 1) + 20
    x_of = {name: _LEFT + _COLUMN // 2 + _COLUMN * at for at, name in enumerate(names)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>Life of packet {explanation.sqn}</title><style>{_STYLE}</style>",
        f'<rect class="bg" width="{width}" height="{height}"/>',
        _text(10, 20, f"packet {explanation.sqn:,} of {explanation.stream}", "h v"),
        _text(10, 38, f"lost: {_cut(explanation.loss.text, width)}", "v"),
        _text(10, 54, f"repair: {_cut(explanation.repair.text, width)}", "v"),
    ]
    for name in names:
        parts.append(_text(x_of[name], _TOP - 14, name, "h", anchor="middle"))
        parts.append(f'<line class="life" x1="{x_of[name]}" x2="{x_of[name]}" y1="{_TOP - 6}" y2="{height - 12}"/>')
    start_ns = marks[0].event.time_ns if marks else 0
    for row, mark in enumerate(marks):
        y = _TOP + _ROW * (row + 1)
        parts.append(
            _text(_LEFT - 14, y + 4, f"{(mark.event.time_ns - start_ns) / MILLISECOND:+,.2f} ms", "t", anchor="end")
        )
        parts += _arrows(mark, x_of, y) if mark.event.kind in _ARRIVALS else _dot(mark.event, x_of[mark.event.node], y)
    parts.append("</svg>\n")
    return "\n".join(parts)


def _columns(explanation: Explanation) -> list[str]:
    """Return the nodes of the diagram, from the source down: those of the way, of the steps, then others."""
    way = [name for hop in explanation.loss.path for name in (hop.feeder, hop.listener)]
    told = [name for step in explanation.steps for name in (step.node, step.other)]
    target = [explanation.target.node.name] if explanation.target is not None else []

    def rank(state: PacketState) -> tuple[bool, bool, bool]:
        name = state.node.name
        return name not in (*way, *target), name not in told, state.presence is not Presence.MISSED

    involved = [
        state
        for state in explanation.states
        if state.node.name in (*way, *target, *told) or state.presence is Presence.MISSED
    ]
    chosen = {state.node.name for state in sorted(involved or explanation.states, key=rank)[:_MOST_NODES]}
    return [state.node.name for state in explanation.states if state.node.name in chosen]


def _marks(explanation: Explanation, names: Sequence[str]) -> list[_Mark]:
    events = [event for event in explanation.events if event.node in names]
    addresses = {
        place.address: state.node.name
        for state in explanation.states
        for place in state.node.places
        if state.node.name in names
    }
    arrivals = [event for event in events if event.kind in _IN]
    marks: list[_Mark] = []
    for at, event in enumerate(events):
        if event.kind in _ARRIVALS:
            again = (
                other.time_ns for other in events[at + 1 :] if (other.kind, other.node) == (event.kind, event.node)
            )
            until_ns = min(event.time_ns + _MATCH_NS, next(again, NEVER) - 1)
            came = [other for other in arrivals if event.time_ns - _TOLERANCE_NS <= other.time_ns <= until_ns]
            marks.append(_Mark(event, _targets(event, came, explanation.states, addresses, names)))
        elif event.kind in _LOCAL:
            marks.append(_Mark(event))
    return marks


def _targets(
    event: FlightEvent,
    arrivals: Sequence[FlightEvent],
    states: Sequence[PacketState],
    addresses: dict[str, str],
    names: Sequence[str],
) -> tuple[tuple[str, bool], ...]:
    own = {place.address for state in states if state.node.name == event.node for place in state.node.places}
    came = {other.node for other in arrivals if other.kind in _ARRIVALS[event.kind] and other.peer in own}
    if event.peer:
        wanted = [addresses[event.peer]] if event.peer in addresses else []
    else:
        wanted = [
            state.node.name
            for state in states
            if state.node.name in names
            and state.node.name != event.node
            and event.segment in state.node.ups
            and (state.node.name in came or state.presence is Presence.MISSED)
        ]
    return tuple((name, name in came) for name in wanted)


def _arrows(mark: _Mark, x_of: dict[str, int], y: int) -> list[str]:
    css, name = _CLASSES[mark.event.kind], _NAMES[mark.event.kind]
    from_x = x_of[mark.event.node]
    parts = [f'<circle class="{css}" cx="{from_x}" cy="{y}" r="3"/>', _text(from_x + 7, y - 4, name, css)]
    for target, came in mark.targets:
        to_x = x_of[target]
        side = 1 if to_x > from_x else -1
        end_x = to_x - 3 * side if came else (from_x + to_x) // 2
        parts.append(f'<path class="arrow {css}{"" if came else " lost"}" d="M{from_x} {y}H{end_x}"/>')
        if came:
            parts.append(f'<path class="{css}" d="M{end_x} {y}l{-7 * side} -4v8z"/>')
        else:
            parts.append(_text(end_x + 4 * side, y + 4, "\u2715", "bad", anchor="middle"))
    return parts


def _dot(event: FlightEvent, x: int, y: int) -> list[str]:
    css = "bad" if event.kind in _BAD else "dot"
    label = _LOCAL[event.kind] + (f": {event.cause}" if event.kind in (FlightKind.LOST, FlightKind.SHED) else "")
    return [
        f'<circle class="{css}" cx="{x}" cy="{y}" r="4"/>',
        _text(x + 8, y + 4, label, "bad" if css == "bad" else ""),
    ]


def _text(x: int, y: int, text: str, css: str = "", anchor: str = "start") -> str:
    return f'<text class="{css}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _cut(text: str, width: int) -> str:
    most = max(20, (width - 70) // 7)
    return text if len(text) <= most else text[: most - 1] + "\u2026"
