"""Page of `pgm report`: numbers as people write them, and nothing left out without a word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from deploy.bench.plot import plot
from deploy.monitor.columns import COLUMNS
from deploy.report.command import headline
from deploy.report.page import milliseconds, page, percent
from deploy.terminal.svg import histogram, stacked_rows
from tests.net.support.lab import ROOT


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2110.4, "2,110 ms"),
        (211.04, "211 ms"),
        (2.1104, "2.11 ms"),
        (0.0123, "0.0123 ms"),
        (2.0, "2 ms"),
        (0.0, "0 ms"),
    ],
)
def test_milliseconds_have_no_exponent(value: float, text: str) -> None:
    assert milliseconds(value) == text


def test_percent_of_a_small_share_is_plain() -> None:
    assert (percent(0.5), percent(0.0000123), percent(None)) == ("50 %", "0.00123 %", "-")


def summary(**more: Any) -> dict[str, Any]:
    names = ("links", "shares", "repairs", "duplicates", "timers", "excess_naks", "traffic", "timeline", "left_out")
    span = {"begins": "2026-01-01T00:00:00+00:00", "ends": "2026-01-01T00:00:10+00:00", "nodes": 1, "events": 2}
    return {**{name: [] for name in names}, "repairs_of_all": {}, "burst_lengths": [], **span, **more}


def test_bursts_that_are_not_drawn_are_told() -> None:
    longer = {"bursts": 3, "packets": 1300, "longest": 900}
    text = page(summary(burst_lengths=[{"length": 1, "bursts": 9}], longer_bursts=longer), "Losses")
    assert "Longer bursts are not drawn: 3 with 1,300 packets, the longest with 900." in text


def bar_heights(picture: str) -> list[float]:
    """Return the heights of the bars, which are closed rectangles of one colour."""
    paths = re.findall(r'<path d="([^"]+)"[^>]*style="fill: #2b6cb0"', picture)
    rows = [[float(number) for number in re.findall(r"[-0-9.]+", path)][1::2] for path in paths]
    return [max(one) - min(one) for one in rows]


def test_burst_that_came_once_has_a_bar() -> None:
    heights = bar_heights(histogram([1, 6], [900, 1], "packets lost in a row", "bursts"))
    assert len(heights) == 2
    assert min(heights) > 3


def heights_of_points(part: str) -> list[float]:
    return [float(y) for y in re.findall(r"[ML] [-0-9.]+ ([-0-9.]+)", part)]


def test_legend_lies_above_the_bars() -> None:
    picture = stacked_rows(["a", "b"], {"one by one": [1.0, 2.0], "in bursts": [3.0, 9.0]}, "%")
    before, _, legend = picture.partition('id="legend_1"')
    axes = before[before.index('id="patch_2"') :].partition("</g>")[0]
    assert max(heights_of_points(legend)) <= min(heights_of_points(axes)) + 1


def test_headline_names_the_folder_and_the_one_above() -> None:
    assert headline(Path("/srv/tree/telemetry")) == "Losses and repairs in tree/telemetry"


def test_bench_has_points_on_a_logarithmic_axis(tmp_path: Path) -> None:
    rows = [{"title": "pgm", "size": size, "mb_per_s": 10.0**size} for size in (1, 2, 3)]
    plot(file := tmp_path / "bench.svg", {"throughput": rows}, {"cpu": "x", "cpus": 2, "kernel": "6"})
    assert file.read_text().count("<use") > 3
    assert "fill: #" in file.read_text()


def test_monitor_shows_losses_before_rates_and_the_last_event_whole() -> None:
    shown = list(COLUMNS)
    assert shown.index("lost") < shown.index("in")
    assert shown.index("missing") < shown.index("in")
    assert "text-overflow" not in (ROOT / "deploy/templates/monitor.css").read_text()
