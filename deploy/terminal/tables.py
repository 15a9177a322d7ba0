"""Tables for terminals of any width: what does not fit is left out as a whole column, a number is never cut off."""

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

_WIDTH = 120  # where there is no terminal to ask
_GAP = 2  # columns of the terminal between two columns of a table


@attrs.frozen
class TableColumn:
    """A column: its heading, and when it is left out for want of room: the highest rank first, rank 0 never."""

    heading: str
    rank: int = 0


def console(file: IO[str] | None = None) -> Console:
    """A console on a file, standard output by default; where that is no terminal, wide enough for everything."""
    file = sys.stdout if file is None else file
    return Console(file=file, highlight=False, soft_wrap=False, width=None if file.isatty() else _WIDTH)


def table(title: str, columns: Sequence[TableColumn], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    """A table at most `width` wide. The first column and bars stand on the left, numbers on the right."""
    widths = {at: _least_width(column, [row[at] for row in rows]) for at, column in enumerate(columns)}
    while sum(widths.values()) + _GAP * (len(widths) - 1) > width:
        least = max(widths, key=lambda at: columns[at].rank)
        if not columns[least].rank:
            break
        del widths[least]
    _widen(widths, columns, width - _GAP * (len(widths) - 1))
    # No lines between the columns, and headings of several lines: that is what makes 80 characters enough.
    style = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "show_edge": False}
    made = Table(title=title, pad_edge=False, padding=(0, _GAP - 1, 0, 0), **style)  # type: ignore[arg-type]
    for at, exact in widths.items():
        is_left = at == 0 or not columns[at].heading
        made.add_column(columns[at].heading, justify="left" if is_left else "right", vertical="bottom", width=exact)
    for row in rows:
        made.add_row(*(row[at] for at in widths))
    return made


def _least_width(column: TableColumn, cells: Sequence[Cell]) -> int:
    """The least width that breaks no word of the heading and no cell."""
    words = [len(word) for word in column.heading.split()]
    return max([0, *words, *(len(cell) if isinstance(cell, str) else cell.width or 0 for cell in cells)])


def _widen(widths: dict[int, int], columns: Sequence[TableColumn], room: int) -> None:
    """Give headings a single line where there is room."""
    for at, width in widths.items():
        more = len(columns[at].heading) - width
        if 0 < more <= room - sum(widths.values()):
            widths[at] += more
