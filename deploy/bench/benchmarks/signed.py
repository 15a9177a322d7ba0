"""`pgm bench signed`: cost of signed and of sealed streams, by turns with the same stream in the clear."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import attrs

from deploy.bench.benchmarks.latency import SIZE as TRIP_SIZE
from deploy.bench.benchmarks.latency import trips
from deploy.bench.benchmarks.relay import running_relay
from deploy.bench.benchmarks.signed_tree import PROTECTIONS, protected_both_ways, protected_chain
from deploy.bench.benchmarks.throughput import figures, lossless_maximum
from deploy.bench.contender import Job
from deploy.bench.contenders.ours import OURS_MESSAGES, OURS_TRIO
from deploy.bench.limits import limited_by
from deploy.bench.place import ETHERNET_MTU, BenchNetwork, open_place
from deploy.bench.settings import BenchSettings, Row
from deploy.bench.trial import transfer
from deploy.bench.turns import Searcher, run_interleaved
from pgm.errors import ProcessError

_SIZE = 1400  # octets
_SMALL = 70
_ROLES = ("", "aggregator", "repairer")
_SHARE = 0.3  # of the maximum in the clear, at which CPU time is compared
_Figures = Row | str  # of one protection, or the reason of a failure
_Measure = Callable[[str, Searcher], Awaitable[_Figures]]


async def signed(settings: BenchSettings) -> list[Row]:
    """Measure throughput, round trips, and CPU through elements; return the rows, of each protection in turn."""
    with open_place(settings.path, ETHERNET_MTU) as place:
        rows = await _compared(f"{_SIZE:,} octets", partial(_maximum, place, _SIZE, settings), settings)
        rate = rows[0].get("messages_per_s", 0) * _SHARE
        rows += await _compared(f"{_SMALL} octets in batches", partial(_maximum, place, _SMALL, settings), settings)
        rows += await _compared("round trip", partial(_round_trip, place, settings), settings)
    for role in _ROLES if rate else ():
        part = f"CPU through a relaying {role}" if role else "CPU"
        with open_place(settings.path, ETHERNET_MTU, 3 if role else 2) as place:
            measure = partial(_cpu, place, role, rate, settings)
            rows += await _compared(part, measure, settings)
    return rows


async def _compared(part: str, measure: _Measure, settings: BenchSettings) -> list[Row]:
    """Measure each protection by turns; return the rows with their ratios to the stream in the clear."""
    results = await run_interleaved([partial(measure, protection) for protection in PROTECTIONS])
    rows: list[Row] = []
    for protection, result in zip(PROTECTIONS, results, strict=True):
        row: Row = {"benchmark": "signed", "contender": protection, "title": f"pgm, {protection}", "part": part}
        row |= {"why_not": result} if isinstance(result, str) else result
        rows.append(row | ratios_to(rows[0] if rows else row, row))
        settings.emit(rows[-1])
    return rows


def ratios_to(clear: Row, row: Row) -> Row:
    """Return a row's rate and CPU time divided by those of the stream in the clear."""
    ratios: dict[str, Any] = {}
    if row.get("mb_per_s") and clear.get("mb_per_s"):
        ratios["of_clear"] = round(row["mb_per_s"] / clear["mb_per_s"], 3)
    if (cpu := row.get("cpu_ms_per_mb")) and (of_clear := clear.get("cpu_ms_per_mb")):
        ratios["cpu_of_clear"] = {role: round(cpu[role] / of_clear[role], 3) for role in cpu if of_clear.get(role)}
    return ratios


def _job(place: BenchNetwork, size: int, role: str, protection: str, settings: BenchSettings) -> Job:
    framing = "batch" if size == _SMALL else "plain"
    return settings.job(place, size, file=str(protected_chain(place, role, protection, framing, settings)))


async def _maximum(
    place: BenchNetwork, size: int, settings: BenchSettings, protection: str, searcher: Searcher
) -> _Figures:
    """Return the lossless maximum of one protection."""
    contender = OURS_MESSAGES if size == _SMALL else OURS_TRIO
    job = _job(place, size, "", protection, settings)
    try:
        maximum = await lossless_maximum(contender, job, settings, searcher, title=f"{size:,} octets, {protection}")
    except ProcessError as error:
        return error.message
    row = figures(contender, maximum) | {"size": size, "limited_by": limited_by(contender, maximum)}
    best = maximum.median
    if best is not None:
        spent = {"source": best.sender.cpu_s, "receiver": best.receiver.cpu_s}
        row["cpu_ms_per_mb"] = _per_mb(spent, best.received * size)
    return row


def _per_mb(cpu_s: dict[str, float], octets: int) -> dict[str, float]:
    """Return milliseconds of CPU a megabyte of messages, by role."""
    return {role: round(seconds * 1e9 / octets, 3) for role, seconds in cpu_s.items()}


async def _round_trip(place: BenchNetwork, settings: BenchSettings, protection: str, searcher: Searcher) -> _Figures:
    """Return the median round trip of one message at a time."""
    job = settings.job(place, TRIP_SIZE, file=str(protected_both_ways(place, protection, settings)))
    runs = []
    try:
        for _ in range(settings.runs):
            async with searcher.trial():
                runs.append(await trips(OURS_TRIO, job))
            settings.say(f"round trip, {protection}: mean {runs[-1]['mean_us']} us, p99 {runs[-1]['p99_us']} us")
    except ProcessError as error:
        return error.message
    keys = ("mean_us", "p50_us", "p99_us")
    return {key: round(statistics.median(run[key] for run in runs), 1) for key in keys} | {"size": TRIP_SIZE}


async def _cpu(
    place: BenchNetwork, role: str, rate: float, settings: BenchSettings, protection: str, searcher: Searcher
) -> _Figures:
    """Return the CPU time of each process at a set rate."""
    job = attrs.evolve(_job(place, _SIZE, role, protection, settings), rate=rate)
    spent: list[dict[str, float]] = []
    lost = 0
    try:
        for _ in range(settings.runs):
            async with searcher.trial(), running_relay(place, role, job.file, str(settings.folder)) as element:
                before = element.usage.cpu_s if element else 0.0
                outcome = await transfer(OURS_TRIO, job)
                cpu_s = {"source": outcome.sender.cpu_s, "receiver": outcome.receiver.cpu_s}
                if element is not None:
                    cpu_s[role] = element.usage.cpu_s - before
            spent.append(_per_mb(cpu_s, outcome.received * _SIZE))
            lost += outcome.lost
            settings.say(
                f"{role or 'direct'}, {protection}: {_spelled(spent[-1:])} ms of CPU a MB, {outcome.lost:,} lost"
            )
    except (ProcessError, ZeroDivisionError) as error:
        return str(error)
    medians = {name: round(statistics.median(one[name] for one in spent), 3) for name in spent[0]}
    return {
        "size": _SIZE,
        "rate": f"{rate * _SIZE / 1e6:,.0f} MB/s",
        "lost": lost,
        "cpu_ms_per_mb": medians,
        "processors": processors_at(rate * _SIZE, medians),
    }


def processors_at(octets_per_s: float, cpu_ms_per_mb: dict[str, float]) -> float:
    """Return how many processors all roles fill together. More than there are make ratios of CPU times useless."""
    return round(sum(cpu_ms_per_mb.values()) * octets_per_s / 1e9, 2)


def _spelled(spent: Sequence[dict[str, float]]) -> str:
    return ", ".join(f"{role} {value:.2f}" for one in spent for role, value in one.items())
