"""Measured figures beside predicted ones, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from deploy.terminal.tables import TableColumn, console, table
from pgm.prediction.beside import Comparison, cells

_COLUMNS = (
    TableColumn("place"), TableColumn("per packet", 1), TableColumn("measured"), TableColumn("predicted"),
    TableColumn("difference", 2), TableColumn("verdict"),
)  # fmt: skip


def print_comparisons(comparisons: Iterable[Comparison]) -> None:
    """Print a table of comparisons. It marks what differs by more than a third."""
    terminal = console()
    title = "measured beside predicted; more than a third apart DIFFERS"
    terminal.print(table(title, _COLUMNS, cells(comparisons), terminal.width))
    terminal.print()
