"""Pictures of benchmark rows, drawn with matplotlib from the extra `bench`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.bench.settings import Row
from pgm.errors import UsageError

# benchmark -> key of the drawn figure, label of its axis, key that groups the bars
DRAWN = {
    "throughput": ("mb_per_s", "MB/s without loss", "size"),
    "latency": ("p50_us", "round trip, us (p50; the line ends at p99)", "size"),
    "repair": ("mb_per_s", "MB/s", "part"),
    "relay": ("mb_per_s", "MB/s without loss", "layout"),
    "messages": ("messages_per_s", "messages/s without loss", "mtu"),
    "pacing": ("sender_share", "the sender's share of a core", "rate"),
    "record": ("mb_per_s", "MB/s", "part"),
    "signed": ("mb_per_s", "MB/s without loss", "part"),
    "files": ("seconds", "seconds", "size"),
    "idle": ("cpu_share", "share of a core", "contender"),
    "scale": ("cpu_s", "CPU seconds", "receivers"),
}
# prefix of a title -> colour map
_FAMILIES = {"pgm": "Blues", "raw": "Greys", "openpgm": "Oranges", "zeromq": "Greens", "": "Purples"}
# Text in a vector picture stays text, and equal figures give an identical file.
_LOGARITHMIC = ("throughput", "latency")  # benchmarks whose values span several powers of ten
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "pgm bench"}
_BEHIND_TEXT = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
_WIDTH, _HEIGHT = 10.0, 4.5  # inches of one benchmark's picture
_FILLED = 0.8  # share of a group's width that bars fill


def require_kind(file: Path) -> None:
    """Raise `UsageError` if matplotlib cannot write the file's suffix."""
    from matplotlib.backend_bases import FigureCanvasBase

    if file.suffix.removeprefix(".").lower() not in FigureCanvasBase.get_supported_filetypes():
        raise UsageError(
            f"{file}: matplotlib cannot write this kind of file", remedy="use the suffix .png, .svg or .pdf"
        )


def plot(file: Path, rows: Mapping[str, Sequence[Row]], machine: Mapping[str, Any]) -> None:
    """Draw one picture for each benchmark, one below the other. Raises `OSError`."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update(_STYLE)
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(rows), 1, figsize=(_WIDTH, _HEIGHT * len(rows)), squeeze=False)
    for axis, (benchmark, members) in zip(axes[:, 0], rows.items(), strict=True):
        _bars(axis, benchmark, [row for row in members if "why_not" not in row])
    figure.suptitle(f"{machine['cpu']}, {machine['cpus']} processors, kernel {machine['kernel']}", fontsize=9)
    figure.tight_layout()
    try:
        figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
    finally:
        pyplot.close(figure)


def _bars(axis: Any, benchmark: str, rows: Sequence[Row]) -> None:
    from matplotlib.ticker import LogLocator

    key, name, by = DRAWN[benchmark]
    groups = list(dict.fromkeys(row[by] for row in rows))
    titles = list(dict.fromkeys(row["title"] for row in rows))
    width = _FILLED / max(1, len(titles))
    for number, title in enumerate(titles):
        row_of_group = {row[by]: row for row in rows if row["title"] == title}
        places = [
            at + (number - (len(titles) - 1) / 2) * width for at, group in enumerate(groups) if group in row_of_group
        ]
        values = [row_of_group[group].get(key) or 0 for group in groups if group in row_of_group]
        if benchmark in _LOGARITHMIC:  # the length of a bar means nothing there
            axis.plot(places, values, "o", label=title, color=_colour(title, titles), markersize=5)
            for place, value in zip(places, values, strict=True):
                where = {"textcoords": "offset points", "xytext": (6, -3), "ha": "left"}  # beside a line upwards
                axis.annotate(_value(value), (place, value), fontsize=7, bbox=_BEHIND_TEXT, **where)
        else:
            bars = axis.bar(places, values, width, label=title, color=_colour(title, titles))
            axis.bar_label(bars, [_value(value) for value in values], fontsize=7, padding=1, bbox=_BEHIND_TEXT)
        for place, group in zip(places, [group for group in groups if group in row_of_group], strict=True):
            if benchmark == "latency":
                axis.plot(
                    [place, place], [row_of_group[group]["p50_us"], row_of_group[group]["p99_us"]], color="black", lw=1
                )
    axis.set_xticks(range(len(groups)), [label(group, by) for group in groups])
    axis.set_ylabel(name)
    axis.set_title(benchmark, loc="left")
    if benchmark in _LOGARITHMIC:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.yaxis.set_minor_formatter("{x:,.0f}")
    if titles:
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _colour(title: str, titles: Sequence[str]) -> Any:
    """Return the title's shade of its family's colour map."""
    import matplotlib

    def is_of(prefix: str, other: str) -> bool:
        return other.lower().startswith(prefix)

    prefix = next(prefix for prefix in _FAMILIES if is_of(prefix, title))
    family = [
        other for other in titles if next(candidate for candidate in _FAMILIES if is_of(candidate, other)) == prefix
    ]
    shade = 0.85 - 0.5 * family.index(title) / max(1, len(family) - 1)
    return matplotlib.colormaps[_FAMILIES[prefix]](shade)


def _value(value: float) -> str:
    """Format a value with three significant digits, or as an integer from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def label(group: object, by: str) -> str:
    """Return the label below a group of bars; `by` is the key that groups the bars."""
    if not isinstance(group, int):
        return str(group)
    return f"{group:,} octets" if by in ("size", "mtu") else f"{group:,}"
