"""Screen of `pgm top`: a table of all nodes, and one node in detail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar, cast

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from deploy.monitor.columns import COLUMNS, Value, lost_of, span
from deploy.monitor.listen_commands import command_lines
from deploy.status.detail import details
from deploy.status.peers import NO_NAMES, PeerNames
from deploy.terminal.output import refused
from pgm.errors import PgmError
from pgm.fleet.nodes import NodeRecord, NodeState, TreeView, Watch
from pgm.topology.problems import joined

EVERY_S = 1.0  # nodes update their rates at this interval
_PADDING = 2  # characters of a cell around its text
_LINES = 3  # of the screen around the rows: headline, headings and keys
_ASKING = "asking the nodes"
_BAR = 2  # characters of the scroll bar
_LEAST_EVENT = 24  # characters of the last event, below which the column is left out
_STYLES = {
    NodeState.UP: "",
    NodeState.STUCK: "yellow",
    NodeState.GONE: "dim red",
    NodeState.ABSENT: "dim",
    NodeState.ELSEWHERE: "dim",
    NodeState.UNREACHABLE: "yellow",
}


def chosen_columns(nodes: Sequence[NodeRecord], width: int) -> dict[str, int]:
    """Return the columns that fit into `width`, with their widths. The highest rank is left out first."""
    widths = {
        key: max([len(column.heading) + 1, *(len(column.text(node)) for node in nodes)])
        for key, column in COLUMNS.items()
        if key not in ("topology", "host") or len({getattr(node, key) for node in nodes}) > 1
    }
    widths["event"] = _LEAST_EVENT
    while sum(widths.values()) + _PADDING * len(widths) > width:
        least = max(widths, key=lambda key: COLUMNS[key].rank)
        if not COLUMNS[least].rank:
            break
        del widths[least]
    if "event" in widths:
        widths["event"] += width - sum(widths.values()) - _PADDING * len(widths)
    return widths


def in_order(nodes: Sequence[NodeRecord], key: str, *, falling: bool) -> list[NodeRecord]:
    """Return nodes sorted by a column, nodes without a value last, ties in the order of the tree."""
    value = COLUMNS[key].value

    def number(node: NodeRecord) -> tuple[bool, Value]:
        value_of_node = value(node)
        return (value_of_node is None) is not falling, (
            "" if COLUMNS[key].is_text else 0.0
        ) if value_of_node is None else value_of_node

    return sorted(nodes, key=number, reverse=falling)


class NodeScreen(Screen[None]):
    """Screen of one node: the tables of `pgm status --detail`, and commands to listen to the node's streams."""

    BINDINGS: ClassVar = [Binding("escape,enter,backspace", "app.pop_screen", "back", key_display="esc")]

    def __init__(self, key: tuple[str, str]) -> None:
        super().__init__()
        self.key = key

    def compose(self) -> ComposeResult:
        """Add a scrollable page, and the keys."""
        with VerticalScroll(id="page"):
            yield Static(id="detail")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Show the view that is known already."""
        self.show(cast("TopApp", self.app).view)

    def on_resize(self) -> None:
        """Fit the tables to the new width of the terminal."""
        self.show(cast("TopApp", self.app).view)

    def show(self, view: TreeView | None) -> None:
        """Show the node as it is in a view."""
        node = (
            next((candidate for candidate in view.nodes if (candidate.topology, candidate.name) == self.key), None)
            if view
            else None
        )
        names = PeerNames.of_nodes(view.nodes, self.key[0]) if view else NO_NAMES
        self.query_one("#detail", Static).update(Group(*self._parts(node, names)))

    def _parts(self, node: NodeRecord | None, names: PeerNames) -> list[RenderableType]:
        if node is None:
            return [Text(f"{self.key[1]} has been gone for too long and is no longer shown", "red")]
        if node.snapshot is None:
            return [Text(f"{node.name} does not run on this machine as this user")]
        parts: list[RenderableType] = []
        if not node.is_up:
            parts.append(
                Text(f"{node.state.value} for {span(time.monotonic() - node.since_s)}; the last numbers are:", "red")
            )
        parts += details(node.snapshot, self.app.size.width - 4, names)
        listening = command_lines(node.snapshot)
        if listening:
            parts.append(Text("to see the messages without sending NAKs", "bold"))
            parts += [Text(line, no_wrap=False, overflow="fold") for line in listening]
        return parts


class _Table(DataTable[Text]):
    """Table with a name for the enter key."""

    BINDINGS: ClassVar = [Binding("enter", "select_cursor", "detail")]


class TopApp(App[None]):
    """Application with the table of nodes, which are asked every `EVERY_S`."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; text-style: bold; }
    DataTable { height: 1fr; }
    #page { padding: 0 1; }
    """
    BINDINGS: ClassVar = [
        Binding("q,ctrl+c", "quit", "quit", key_display="q", priority=True),
        Binding("left", "sort(-1)", "sort by", key_display="←/→", priority=True),
        Binding("right", "sort(1)", "sort by", show=False, priority=True),
        Binding("r", "reverse", "reverse"),
        Binding("t", "tree", "tree order"),
        Binding("space", "pause", "pause"),
    ]

    def __init__(self, nodes: Watch) -> None:
        super().__init__()
        self.view: TreeView | None = None
        self._refusal: PgmError | None = None  # the reason why the last attempt to ask the nodes failed
        self._node_watch = nodes
        self._sorted_by: str | None = None  # None: the order of the tree
        self._falling = False
        self._paused = False
        self._columns: dict[str, int] = {}
        self._heads: list[str] = []
        self._cells: list[list[tuple[str, str]]] = []  # text and style, as shown
        self._order: list[tuple[str, str]] = []  # topology and name of each row

    def compose(self) -> ComposeResult:
        """Add the headline, the table and the keys."""
        yield Static(_ASKING, id="head")
        yield _Table(cursor_type="row", show_row_labels=False)
        yield Footer(show_command_palette=False)

    def on_ready(self) -> None:
        """Start to ask the nodes, now that the widgets exist."""
        self.run_worker(self._watch())

    async def _watch(self) -> None:
        while True:
            if not self._paused:
                try:
                    self.view, self._refusal = await asyncio.to_thread(self._node_watch.look), None
                except OSError as error:  # mostly too many open files, perhaps for a moment only
                    self._refusal = refused(error)
                except PgmError as error:
                    self._refusal = error
                self.refresh_nodes()
            await asyncio.sleep(EVERY_S)

    def on_resize(self) -> None:
        """Choose the columns for the new width."""
        self.refresh_nodes()

    def refresh_nodes(self) -> None:
        """Show the last view in the table, and in an open detail screen."""
        self.screen_stack[0].query_one("#head", Static).update(self._headline())
        if self.view is None:
            return
        self._show_rows(self.view.nodes)
        if isinstance(self.screen, NodeScreen):
            self.screen.show(self.view)

    def _headline(self) -> str:
        if self._refusal is not None:
            return f"the nodes cannot be asked now: {self._refusal.message}; {self._refusal.remedy}"
        view = self.view
        if view is None:
            return _ASKING
        if not view.nodes:
            return "no node runs on this machine as this user; start one: pgm run FILE --node NAME, or pgm up FILE"
        counts = {state: sum(node.state is state for node in view.nodes) for state in NodeState}
        parts = [f"{count} {state.value}" for state, count in counts.items() if count]
        lost = sum(lost_of(node) for node in view.nodes)
        parts += [f"{lost:,.0f} packets lost", f"asked at {time.strftime('%H:%M:%S')}"]
        if view.left_out:
            parts.append(f"{view.left_out:,} more not asked")
        silent = [host.name for host in view.hosts if host.problem]
        other = [host.name for host in view.hosts if host.has_other_file]
        parts += [f"silent hosts: {joined(silent)}"] if silent else []
        parts += [f"another file: {joined(other)}"] if other else []
        return ("paused: " if self._paused else "") + ", ".join(parts)

    @property
    def _table(self) -> _Table:
        return self.screen_stack[0].query_one(_Table)

    def _show_rows(self, records: Sequence[NodeRecord]) -> None:
        table = self._table
        picked = self._picked()
        has_bar = len(records) > self.size.height - _LINES
        wanted = chosen_columns(records, self.size.width - (_BAR if has_bar else 0))
        if self._sorted_by is not None and self._sorted_by not in wanted:
            self._sorted_by = None
        nodes = list(records) if self._sorted_by is None else in_order(records, self._sorted_by, falling=self._falling)
        heads = [self._head_of(key) for key in wanted]
        if wanted != self._columns or heads != self._heads or len(nodes) != len(self._cells):
            self._rebuild(wanted, heads, len(nodes))
        topologies = {node.topology for node in records} if "event" in wanted else set()
        names = {topology: PeerNames.of_nodes(records, topology) for topology in topologies}
        for at, node in enumerate(nodes):
            texts = {key: COLUMNS[key].text(node) for key in wanted}
            if "event" in texts:
                texts["event"] = names[node.topology].in_text(texts["event"])
            cells = [(texts[key][:width], _style(key, node)) for key, width in wanted.items()]
            for column, (cell, shown) in enumerate(zip(cells, self._cells[at], strict=True)):
                if cell != shown:
                    left = COLUMNS[list(wanted)[column]].is_text
                    text = Text(
                        cell[0], cell[1], justify="left" if left else "right", no_wrap=True, overflow="ellipsis"
                    )
                    table.update_cell_at(Coordinate(at, column), text)
            self._cells[at] = cells
        self._order = [(node.topology, node.name) for node in nodes]
        if picked in self._order:
            table.move_cursor(row=self._order.index(picked), animate=False)

    def _rebuild(self, widths: dict[str, int], heads: list[str], rows: int) -> None:
        table = self._table
        table.clear(columns=True)
        for (key, width), head in zip(widths.items(), heads, strict=True):
            left = COLUMNS[key].is_text
            table.add_column(Text(head, justify="left" if left else "right"), key=key, width=width)
        for _ in range(rows):
            table.add_row(*(Text() for _ in widths))
        self._columns, self._heads = dict(widths), heads
        self._cells = [[("", "")] * len(widths) for _ in range(rows)]

    def _head_of(self, key: str) -> str:
        mark = "" if key != self._sorted_by else "▼" if self._falling else "▲"
        return COLUMNS[key].heading + mark

    def _picked(self) -> tuple[str, str] | None:
        row = self._table.cursor_row
        return self._order[row] if 0 <= row < len(self._order) else None

    def on_data_table_row_selected(self) -> None:
        """Open the detail screen after enter, or after a click on the current row."""
        picked = self._picked()
        if picked is not None and not isinstance(self.screen, NodeScreen):
            self.push_screen(NodeScreen(picked))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the clicked column; a second click reverses the order."""
        key = str(event.column_key.value)
        if key == self._sorted_by:
            self._falling = not self._falling
        else:
            self._sort_by(key)
        self.refresh_nodes()

    def _sort_by(self, key: str) -> None:
        self._sorted_by, self._falling = key, not COLUMNS[key].is_text

    def action_sort(self, step: int) -> None:
        """Sort by the next column to the right or to the left."""
        keys = list(self._columns)
        if not keys or isinstance(self.screen, NodeScreen):
            return
        at = keys.index(self._sorted_by) + step if self._sorted_by in keys else 0 if step > 0 else -1
        self._sort_by(keys[at % len(keys)])
        self.refresh_nodes()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self._falling = not self._falling
        self.refresh_nodes()

    def action_tree(self) -> None:
        """Return to the order of the tree, with sources first."""
        self._sorted_by = None
        self.refresh_nodes()

    def action_pause(self) -> None:
        """Pause or resume the updates."""
        self._paused = not self._paused
        self.refresh_nodes()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable sorting while the detail screen is open."""
        is_above = len(self.screen_stack) > 1
        return not (is_above and action in ("sort", "reverse", "tree"))


def _style(key: str, node: NodeRecord) -> str:
    if key == "lost" and lost_of(node):
        return "bold red"
    return _STYLES[node.state]
