"""Rows of a table: a measured quantity beside its formula."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

TOLERANCE = 0.05


@attrs.frozen
class Row:
    """One quantity of one simulated tree. A row with a `cause` may differ by more than `TOLERANCE`; the page tells why."""

    case: str
    quantity: str
    measured: float
    formula: float
    cause: str = ""

    @property
    def error(self) -> float:
        """Return the difference from the formula, as a share of the formula."""
        return self.measured / self.formula - 1

    @property
    def holds(self) -> bool:
        """Return whether the row agrees with its formula, or has a cause."""
        return bool(self.cause) or abs(self.error) <= TOLERANCE


def table(head: str, rows: Iterable[Row]) -> str:
    """Return a table of the page. `head` names the first column, by which the table finds its place."""
    lines = [f"| {head} | quantity | simulated | formula | difference |", "|---|---|---|---|---|"]
    for row in rows:
        note = f" ({row.cause})" if row.cause else ""
        lines.append(
            f"| {row.case} | {row.quantity} | {row.measured:.4g} | {row.formula:.4g} | {row.error:+.1%}{note} |"
        )
    return "\n".join(lines) + "\n"
