"""Pictures of the monitor's pages as SVG, drawn here: pages need no scripts and load nothing from other hosts."""

from __future__ import annotations

import html
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias
from urllib.parse import urlencode

import attrs

from deploy.monitor.columns import MUCH_LOSS, SOME_LOSS, flow_of, health_of, loss_of, lost_of
from deploy.monitor.tree import in_tree, parents_of, upstream_of
from pgm.fleet.nodes import NodeRecord

_WORST = ("bad", "odd", "away", "ok")
_LETTER = 7.0  # pixels of a letter of the name, at most


@attrs.frozen
class Fold:
    """Receivers of one segment below one parent, drawn as one box."""

    segment: str
    nodes: tuple[NodeRecord, ...]


Item: TypeAlias = NodeRecord | Fold


@attrs.frozen
class Branch:
    """Box of the picture, with its depth and the place of its parent in the list."""

    item: Item
    depth: int
    above: int | None

    @property
    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return the nodes of the box."""
        return self.item.nodes if isinstance(self.item, Fold) else (self.item,)

    @property
    def health(self) -> str:
        """Return the worst health of the nodes."""
        found = {health_of(node) for node in self.nodes}
        return next(kind for kind in _WORST if kind in found)

    @property
    def loss(self) -> float:
        """Return the largest share of lost packets of the nodes."""
        return max(loss_of(node) for node in self.nodes)

    @property
    def flow(self) -> float:
        """Return the packets a second of a node, the mean of those that run."""
        flows = [flow_of(node) for node in self.nodes if node.is_up]
        return sum(flows) / len(flows) if flows else 0.0

    @property
    def is_up(self) -> bool:
        """Return whether a node of the box runs."""
        return any(node.is_up for node in self.nodes)


def branches_of(nodes: Sequence[NodeRecord]) -> list[Branch]:
    """Return the boxes of a tree in order, parents first, with receivers folded by segment."""
    above = parents_of(nodes)
    has_children = {id(parent) for parent in above.values() if parent is not None}

    def fold_of(node: NodeRecord) -> tuple[int, str] | None:
        is_leaf = node.role == "receiver" and id(node) not in has_children
        return (id(above[id(node)]), next(iter(upstream_of(node)), "")) if is_leaf else None

    sizes = Counter(map(fold_of, nodes))
    members: dict[tuple[int, str], list[NodeRecord]] = defaultdict(list)
    for node in nodes:
        key = fold_of(node)
        if key is not None:
            members[key].append(node)
    found: list[Branch] = []
    at: dict[int, int] = {}
    done: set[tuple[int, str]] = set()
    for depth, node in in_tree(nodes):
        parent, key = above[id(node)], fold_of(node)
        place = None if parent is None else at.get(id(parent))
        if key is None or sizes[key] == 1:
            at[id(node)] = len(found)
            found.append(Branch(node, depth, place))
        elif key not in done:
            done.add(key)
            found.append(Branch(Fold(key[1], tuple(members[key])), depth, place))
    return found


@attrs.frozen
class _Layout:
    """Measures of a picture in pixels. In an indented picture parents stand above their children, else beside them."""

    step: int  # from a tier to the next
    box: int  # width of a box; of an indented picture from the left edge of the page
    is_indented: bool
    row: int = 60
    height: int = 46

    def width_of(self, branch: Branch) -> int:
        """Return the width of a box."""
        return self.box - self.step * branch.depth if self.is_indented else self.box


_WIDE = _Layout(step=310, box=210, is_indented=False)
_NARROW = _Layout(step=14, box=360, is_indented=True)
_EDGE = 4


def tree_pictures(nodes: Sequence[NodeRecord]) -> str:
    """Return the picture of a tree twice: tiers side by side, and indented for narrow screens."""
    branches = branches_of(nodes)
    return _tree("wide", branches, _WIDE) + _tree("narrow", branches, _NARROW)


def _tree(kind: str, branches: Sequence[Branch], layout: _Layout) -> str:
    rows = list(_rows(branches, layout))
    width = max((branch.depth for branch in branches), default=0) * layout.step * (not layout.is_indented) + layout.box
    height = (max(rows, default=0) + 1) * layout.row
    links = "".join(_link(branches, rows, at, layout) for at, branch in enumerate(branches) if branch.above is not None)
    boxes = "".join(_box(branch, row, layout) for branch, row in zip(branches, rows, strict=True))
    size = f'width="{width + 2 * _EDGE}" height="{height:.0f}" viewBox="{-_EDGE} {-_EDGE} {width + 2 * _EDGE} {height:.0f}"'
    return f'<div class="wide only-{kind}"><svg class=picture {size} role="img" aria-label="tree">{links}{boxes}</svg></div>'


def _rows(branches: Sequence[Branch], layout: _Layout) -> Iterator[float]:
    """Yield the row of each box: its own, or beside tiers that of a leaf, or the middle of its children."""
    if layout.is_indented:
        yield from range(len(branches))
        return
    below: dict[int, list[int]] = defaultdict(list)
    for at, branch in enumerate(branches):
        if branch.above is not None:
            below[branch.above].append(at)
    rows = [0.0] * len(branches)
    leaves = 0
    for at in range(len(branches)):
        if not below[at]:
            rows[at], leaves = float(leaves), leaves + 1
    for at in reversed(range(len(branches))):
        if below[at]:
            rows[at] = (rows[below[at][0]] + rows[below[at][-1]]) / 2
    yield from rows


def _link(branches: Sequence[Branch], rows: Sequence[float], at: int, layout: _Layout) -> str:
    branch = branches[at]
    assert branch.above is not None
    parent = branches[branch.above]
    x, y = branch.depth * layout.step, rows[at] * layout.row + layout.height / 2
    from_x, from_y = parent.depth * layout.step, rows[branch.above] * layout.row + layout.height / 2
    if layout.is_indented:
        path = f"M{from_x + 7} {from_y + layout.height / 2:.0f}V{y:.0f}H{x}"
        label = ""
    else:
        from_x += layout.box
        middle = (from_x + x) / 2 - 30
        path = f"M{from_x} {from_y:.0f}C{middle + 20:.0f} {from_y:.0f} {middle - 10:.0f} {y:.0f} {middle + 30:.0f} {y:.0f}H{x}"
        label = _label(branch, x - 6, y)
    kind = "down" if not branch.is_up else _loss_kind(branch.loss)
    thickness = 1 + math.log10(1 + branch.flow) / 2
    return f'<path class="link {kind}" d="{path}" stroke-width="{thickness:.1f}"/>{label}'


def _label(branch: Branch, x: float, y: float) -> str:
    """Return rate and loss of the link to a box, right-aligned at `x`, above and below `y`."""
    if not branch.is_up:
        return ""
    loss = f'<text class="{_loss_kind(branch.loss)}" x="{x:.0f}" y="{y + 14:.0f}">{branch.loss:.1%}</text>'
    return (
        f'<g class=rate><text x="{x:.0f}" y="{y - 5:.0f}">{branch.flow:,.0f}/s</text>{loss if branch.loss else ""}</g>'
    )


def _loss_kind(loss: float) -> str:
    return "bad" if loss >= MUCH_LOSS else "odd" if loss >= SOME_LOSS else "ok"


def _box(branch: Branch, row: float, layout: _Layout) -> str:
    x, y, width = branch.depth * layout.step, row * layout.row, layout.width_of(branch)
    name, more = _words(branch)
    room = (width - (90 if layout.is_indented else 16)) / _LETTER
    label = _label(branch, x + width - 8, y + layout.height / 2) if layout.is_indented else ""
    text = (
        f'<text class=name x="{x + 8}" y="{y + 19:.0f}">{html.escape(_cut(name, room))}</text>'
        f'<text class=more x="{x + 8}" y="{y + 36:.0f}">{html.escape(_cut(more, room * 1.15))}</text>'
    )
    rect = f'<rect x="{x}" y="{y:.0f}" width="{width}" height="{layout.height}" rx="6"/>'
    title = f"<title>{html.escape(f'{name}: {more}')}</title>"
    return f'<a class="box {branch.health}" href="{html.escape(_target(branch))}">{title}{rect}{text}{label}</a>'


def _words(branch: Branch) -> tuple[str, str]:
    """Return the two lines of a box."""
    lost = sum(map(lost_of, branch.nodes))
    tail = f", {lost:,.0f} lost" if lost else ""
    if isinstance(branch.item, Fold):
        up = sum(node.is_up for node in branch.nodes)
        return f"{len(branch.nodes)} receivers", f"on {branch.item.segment}, {up} up{tail}"
    node = branch.item
    where = f" at {node.host}" if node.host else ""
    return node.name, f"{node.role}{where}{tail}" if node.is_up else f"{node.role}{where}, {node.state.value}"


def _cut(text: str, letters: float) -> str:
    return text if len(text) <= letters else f"{text[: max(1, int(letters) - 1)]}\N{HORIZONTAL ELLIPSIS}"


def _target(branch: Branch) -> str:
    """Return the page of a node, or the row of the first receiver of a fold."""
    return f"#{anchor_of(branch.nodes[0])}" if isinstance(branch.item, Fold) else page_of(branch.item)


def page_of(node: NodeRecord) -> str:
    """Return the path of a node's page."""
    return f"/node?{urlencode({'topology': node.topology, 'name': node.name})}"


def anchor_of(node: NodeRecord) -> str:
    """Return the anchor of a node's row on the page of all nodes."""
    return urlencode({node.topology: node.name})


_CHART = (360, 60)  # pixels; a sample has one


def chart(values: Sequence[float], samples: int) -> str:
    """Return the picture of a series. `samples` is the number of samples of the full width; NaN leaves a hole."""
    width, height = _CHART
    known = [value for value in values if not math.isnan(value)]
    top = max(known, default=0.0) or 1.0
    offset = samples - len(values)
    paths: list[str] = []
    is_open = False
    for at, value in enumerate(values):
        if math.isnan(value):
            is_open = False
            continue
        x, y = (at + offset + 0.5) * width / samples, height - 2 - value / top * (height - 6)
        paths.append(f"{'L' if is_open else 'M'}{x:.1f} {y:.1f}{'' if is_open else 'h.1'}")
        is_open = True
    return (
        f'<svg class=chart viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img">'
        f'<path class=axis d="M0 {height - 1}H{width}"/><path class=line d="{"".join(paths)}"/></svg>'
    )
