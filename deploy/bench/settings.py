"""Options of one `pgm bench` run, with the outputs for progress and rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from deploy.bench.contender import Contender, Job
from deploy.bench.contenders.registry import select_contenders
from deploy.bench.place import ETHERNET_MTU, JUMBO_MTU, BenchNetwork
from pgm.parameters import Parameters

Row = dict[str, Any]

SIZES = (70, 1400, 8192, 1_000_000)
_LARGEST_ON_ETHERNET = 1472 - 24  # largest message, in octets, that fits one packet with an MTU of 1500


@attrs.frozen
class ScaleSettings:
    """Numbers of receivers in scale, as processes and simulated."""

    receivers: tuple[int, ...] = (1, 2, 4, 8)
    simulated: tuple[int, ...] = (100, 1000, 10_000)


@attrs.frozen
class FilesSettings:
    """Options of files. Sizes are in octets, rates in octets a second."""

    sizes: tuple[int, ...] = (10**9,)
    receivers: int = 4
    uftp_rates: tuple[int, ...] = (10**8, 2 * 10**8, 4 * 10**8)


@attrs.frozen
class BenchSettings:
    """Options of the command."""

    seconds: float = 5.0
    runs: int = 3
    sizes: tuple[int, ...] = SIZES
    contenders: tuple[str, ...] = ()
    path: str = "auto"
    precision: float = 0.05
    rcvbuf: int = Parameters().so_rcvbuf
    window: int = 256 << 20
    loss: float = 0.01
    burst: int = 10_000  # packets
    scale: ScaleSettings = ScaleSettings()
    files: FilesSettings = FilesSettings()
    rates: tuple[int, ...] = (125_000, 12_500_000, 125_000_000, 500_000_000)  # octets a second
    folder: Path = Path("/tmp")  # for files of this run
    say: Callable[[str], None] = print  # prints a line of progress
    emit: Callable[[Row], None] = lambda _row: None  # prints a complete row

    def contenders_of(self, benchmark: str) -> list[Contender]:
        """Return the contenders of a benchmark. Raises `UsageError`."""
        return select_contenders(benchmark, self.contenders)

    def job(self, place: BenchNetwork, size: int, **more: Any) -> Job:
        """Return a job with the buffers and the window of this run."""
        return Job(
            place, size, seconds=self.seconds, rcvbuf=self.rcvbuf, sndbuf=self.rcvbuf, window=self.window, **more
        )


def row_head(benchmark: str, contender: Contender, place: BenchNetwork, size: int) -> Row:
    """Return the keys that name a row."""
    names = {"benchmark": benchmark, "contender": contender.name, "title": contender.title, "size": size}
    return names | {"path": place.kind, "mtu": place.mtu}


def mtu_of(size: int) -> int:
    """Return the MTU of the path for messages of `size` octets."""
    return ETHERNET_MTU if size <= _LARGEST_ON_ETHERNET else JUMBO_MTU


def allowed_buffer(asked: int) -> int:
    """Return the socket buffer that any process gets, at most `asked`. All contenders get the same buffer."""
    limits = [int(Path(f"/proc/sys/net/core/{name}").read_text()) for name in ("rmem_max", "wmem_max")]
    return min(asked, *limits)
