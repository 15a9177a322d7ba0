"""`pgm bench pacing`: accuracy, bursts and CPU time of a source with a set rate."""

from __future__ import annotations

import itertools

import attrs

from deploy.bench.contender import Contender, Job, python_peer
from deploy.bench.limits import sender_share
from deploy.bench.peers.ours.common import source_parameters
from deploy.bench.place import ETHERNET_MTU, BenchNetwork, open_place
from deploy.bench.settings import BenchSettings, Row, row_head
from deploy.bench.trial import TrialResult, transfer
from pgm.core.pacing.pacer import Pacer
from pgm.errors import ProcessError
from pgm.parameters import Parameters
from pgm.units import MILLISECOND, format_rate
from pgm.wire.formats import DATA_HEADER_OCTETS

SIZE = 1400


def _with_arrival_log(contender: Contender) -> Contender:
    """Return a contender whose receiver is a plain socket that records arrivals."""
    arrivals = python_peer("arrivals")

    def program(end: str, job: Job, is_busy_poll: bool) -> list[str]:
        return (contender.program if end == "send" else arrivals)(end, job, is_busy_poll)

    return attrs.evolve(contender, program=program)


async def pacing(settings: BenchSettings) -> list[Row]:
    """Measure each rate and source; return a row each."""
    rows = []
    with open_place(settings.path, ETHERNET_MTU) as place:
        for rate, contender in itertools.product(settings.rates, settings.contenders_of("pacing")):
            row = row_head("pacing", contender, place, SIZE) | {"rate": format_rate(rate)}
            try:
                row |= await _measure_rate(contender, rate, place, settings)
            except ProcessError as error:
                row["why_not"] = error.message
            rows.append(row)
            settings.emit(row)
    return rows


async def _measure_rate(contender: Contender, rate: int, place: BenchNetwork, settings: BenchSettings) -> Row:
    """Measure one rate, in octets of packets a second."""
    each = rate / (SIZE + DATA_HEADER_OCTETS)
    # The job sets a number of messages and no duration, because the time in the source's queue counts as well.
    job = settings.job(place, SIZE, rate=each, messages=max(1, round(each * settings.seconds)))
    outcome = await transfer(_with_arrival_log(contender), attrs.evolve(job, window=min(job.window, rate)))
    report = outcome.receiver.report
    seconds = (report["last_ns"] - report["first_ns"]) / 1e9
    measured = report["later_octets"] / seconds if seconds else 0.0
    summary = f"{measured * 8 / 1e6:,.2f} Mbit/s, {sender_share(outcome):.0%} of a core"
    settings.say(f"{contender.title}, set to {format_rate(rate)}: {summary}")
    return _figures(outcome, measured) | {
        "off": round(measured / rate - 1, 5),
        "burst_ms": round(report["burst_ns"] / MILLISECOND, 3),
        "allowed_ms": round(_allowed_ns(job) / MILLISECOND, 3),
    }


def _allowed_ns(job: Job) -> int:
    """Return the longest burst that the source's parameters allow. The token bucket holds one packet at least."""
    parameters = source_parameters(attrs.asdict(job, recurse=False) | {"max_datagram": job.max_datagram})
    pacing_parameters = {name: parameters[name] for name in ("max_tpdu", "txw_max_rte")}
    return Pacer(attrs.evolve(Parameters(), **pacing_parameters)).burst_ns


def _figures(outcome: TrialResult, measured: float) -> Row:
    return {
        "messages_per_s": round(outcome.messages_per_s),
        "mb_per_s": round(outcome.mb_per_s, 3),
        "packets_per_s": round(outcome.messages_per_s),
        "mbit_per_s": round(measured * 8 / 1e6, 3),
        "lost": outcome.lost,
        "cpu_s": round(outcome.sender.cpu_s, 6),
        "sender_share": round(sender_share(outcome), 4),
    }
