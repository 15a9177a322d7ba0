"""`pgm bench throughput`: lossless maximum of each contender by message size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from deploy.bench.contender import Contender, Job
from deploy.bench.limits import limited_by, receiver_share, sender_share
from deploy.bench.place import open_place
from deploy.bench.search import Maximum, RateSearch
from deploy.bench.settings import BenchSettings, Row, mtu_of, row_head
from deploy.bench.trial import TrialResult, transfer
from deploy.bench.turns import Searcher, run_interleaved
from pgm.errors import ProcessError


async def throughput(settings: BenchSettings) -> list[Row]:
    """Measure all contenders at all sizes; return their rows."""
    rows = []
    for size in settings.sizes:
        with open_place(settings.path, mtu_of(size)) as place:
            rows += await contended("throughput", settings.job(place, size), settings)
    return rows


async def contended(benchmark: str, job: Job, settings: BenchSettings) -> list[Row]:
    """Measure all contenders of a benchmark interleaved; return their rows."""
    contenders = settings.contenders_of(benchmark)
    rows = await run_interleaved([partial(_row, benchmark, contender, job, settings) for contender in contenders])
    for row in rows:
        settings.emit(row)
    return rows


async def _row(benchmark: str, contender: Contender, job: Job, settings: BenchSettings, searcher: Searcher) -> Row:
    """Return the row of one contender. The row has the lossless maximum, or the reason of a failure."""
    row = row_head(benchmark, contender, job.place, job.size)
    why_not = contender.why_not(job)
    if why_not:
        return row | {"why_not": why_not}
    try:
        maximum = await lossless_maximum(contender, job, settings, searcher)
    except ProcessError as error:
        return row | {"why_not": error.message}
    return row | figures(contender, maximum) | {"limited_by": limited_by(contender, maximum)}


async def lossless_maximum(
    contender: Contender,
    job: Job,
    settings: BenchSettings,
    searcher: Searcher,
    prepare: Callable[[], None] = lambda: None,
    title: str = "",
) -> Maximum:
    """Search the lossless maximum and report progress; `prepare` precedes each trial. Raises `ProcessError`."""

    async def run(rate: float) -> TrialResult:
        async with searcher.trial():
            prepare()
            outcome = await transfer(contender, attrs.evolve(job, rate=rate))
        requested = f"{rate * job.size / 1e6:,.0f} MB/s" if rate else "flat out"
        verdict = outcome.flaw or "lossless"
        settings.say(
            f"{contender.title}, {title or f'{job.size:,} octets'}, {requested}: {outcome.mb_per_s:,.1f} MB/s, {verdict}"
        )
        return outcome

    return await RateSearch(run, settings.runs, settings.precision, searcher.on_rate_found).maximum()


def figures(contender: Contender, maximum: Maximum) -> Row:
    """Return the figures measured at the lossless maximum."""
    best = maximum.median
    if best is None:
        nothing = {"messages_per_s": 0, "mb_per_s": 0.0, "packets_per_s": 0, "cpu_s": 0.0, "lost": 0}
        return nothing | {"runs_mb_per_s": [], "stumbles": 0, "trials": maximum.trials}
    packets = best.packets
    row: Row = {
        "messages_per_s": round(best.messages_per_s),
        "mb_per_s": round(best.mb_per_s, 2),
        "packets_per_s": round(packets / best.seconds) if packets and best.seconds else None,
        "lost": best.lost,
        "cpu_s": round(best.sender.cpu_s + best.receiver.cpu_s, 3),
        "cpu_share": {"sender": round(sender_share(best), 3), "receiver": round(receiver_share(best), 3)},
        "peak_bytes": {"sender": best.sender.peak_octets, "receiver": best.receiver.peak_octets},
        "repaired": best.repaired,
        "kernel_drops": best.kernel_drops,
        "runs_mb_per_s": [round(run.mb_per_s, 2) for run in maximum.runs],
        "stumbles": maximum.stumbles,
        "trials": maximum.trials,
    }
    if packets and not contender.is_busy_poll:
        per_packet = {"sender": best.sender.cpu_s / packets, "receiver": best.receiver.cpu_s / packets}
        row["cpu_us_per_packet"] = {role: round(value * 1e6, 3) for role, value in per_packet.items()}
    window = best.sender.report
    if window.get("window_octets"):
        kept = window["window_packets"] * window["octets"] / window["packets"]
        row["window_overhead"] = round(window["window_octets"] / kept - 1, 4) if kept else None
    return row
