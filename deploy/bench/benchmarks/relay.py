"""`pgm bench relay`: cost of an element in the path, in rate and in CPU time."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import attrs

from deploy.bench.benchmarks.throughput import figures
from deploy.bench.contender import Contender
from deploy.bench.contenders.ours import OURS_TRIO
from deploy.bench.limits import limited_by
from deploy.bench.peer import Peer, running
from deploy.bench.place import ETHERNET_MTU, BenchNetwork, open_place
from deploy.bench.search import Maximum, RateSearch
from deploy.bench.settings import BenchSettings, Row
from deploy.bench.tree import chain
from deploy.bench.trial import TrialResult, environment, transfer
from deploy.bench.turns import Searcher, run_interleaved
from pgm.errors import ProcessError

SIZE = 1400
_START_S = 60.0
_SHARE = 0.8  # of the rate that the CPU time of all processes would allow
# Highest CPU time of an element for a packet, as a multiple of other processes' CPU time.
_MOST_CPU = {"aggregator": {"cpu_of_ends": 1.2}, "repairer": {"cpu_of_receiver": 1.3}}
_MEMORY = Path("/dev/shm")


@attrs.frozen
class _Layout:
    """Element between the ends, if `role` names one, and whether its cache lies in a file."""

    role: str
    has_file: bool = False

    @property
    def title(self) -> str:
        """Return the path of the packets."""
        path = f"through a relaying {self.role}" if self.role else "direct"
        return f"{path} with a cache file" if self.has_file else path


_LAYOUTS = (_Layout(""), _Layout("aggregator"), _Layout("repairer"), _Layout("repairer", has_file=True))


@contextmanager
def _cache_folder(layout: _Layout, settings: BenchSettings) -> Iterator[str]:
    """Yield a folder for the cache file, in memory if possible; an empty one without a file."""
    if not layout.has_file:
        yield ""
        return
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else settings.folder) as folder:
        yield folder


@asynccontextmanager
async def running_relay(place: BenchNetwork, role: str, file: str, folder: str) -> AsyncIterator[Peer | None]:
    """Run the element between the ends, if `role` names one."""
    if not role:
        yield None
        return
    command = [sys.executable, "-m", "deploy.bench.peers.node", file, "relay"]
    async with running(role, place.wrap(1, command), environment() | {"PGM_RUNTIME_DIR": folder}) as peer:
        await peer.until("ready", _START_S)
        yield peer


@attrs.frozen
class _RelayMaximum:
    """Lossless maximum with an element in the path, and the element's resources."""

    maximum: Maximum
    row: Row
    relay_cpu_s: dict[int, float]  # seconds of CPU by id of a trial's result
    peak_octets: int


async def relay(settings: BenchSettings) -> list[Row]:
    """Measure direct, through an aggregator, and through a repairer with and without a cache file, interleaved."""
    contender = OURS_TRIO
    results = await run_interleaved([partial(_measure, contender, layout, settings) for layout in _LAYOUTS])
    rows: list[Row] = []
    for layout, result in zip(_LAYOUTS, results, strict=True):
        role = layout.role
        row: Row = {"benchmark": "relay", "contender": contender.name, "title": contender.title, "size": SIZE}
        row["layout"] = layout.title
        row |= (
            {"why_not": result}
            if isinstance(result, str)
            else result.row | _costs(result, role, rows[0] if rows else None)
        )
        rows.append(row)
        settings.emit(row)
    return rows


async def _measure(
    contender: Contender, layout: _Layout, settings: BenchSettings, searcher: Searcher
) -> _RelayMaximum | str:
    """Return the measured maximum, or the reason of a failure."""
    hosts = 3 if layout.role else 2
    try:
        with open_place(settings.path, ETHERNET_MTU, hosts) as place, _cache_folder(layout, settings) as cache:
            return await _search(contender, layout, place, settings, searcher, cache)
    except ProcessError as error:
        return error.message


async def _search(
    contender: Contender,
    layout: _Layout,
    place: BenchNetwork,
    settings: BenchSettings,
    searcher: Searcher,
    cache: str,
) -> _RelayMaximum:
    role = layout.role
    file = chain(settings.folder, place, role, settings.rcvbuf, cache)
    job = settings.job(place, SIZE, file=str(file))
    relay_cpu_s: dict[int, float] = {}
    kept: list[TrialResult] = []  # keeps results alive, so that ids stay unique
    peak = 0

    async def run(rate: float) -> TrialResult:
        nonlocal peak
        async with searcher.trial(), running_relay(place, role, str(file), str(settings.folder)) as element:
            before = element.usage.cpu_s if element else 0.0
            outcome = await transfer(contender, attrs.evolve(job, rate=rate))
            if element is not None:
                usage = element.usage
                relay_cpu_s[id(outcome)], peak = usage.cpu_s - before, usage.peak_octets
        requested = f"{rate * SIZE / 1e6:,.0f} MB/s" if rate else "flat out"
        summary = f"{contender.title}, {layout.title}, {requested}"
        settings.say(f"{summary}: {outcome.mb_per_s:,.1f} MB/s, {outcome.flaw or 'lossless'}")
        kept.append(outcome)
        return outcome

    maximum = await RateSearch(run, settings.runs, settings.precision, searcher.on_rate_found).maximum()
    row = figures(contender, maximum) | {"path": place.kind, "mtu": place.mtu}
    row["limited_by"] = limited_by(contender, maximum)
    return _RelayMaximum(maximum, row, relay_cpu_s, peak)


def _costs(result: _RelayMaximum, role: str, direct: Row | None) -> Row:
    best = result.maximum.median
    if best is None:
        return {}
    cpu = {"source": best.sender.cpu_s, "receiver": best.receiver.cpu_s}
    memory = {"source": best.sender.peak_octets, "receiver": best.receiver.peak_octets}
    if role:
        cpu[role], memory[role] = result.relay_cpu_s[id(best)], result.peak_octets
    row: Row = {
        "cpu_s": round(sum(cpu.values()), 3),
        "cpu_us_per_packet": {name: round(value / best.packets * 1e6, 3) for name, value in cpu.items()},
        "peak_bytes": memory,
    }
    if role and direct is not None and direct.get("mb_per_s"):
        ends = cpu["source"] + cpu["receiver"]
        row["of_direct"] = round(best.mb_per_s / direct["mb_per_s"], 4)
        row["wanted"] = round(_SHARE * ends / sum(cpu.values()), 4)
        # Another bound, from the ends' CPU time for a packet without an element. The direct rate follows from that CPU
        # time.
        alone_us, all_us = (sum(layout_row["cpu_us_per_packet"].values()) for layout_row in (direct, row))
        row["cpu_allows"] = round(_SHARE * alone_us / all_us, 4)
        row["cpu_of_ends"] = round(cpu[role] / ends, 3)
        row["cpu_of_receiver"] = round(cpu[role] / cpu["receiver"], 3)
        row["cpu_limit"] = _MOST_CPU[role]
    return row
