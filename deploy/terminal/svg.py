"""Small pictures that matplotlib draws as SVG elements, so that a page needs no other file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from pgm.errors import UsageError

_WIDTH = 8.6  # inches
_BLUE, _ORANGE, _GREEN, _GREY = "#2b6cb0", "#dd6b20", "#2f855a", "#a0aec0"
COLOURS = (_BLUE, _ORANGE, _GREEN, _GREY)


def require_matplotlib(user: str = "pictures need", extra: str = "spark") -> None:
    """Raise `UsageError` with the remedy if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        remedy = f"pip install 'pgm-repair-network[{extra}]'"
        raise UsageError(f"{user} matplotlib, which is not installed", remedy=remedy) from None


def axes(height: float) -> tuple[Any, Any]:
    """Return a new figure and its axes, `height` inches high."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"})
    figure, axis = pyplot.subplots(figsize=(_WIDTH, height))
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def logarithmic(axis: Any, set_scale: Any) -> None:
    """Make an axis logarithmic, with plain numbers as labels."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    set_scale("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def svg(figure: Any) -> str:
    """Return a figure as an SVG element, and close the figure."""
    from matplotlib import pyplot

    figure.tight_layout()
    octets = io.StringIO()
    figure.savefig(octets, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    text = octets.getvalue()
    return text[text.index("<svg") :]


def _legend(axis: Any) -> None:
    """Draw the legend above the axes, where no bar or line is."""
    axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(COLOURS), borderaxespad=0)


def stacked_rows(names: Sequence[str], parts: Mapping[str, Sequence[float]], label: str) -> str:
    """Return horizontal stacked bars, one row per name, the first on top."""
    figure, axis = axes(0.9 + 0.24 * len(names))
    left = [0.0] * len(names)
    for colour, (part, values) in zip(COLOURS, parts.items(), strict=False):
        axis.barh(range(len(names)), values, left=left, color=colour, label=part)
        left = [start + value for start, value in zip(left, values, strict=True)]
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlabel(label)
    _legend(axis)
    return svg(figure)


def bars(names: Sequence[str], groups: Mapping[str, Sequence[float]], label: str) -> str:
    """Return groups of vertical bars, one group per name."""
    figure, axis = axes(3.0)
    width = 0.8 / len(groups)
    for number, (colour, (group, values)) in enumerate(zip(COLOURS, groups.items(), strict=False)):
        positions = [at + (number - (len(groups) - 1) / 2) * width for at in range(len(names))]
        group_bars = axis.bar(positions, values, width, color=colour, label=group)
        if len(names) * len(groups) <= 24:
            axis.bar_label(group_bars, fmt="{:,.4g}", fontsize=7)
    axis.set_xticks(
        range(len(names)), names, rotation=30 if len(names) > 6 else 0, ha="right" if len(names) > 6 else "center"
    )
    axis.set_ylabel(label)
    _legend(axis)
    return svg(figure)


def histogram(values: Sequence[int], counts: Sequence[int], x: str, y: str) -> str:
    """Return bars with the count of each value, on a logarithmic scale."""
    figure, axis = axes(2.6)
    axis.bar(values, counts, color=_BLUE)
    axis.set_yscale("log")
    axis.set_ylim(bottom=0.5)  # a bar of one would have no height above 1
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    return svg(figure)


def lines(x: Sequence[float], series: Mapping[str, Sequence[float]], label_x: str, label_y: str) -> str:
    """Return lines over a common x."""
    figure, axis = axes(2.8)
    for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
        axis.plot(x, values, color=colour, label=name, marker="o" if len(x) < 30 else None, markersize=3)
    axis.set_xlabel(label_x)
    axis.set_ylabel(label_y)
    axis.set_ylim(bottom=0)
    _legend(axis)
    return svg(figure)
