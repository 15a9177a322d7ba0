"""Tables for terminals of any width. A narrow table leaves out whole columns, so that no number is cut off."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, TypeAlias

import attrs
from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

Cell: TypeAlias = str | ProgressBar

_WIDTH = 120  # characters, if the output is no terminal
_GAP = 2  # characters between two columns of a table


@attrs.frozen
class TableColumn:
    """Column of a table. A narrow table leaves out the highest `rank` first, and never rank 0."""

    heading: str
    rank: int = 0


def console(file: IO[str] | None = None) -> Console:
    """Return a console on a file, standard output by default. It is 120 characters wide if the file is no terminal."""
    file = sys.stdout if file is None else file
    return Console(file=file, highlight=False, soft_wrap=False, width=None if file.isatty() else _WIDTH)


def table(title: str, columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    """Return a table, at most `width` characters wide unless columns of rank 0 need more.

    The first column and bars are aligned left, numbers right.
    """
    widths = {at: _least_width(column, [row[at] for row in rows]) for at, column in enumerate(columns)}
    while sum(widths.values()) + _GAP * (len(widths) - 1) > width:
        least = max(widths, key=lambda at: columns[at].rank)
        if not columns[least].rank:
            break
        del widths[least]
    _widen(widths, columns, width - _GAP * (len(widths) - 1))
    # Without lines between the columns, and with headings of several lines, 80 characters are enough.
    style = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "show_edge": False}
    rich_table = Table(title=title, pad_edge=False, padding=(0, _GAP - 1, 0, 0), **style)  # type: ignore[arg-type]
    for at, exact in widths.items():
        is_left = at == 0 or not columns[at].heading
        rich_table.add_column(
            columns[at].heading, justify="left" if is_left else "right", vertical="bottom", width=exact
        )
    for row in rows:
        rich_table.add_row(*(row[at] for at in widths))
    return rich_table


def _least_width(column: TableColumn, cells: Sequence[Cell]) -> int:
    """Return the least width in characters that breaks no word of the heading and no cell."""
    words = [len(word) for word in column.heading.split()]
    return max([0, *words, *(len(cell) if isinstance(cell, str) else cell.width or 0 for cell in cells)])


def _widen(widths: dict[int, int], columns: Sequence[TableColumn], room: int) -> None:
    """Widen columns in place, within `room` characters, so that their headings fit on one line."""
    for at, width in widths.items():
        more = len(columns[at].heading) - width
        if 0 < more <= room - sum(widths.values()):
            widths[at] += more
