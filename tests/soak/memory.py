"""Memory of processes over hours: samples of bounded number, and a fit that single jumps do not bend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import numpy as np

_MOST_SAMPLES = 2048
_MOST_FITTED = 400  # the fit takes all pairs
_PAGE = 4096
MB = 1e6
HOUR_S = 3600.0


@attrs.define
class Series:
    """Samples of one quantity over time. A full series drops every other sample, and takes fewer from then on."""

    times: list[float] = attrs.field(factory=list)  # seconds
    values: list[float] = attrs.field(factory=list)
    _stride: int = 1
    _seen: int = 0

    def add(self, time_s: float, value: float) -> None:
        """Add a sample."""
        if self._seen % self._stride == 0:
            self.times.append(time_s)
            self.values.append(value)
            if len(self.times) >= _MOST_SAMPLES:
                del self.times[1::2], self.values[1::2]
                self._stride *= 2
        self._seen += 1

    def since(self, time_s: float) -> Series:
        """Return the samples from a time on."""
        kept = [pair for pair in zip(self.times, self.values, strict=True) if pair[0] >= time_s]
        return Series([time for time, _ in kept], [value for _, value in kept])

    @property
    def span_s(self) -> float:
        """Return the time from the first to the last sample."""
        return self.times[-1] - self.times[0] if self.times else 0.0


def slope(series: Series) -> float:
    """Return the growth in units an hour: the median of the slopes of all pairs (Theil and Sen)."""
    count = len(series.times)
    picked = np.unique(np.linspace(0, count - 1, min(count, _MOST_FITTED)).astype(int))
    times, values = np.array(series.times)[picked], np.array(series.values)[picked]
    first, second = np.triu_indices(len(picked), 1)
    apart = times[second] - times[first]
    usable = apart > 0
    if not usable.any():
        return 0.0
    return float(np.median((values[second] - values[first])[usable] / apart[usable])) * HOUR_S


def _parents() -> dict[int, list[int]]:
    """Return the children of each process of this machine."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            found.setdefault(parent, []).append(int(entry.name))
    return found


def _name(pid: int) -> str:
    """Return the part that a process plays below another."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    return "jvm" if b"java" in command.split(b" ", 1)[0] else "worker"


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def resident(pids: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    """Yield names and resident octets of processes. Descendants count by their kind, as in `query jvm`."""
    children = _parents()
    for name, pid in pids.items():
        sums: dict[str, float] = {}
        waiting = [(pid, name)]
        while waiting:
            one, label = waiting.pop()
            try:
                sums[label] = sums.get(label, 0.0) + _rss(one)
                waiting += [(child, f"{name} {_name(child)}") for child in children.get(one, ())]
            except OSError:  # the process has just ended
                continue
        yield from sums.items()
