"""`pgm bench latency`: round trip of a small message, one at a time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from deploy.bench.contender import Contender, Job
from deploy.bench.place import ETHERNET_MTU, open_place
from deploy.bench.settings import BenchSettings, Row, row_head
from deploy.bench.trial import pair
from deploy.bench.turns import Searcher, run_interleaved
from pgm.errors import ProcessError

SIZE = 100  # octets
_SPARE_S = 60.0
_KEYS = ("mean_us", "p50_us", "p99_us", "p999_us", "min_us", "max_us")


async def latency(settings: BenchSettings) -> list[Row]:
    """Measure all contenders interleaved; return rows with the median of the runs."""
    with open_place(settings.path, ETHERNET_MTU) as place:
        job = settings.job(place, SIZE)
        contenders = settings.contenders_of("latency")
        rows = await run_interleaved([partial(_row, contender, job, settings) for contender in contenders])
    for row in rows:
        settings.emit(row)
    return rows


async def _row(contender: Contender, job: Job, settings: BenchSettings, searcher: Searcher) -> Row:
    row = row_head("latency", contender, job.place, job.size)
    why_not = contender.why_not(job)
    if why_not:
        return row | {"why_not": why_not}
    runs = []
    try:
        for _ in range(settings.runs):
            async with searcher.trial():
                runs.append(await trips(contender, job))
            last = runs[-1]
            summary = f"mean {last['mean_us']} us, p99 {last['p99_us']} us"
            settings.say(f"{contender.title}, {job.size} octets in each direction: {summary}")
    except ProcessError as error:
        return row | {"why_not": error.message}
    return row | _figures(runs, job)


def _figures(runs: Sequence[Row], job: Job) -> Row:
    count = sum(run["trips"] for run in runs)
    carried = 2 * count / (job.seconds * len(runs))  # in each direction
    return {
        **{key: round(statistics.median(run[key] for run in runs), 2) for key in _KEYS},
        "messages_per_s": round(carried),
        "mb_per_s": round(carried * job.size / 1e6, 3),
        "packets_per_s": round(carried),
        "lost": sum(run["lost_trips"] for run in runs),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 3),
        "trips": count,
        "runs_mean_us": [run["mean_us"] for run in runs],
        "runs_p99_us": [run["p99_us"] for run in runs],
    }


async def trips(contender: Contender, job: Job) -> Row:
    """Run one trial; return the report of the end that sends requests. Raises `ProcessError`, also without answers."""
    async with pair(contender, job, ("ping", "pong")) as (asking, answering):
        before = asking.usage.cpu_s + answering.usage.cpu_s
        await asking.tell("go")
        report = await asking.until("result", job.seconds + _SPARE_S)
        if not report["trips"]:
            raise ProcessError(f"none of {report['lost_trips']:,} requests was answered")
        return {**report, "cpu_s": asking.usage.cpu_s + answering.usage.cpu_s - before}
