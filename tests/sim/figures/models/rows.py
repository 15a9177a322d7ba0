"""Rows of a table, and pictures: a measured quantity beside its formula."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from deploy.terminal.svg import COLOURS, axes, svg

TOLERANCE = 0.05


@attrs.frozen
class Row:
    """One quantity of one simulated tree. A row with a `cause` may differ by more than `TOLERANCE`; the page tells why."""

    case: str
    quantity: str
    measured: float
    formula: float
    cause: str = ""
    series: str = ""  # curve of the picture that the row belongs to
    x: float = 0.0  # place in the picture

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


@attrs.frozen
class Picture:
    """Curves of formulas, by name, over common x. Rows with the name of a curve are points beside it."""

    label_x: str
    label_y: str
    x: Sequence[float]
    curves: Mapping[str, Sequence[float]]
    is_logarithmic: bool = False  # in y; x always is

    def draw(self, rows: Iterable[Row]) -> str:
        """Return the picture as SVG."""
        figure, axis = axes(3.0)
        found = list(rows)
        for colour, (name, values) in zip(COLOURS, self.curves.items(), strict=False):
            points = [(row.x, row.measured) for row in found if row.series == name]
            axis.plot(self.x, values, color=colour, label=name, linewidth=1.2)
            axis.plot([x for x, _ in points], [y for _, y in points], "o", color=colour, markersize=4)
        scales = [(axis.xaxis, axis.set_xscale)] + [(axis.yaxis, axis.set_yscale)] * self.is_logarithmic
        for scaled, set_scale in scales:
            set_scale("log")
            scaled.set_major_formatter("{x:,.10g}")
        axis.set_xlabel(self.label_x)
        axis.set_ylabel(self.label_y)
        axis.legend(frameon=False, title="lines: formula, points: simulated", title_fontsize=8)
        return svg(figure)


def spaced(low: float, high: float, count: int = 40) -> list[float]:
    """Return numbers from `low` to `high` at equal ratios."""
    return [low * (high / low) ** (at / (count - 1)) for at in range(count)]
