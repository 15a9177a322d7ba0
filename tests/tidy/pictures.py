"""Pictures of the documentation, drawn from code: `python -m tests.tidy.pictures --write` draws them into docs/pictures.

The tree comes from a topology file, the house from the table of layers, the lost packet from a simulated tree, and the states
from the repair table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from html import escape
from itertools import pairwise
from pathlib import Path

import attrs

from pgm.core.recovery.repair_table import RECEIVER
from pgm.topology.load import load
from pgm.topology.model import NodeTable, Topology
from pgm.units import MICROSECOND
from pgm.wire.control_packets import Packet
from pgm.wire.formats import PacketType
from pgm.wire.train import Data
from tests.sim.support.worlds import Tap, TreeBuilder, finish, lossy, make_world, parameters, traffic
from tests.tidy.layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "pictures"
TREE = ROOT / "deploy" / "topologies" / "loopback-demo.toml"

_INK, _FAINT, _PAPER = "#1a202c", "#718096", "#ffffff"
_ROLES = {"source": "#fed7aa", "aggregator": "#bee3f8", "repairer": "#c6f6d5", "receiver": "#e2e8f0"}
_KINDS = {"ODATA": _FAINT, "NAK": "#c53030", "NCF": "#2b6cb0", "RDATA": "#2f855a"}
_BOX_WIDTH, _BOX_HEIGHT, _GAP = 146, 40, 16


@attrs.define
class Drawing:
    """An SVG picture: shapes in pixels, the origin at the top left."""

    title: str
    width: float = 0
    height: float = 0
    shapes: list[str] = attrs.field(factory=list)

    def _grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(
        self, x: float, y: float, text: str, *, size: int = 13, colour: str = _INK, anchor: str = "middle"
    ) -> None:
        """Write a line of text around (x, y)."""
        self._grow(x + (len(text) * size * 0.6 if anchor == "start" else 0), y + 6)
        self.shapes.append(
            f'<text x="{x:g}" y="{y + size / 3:g}" font-size="{size}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str, *lines: str) -> None:
        """Draw a box with lines of text; the first line is the largest."""
        self._grow(x + width, y + height)
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{_FAINT}"/>'
        )
        for number, line in enumerate(lines):
            at = y + height / 2 + (number - (len(lines) - 1) / 2) * 15
            self.text(x + width / 2, at, line, size=11 if number else 13, colour=_FAINT if number else _INK)

    def line(self, x: float, y: float, to_x: float, to_y: float, *, colour: str = _FAINT, width: float = 1.4) -> None:
        """Draw a straight line."""
        self._grow(max(x, to_x), max(y, to_y))
        self.shapes.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{colour}" stroke-width="{width:g}"/>'
        )

    def arrow(self, x: float, to_x: float, y: float, colour: str) -> None:
        """Draw a horizontal arrow."""
        back = -8 if to_x > x else 8
        self.line(x, y, to_x, y, colour=colour)
        self.shapes.append(
            f'<path d="M{to_x:g} {y:g} l{back} -4 v8 z" fill="{colour}"/>',
        )

    def svg(self) -> str:
        """Return the whole picture with a margin."""
        width, height = self.width + 2 * _GAP, self.height + 2 * _GAP
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_GAP} {-_GAP} {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" font-family="sans-serif" role="img">'
        )
        ground = f'<rect x="{-_GAP}" y="{-_GAP}" width="{width:g}" height="{height:g}" fill="{_PAPER}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", ground, *self.shapes, "</svg>"]) + "\n"


# The tree


def tree() -> str:
    """Draw the segments and nodes of a topology file, tier by tier."""
    topology = load(TREE)
    drawing = Drawing("A tree with two tiers")
    fed = {place.segment for node in topology.nodes.values() if node.is_relay for place in node.downs}
    [top] = [name for name in topology.segments if name not in fed]
    _segment(drawing, topology, top, 0, _BOX_HEIGHT + _GAP)
    for name, node in topology.nodes.items():
        if node.role.value == "source":
            x = drawing.width / 2 - _BOX_WIDTH / 2
            _node(drawing, name, node, x, 0)
            drawing.line(x + _BOX_WIDTH / 2, _BOX_HEIGHT, x + _BOX_WIDTH / 2, _BOX_HEIGHT + _GAP)
    return drawing.svg()


def _segment(drawing: Drawing, topology: Topology, segment: str, x: float, y: float) -> float:
    """Draw a segment and all below it from (x, y) on. Return its right edge."""
    left, below = x, y + _BOX_HEIGHT + 2 * _GAP
    for name, node in topology.nodes.items():
        if node.up is None or node.up.segment != segment:
            continue
        right = x + _BOX_WIDTH
        for place in node.downs if node.is_relay else ():
            right = _segment(drawing, topology, place.segment, x, below + _BOX_HEIGHT + 2 * _GAP)
        centre = (x + right) / 2
        if node.is_relay:
            drawing.line(centre, below, centre, below + _BOX_HEIGHT + 2 * _GAP)
        drawing.line(centre, y, centre, below)
        _node(drawing, name, node, centre - _BOX_WIDTH / 2, below)
        x = right + _GAP
    right = x - _GAP
    drawing.box(left, y, right - left, 22, "#f7fafc", f"segment {segment}")
    return right


def _node(drawing: Drawing, name: str, node: NodeTable, x: float, y: float) -> None:
    count = f"{node.instances} receivers" if node.is_pattern else node.role.value
    drawing.box(x, y, _BOX_WIDTH, _BOX_HEIGHT, _ROLES[node.role.value], name, count)


# The house


def house() -> str:
    """Draw each layer above all layers that it imports, with the imports that no other import implies."""
    levels: dict[str, int] = {}
    for layer, (_, allowed, _) in LAYERS.items():
        levels[layer] = 1 + max((levels[one] for one in allowed), default=-1)
    highest = max(levels.values())
    rows = [[layer for layer, level in levels.items() if level == number] for number in range(highest, -1, -1)]
    width, height, step = 216, 44, 88
    whole = max(len(row) for row in rows) * (width + _GAP) - _GAP
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        left = (whole - len(row) * (width + _GAP) + _GAP) / 2
        places |= {layer: (left + at * (width + _GAP), number * step) for at, layer in enumerate(row)}
    drawing = Drawing("The layers of the code")
    for layer, (_, allowed, _) in LAYERS.items():
        implied = {below for one in allowed for below in LAYERS[one][1]}
        x, y = places[layer]
        for other in allowed:
            if other not in implied:
                drawing.line(x + width / 2, y + height, places[other][0] + width / 2, places[other][1])
    for layer, (modules, _, _) in LAYERS.items():
        lines = [layer] if list(modules) == [layer] else [layer, ", ".join(modules)]
        drawing.box(*places[layer], width, height, "#ebf4ff", *lines)
    return drawing.svg()


# One lost packet

_NODES = ("source", "aggregator", "repairer", "X", "Y")
_LOSS, _SEED, _MESSAGES = 0.05, 1, 40


def lost_packet() -> str:
    """Draw the packets about one sqn that a receiver of a simulated tree loses, in order of time."""
    builder = TreeBuilder(parameters())
    builder.source("source", "core")
    builder.aggregator("aggregator", "core", "floor", parents=("source",), repairers=("repairer",))
    builder.repairer("repairer", "floor", parents=("aggregator",))
    for name in ("X", "Y"):
        builder.receiver(name, "floor", "aggregator", "repairer")
    tap = Tap(lambda item: item.type.name in _KINDS)
    world = make_world(builder, traffic(messages=_MESSAGES), seed=_SEED, wirings={"X": lossy(_LOSS)}, more=(tap,))
    finish(world)
    addresses = {
        str(segment.address): name
        for name, node in world.nodes.items()
        for segment in node.plan.segments
        if segment.address
    }
    on = {"core": _NODES[:2], "floor": _NODES[1:]}
    sqn = next(item.sqn for _, node, _, _, item in tap.seen if node == "X" and item.type is PacketType.NAK)
    steps = [
        (at, node, (addresses[str(to)],) if to is not None else tuple(one for one in on[segment] if one != node), item)
        for at, node, segment, to, item in tap.seen
        if _is_about(item, sqn)
    ]
    return _sequence(steps, sqn)


def _is_about(item: Data | Packet, sqn: int) -> bool:
    if isinstance(item, Data):
        return item.wire_sqn <= sqn < item.wire_sqn + item.count
    return sqn in item.sqns


def _sequence(steps: list[tuple[int, str, tuple[str, ...], Data | Packet]], sqn: int) -> str:
    """Draw steps of (time in ns, sender, receivers, packet) between the lifelines of all nodes."""
    drawing = Drawing("The packets that one lost packet causes")
    column, row, first = 150, 34, 118
    places = {name: first + at * column for at, name in enumerate(_NODES)}
    bottom = 52 + row * len(steps)
    for name, x in places.items():
        role = "receiver" if name in "XY" else name
        drawing.line(x, 32, x, bottom, width=1)
        drawing.box(x - 55, 0, 110, 32, _ROLES[role], name)
    begin = steps[0][0]
    is_lost = False
    for number, (at, sender, receivers, item) in enumerate(steps):
        y = 60 + row * number
        kind = item.type.name
        drawing.text(44, y, f"{(at - begin) / MICROSECOND / 1000:.2f} ms", size=11, colour=_FAINT, anchor="end")
        misses = kind == "ODATA" and "X" in receivers and not is_lost
        is_lost |= misses
        ends = sorted(
            (places[one] for one in receivers if not (misses and one == "X")), key=lambda x: abs(x - places[sender])
        )
        for start, end in pairwise([places[sender], *(x for x in ends if x > places[sender])]):
            drawing.arrow(start, end, y, _KINDS[kind])
        for start, end in pairwise([places[sender], *(x for x in ends if x < places[sender])]):
            drawing.arrow(start, end, y, _KINDS[kind])
        if misses:
            drawing.text(places["X"], y - 9, "lost", size=11, colour="#c53030")
        label = f"{kind} {sqn}" if kind != "ODATA" else f"ODATA, with {sqn}"
        drawing.text((places[sender] + ends[0]) / 2, y - 9, label, size=11, colour=_KINDS[kind])
    return drawing.svg()


# The states of a missing packet


def repair_states() -> str:
    """Draw the repair table: a column per state, and an arrow or a loop per event."""
    drawing = Drawing("The states of a missing packet")
    column, row = 290, 40
    places = {state: 90 + at * column for at, state in enumerate(dict.fromkeys(state for state, _ in RECEIVER))}
    for state, x in places.items():
        drawing.line(x, 32, x, 46 + row * len(RECEIVER), width=1)
        drawing.box(x - 75, 0, 150, 32, _ROLES["aggregator"], state.name)
    for number, ((state, event), change) in enumerate(RECEIVER.items()):
        y, start, end = 66 + row * number, places[state], places[change.next_state]
        label = f"{event.value}: {change.restarts.value}"
        if start == end:
            drawing.arrow(start + 40, start, y, _KINDS["NCF"])
            drawing.text(start + 46, y, label, size=11, anchor="start")
        else:
            drawing.arrow(start, end, y, _KINDS["NAK"] if end < start else _KINDS["NCF"])
            drawing.text((start + end) / 2, y - 9, label, size=11)
    return drawing.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "tree.svg": tree,
    "house.svg": house,
    "lost-packet.svg": lost_packet,
    "repair-states.svg": repair_states,
}


def main() -> None:
    """Print the pictures, or write them into docs/pictures with --write."""
    for name, draw in PICTURES.items():
        if "--write" in sys.argv[1:]:
            (FOLDER / name).write_text(draw())
        else:
            print(draw())


if __name__ == "__main__":
    main()
