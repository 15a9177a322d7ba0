"""`pgm bench repair`: cost of random loss, a long burst and a very long gap."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs

from deploy.bench.benchmarks.gap import gap
from deploy.bench.benchmarks.latency import SIZE as ASKED_SIZE
from deploy.bench.benchmarks.latency import trips
from deploy.bench.benchmarks.throughput import figures, lossless_maximum
from deploy.bench.contender import Contender, Job
from deploy.bench.contenders.raw import RAW_GSO
from deploy.bench.limits import limited_by
from deploy.bench.place import ETHERNET_MTU, BenchNetwork, open_place
from deploy.bench.search import Maximum
from deploy.bench.settings import BenchSettings, Row, row_head
from deploy.bench.trial import TrialResult, pair, transfer
from deploy.bench.turns import Searcher, run_interleaved
from pgm.errors import ProcessError
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, format_fraction
from pgm.wire.formats import DATA_HEADER_OCTETS

SIZE = 1400
_QUIET_S = 10.0  # repairs of some contenders take seconds
_PATIENCE_S = 60.0
_BURST_RATE = 100_000  # packets a second during the burst: a rate without other loss
_PACKETS_AFTER_BURST = 2000  # packets after the burst, which reveal its loss
_TIMES = ("repair_p50_ms", "repair_p99_ms", "repairs_timed")
_TRIPS = 3  # round trips allowed for a repair
_TRIO_MS = 2.5  # two timer steps, for the back-off and for the hold, and the time to wake up
_TRIPS_S = 0.5  # duration of the round trip measurement
_OFFERED = 0.82  # of the lossless rate: the target is 0.8, and the last repair takes time too


@attrs.frozen
class _Loss:
    """Kind of random loss."""

    name: str
    is_trains: bool = False
    is_injected: bool = False  # dropped by the sender, out of its trains

    def prepare(self, job: Job, share: float) -> None:
        """Make the path drop `share` of the packets."""
        if not self.is_injected:
            job.place.lose(0, share, whole_trains=self.is_trains)

    def clear(self, job: Job) -> None:
        """Make the path lossless again."""
        if not self.is_injected:
            job.place.lose(0, 0.0, whole_trains=True)

    def job(self, job: Job, share: float) -> Job:
        """Return a job whose sender drops `share` of its packets, if the sender drops."""
        return attrs.evolve(job, loss=share) if self.is_injected else job


# For losses of single packets, the sender's device splits the trains, and the receiver reads packet by packet. Losses
# inside trains leave trains with gaps, as network cards that join packets do. The last kind drops whole trains.
_LOSSES = (_Loss("packets"), _Loss("packets inside trains", is_injected=True), _Loss("trains", is_trains=True))

# Octets of packets that a receive buffer holds, as a multiple of the requested buffer. The kernel doubles a requested
# buffer for overhead, and trains have little overhead.
_BUFFER_FACTOR = 1.8
# No limit on the rate in practice, and repairs may take all of it.
_UNLIMITED_REPAIRS: dict[str, int | float | str] = {"txw_max_rte": 125_000_000_000, "rdata_share": 1.0}


async def repair(settings: BenchSettings) -> list[Row]:
    """Measure all contenders with all kinds of loss; return a row for each part."""
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(row)
        settings.emit(row)

    with open_place(settings.path, ETHERNET_MTU) as place:
        contenders = [contender for contender in settings.contenders_of("repair") if contender is not RAW_GSO]
        why_not = place.why_no_losses()
        for contender in contenders:
            for row in await _losses(contender, place, settings, why_not):
                add(row)
        for contender in contenders:
            if contender.is_ours:
                add(await _flat_out(contender, place, settings))
                add(await _burst(contender, place, settings))
    add(gap())
    return rows


def _row(contender: Contender, part: str, place: BenchNetwork) -> Row:
    return row_head("repair", contender, place, SIZE) | {"part": part}


async def _losses(contender: Contender, place: BenchNetwork, settings: BenchSettings, why_not: str) -> list[Row]:
    """Return the lossless rate with each kind of loss, interleaved with the rate without loss on the same path."""
    job = settings.job(place, SIZE, quiet_s=_QUIET_S)
    of_place = _row(contender, "random loss", place)
    if contender.why_not(job):
        return [of_place | {"why_not": contender.why_not(job)}]
    rows = [of_place | {"why_not": why_not}] if why_not else []
    bound: Row = {}
    if contender.is_ours:
        try:
            bound = await _repair_bound(contender, job, settings)
        except ProcessError as error:
            return [of_place | {"why_not": error.message}]
    for kind in _LOSSES:
        if contender.is_ours if kind.is_injected else not why_not:
            row = _row(contender, f"{format_fraction(settings.loss)} of {kind.name}", place)
            try:
                rows.append(row | bound | await _loss_row(contender, kind, job, settings))
            except ProcessError as error:
                rows.append(row | {"why_not": error.message})
            finally:
                kind.clear(job)
    return rows


async def _loss_row(contender: Contender, kind: _Loss, job: Job, settings: BenchSettings) -> Row:
    """Return the row of one kind of loss. Raises `ProcessError`."""
    kind.prepare(job, 0.0)

    def search(share: float) -> Callable[[Searcher], Awaitable[Maximum]]:
        title = f"{format_fraction(share)} of {kind.name} lost" if share else f"no {kind.name} lost"
        lossy = kind.job(job, share)
        prepare = partial(kind.prepare, job, share)
        return partial(lossless_maximum, contender, lossy, settings, prepare=prepare, title=title)

    without, with_loss = await run_interleaved([search(0.0), search(settings.loss)])
    kind.prepare(job, settings.loss)
    held = await _held_rate(contender, kind.job(job, settings.loss), settings, without)
    return _goodput(contender, without, with_loss) | held


async def _repair_bound(contender: Contender, job: Job, settings: BenchSettings) -> Row:
    """Return the bound for the median repair time, from measured round trips.

    The bound adds three round trips, half of the longest back-off, both holds, and the cost of trio's timers.
    """
    report = await trips(contender, attrs.evolve(job, size=ASKED_SIZE, seconds=_TRIPS_S))
    round_trip_ms, timers = report["p50_us"] / 1e3, Parameters()
    waits_ms = (timers.nak_bo_ivl / 2 + timers.reorder_ivl + timers.rdata_hold_ivl) / MILLISECOND
    bound_ms = _TRIPS * round_trip_ms + waits_ms + (0.0 if contender.is_busy_poll else _TRIO_MS)
    settings.say(f"{contender.title}: the bound for the median repair time is {bound_ms:.1f} ms")
    return {"round_trip_ms": round(round_trip_ms, 3), "repair_wanted_ms": round(bound_ms, 3)}


async def _held_rate(contender: Contender, job: Job, settings: BenchSettings, without: Maximum) -> Row:
    """Return the share of the lossless rate that losses leave, and repair times.

    The runs send at a set share of the lossless rate. pgm runs once more with a clock on every repair, because the
    clock costs the receiver time.
    """
    lossless = without.median
    if lossless is None:
        return {}
    held_job = attrs.evolve(job, rate=_OFFERED * lossless.messages_per_s)
    runs = [await transfer(contender, held_job) for _ in range(settings.runs)]
    shares = [round(run.mb_per_s / lossless.mb_per_s, 4) for run in runs]
    timed = await transfer(contender, attrs.evolve(held_job, watch=True)) if contender.is_ours else runs[0]
    offered = statistics.median(run.offered_per_s for run in runs) / lossless.messages_per_s
    row = {"held_runs": shares, "held": statistics.median(shares), "held_lost": max(run.lost for run in runs)}
    row["held_offered"] = round(offered, 4)  # below the target if the sender itself was held up
    row |= {key: value for key, value in timed.receiver.report.items() if key in _TIMES}
    settings.say(
        f"{contender.title}: {row['held']:.2f} of the lossless rate received, {offered:.2f} sent,"
        f" {row['held_lost']:,} unrecovered, p50 of a repair {row.get('repair_p50_ms', '-')} ms"
    )
    return row


def _goodput(contender: Contender, without: Maximum, with_loss: Maximum) -> Row:
    """Return the highest rate without unrecovered loss, beside the lossless rate."""
    lossless, best = without.median, with_loss.median
    if lossless is None or best is None:
        return {"why_not": "no rate is free of unrecovered loss"}
    return figures(contender, with_loss) | {
        "lossless_mb_per_s": round(lossless.mb_per_s, 2),
        "goodput": round(best.mb_per_s / lossless.mb_per_s, 4),
        "limited_by": limited_by(contender, with_loss),
    }


async def _flat_out(contender: Contender, place: BenchNetwork, settings: BenchSettings) -> Row:
    """Measure a `flow = "yield"` source without a set rate; runs with losses inside trains alternate with others."""
    row = _row(contender, f"{format_fraction(settings.loss)} lost, told to run flat out", place)
    lossless_job = settings.job(place, SIZE, quiet_s=_QUIET_S, flow="yield")
    without: list[TrialResult] = []
    runs: list[TrialResult] = []
    try:
        for _ in range(settings.runs):
            without.append(await transfer(contender, lossless_job))
            runs.append(await transfer(contender, attrs.evolve(lossless_job, loss=settings.loss)))
    except ProcessError as error:
        return row | {"why_not": error.message}
    if not all(result.received for result in without):
        return row | {"why_not": "no message arrived, although the path is lossless"}
    goodput = _goodput(contender, *(Maximum(results, None, settings.runs) for results in (without, runs)))
    lost = max(result.lost for result in (*without, *runs))
    settings.say(
        f"{contender.title}, flat out: {goodput['mb_per_s']:,} MB/s with losses,"
        f" {goodput['lossless_mb_per_s']:,} without, {lost:,} unrecovered"
    )
    return row | goodput | {"lost": lost, "limited_by": "the source adapted its rate to the NAKs"}


async def _burst(contender: Contender, place: BenchNetwork, settings: BenchSettings) -> Row:
    """Measure the repair of `burst` packets that the receiver drops; the source times first NAK to last repair."""
    count = settings.burst
    row = _row(contender, f"burst of {count:,}", place)
    job = settings.job(
        place, SIZE, rate=_BURST_RATE, messages=count + _PACKETS_AFTER_BURST, watch=True, quiet_s=_QUIET_S
    )
    # Outstanding requests fill the receiver's socket buffer and no more, because the source answers at full speed.
    outstanding = min(2 * count, round(_BUFFER_FACTOR * settings.rcvbuf) // (SIZE + DATA_HEADER_OCTETS))
    unlimited_job = attrs.evolve(
        job, parameters=_UNLIMITED_REPAIRS, receiver_parameters={"nak_max_outstanding": outstanding}
    )
    raw_job = settings.job(place, SIZE, messages=count)
    runs, raw = [], []
    try:
        for _ in range(settings.runs):  # interleaved
            runs.append(await _burst_once(contender, unlimited_job, count))
            raw.append(await transfer(RAW_GSO, raw_job))
    except ProcessError as error:
        return row | {"why_not": error.message}
    took = statistics.median(run["repair_s"] for run in runs)
    # The time ends when the last packet has left, as for pgm.
    plain = statistics.median(result.send_s / result.sent for result in raw) * count
    settings.say(
        f"{contender.title}, burst of {count:,} packets: repaired in {took * 1e3:.1f} ms, raw {plain * 1e3:.1f} ms"
    )
    return row | {
        "ms": round(took * 1e3, 3),
        "raw_ms": round(plain * 1e3, 3),
        "of_raw": round(took / plain, 2),
        "lost": max(run["lost"] for run in runs),
        "repaired": min(run["rdata_packets"] for run in runs),
        "messages_per_s": round(count / took),
        "mb_per_s": round(count * SIZE / took / 1e6, 1),
        "packets_per_s": round(count / took),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 3),
    }


async def _burst_once(contender: Contender, job: Job, count: int) -> dict[str, Any]:
    async with pair(contender, job, ("send", "recv")) as (sender, receiver):
        await receiver.until("hears", _PATIENCE_S)
        await receiver.tell(f"lose {count}")
        await receiver.until("loses", _PATIENCE_S)
        before = sender.usage.cpu_s + receiver.usage.cpu_s
        await sender.tell("go")
        sent = await sender.until("sent", _PATIENCE_S)
        await receiver.tell(f"expect {sent['messages']}")
        result = await receiver.until("result", _PATIENCE_S)
        await sender.tell("report")
        repairs = await sender.until("repairs", _PATIENCE_S)
        cpu_s = sender.usage.cpu_s + receiver.usage.cpu_s - before
    if "repair_s" not in repairs:
        raise ProcessError(
            f"{contender.name}: nothing was repaired; {sent['messages'] - result['messages']:,} are missing"
        )
    return {**repairs, "cpu_s": cpu_s, "lost": sent["messages"] - result["messages"]}
