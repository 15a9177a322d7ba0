"""pgm's ends of a program without an event loop: a thread sends message by message; the receiver is trio's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deploy.bench.peers.control import PROBE_IVL_S, Control, run_end
from deploy.bench.peers.messages import MessageMaker, Octets
from deploy.bench.peers.ours.common import SUBJECTS, counted, lose, source_opening, subjects_of
from deploy.bench.peers.ours.event_loop import recv
from pgm.blocking import Source, open_source


def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages, each with a call."""
    with open_source(**source_opening(job)) as source:
        maker = MessageMaker(job["size"])
        lose(source.links, job)
        control.say("ready")
        while control.word(PROBE_IVL_S) != "go":
            if control.is_over:
                return
            source.send_batch(probe := maker.probe(), subject=subjects_of(probe, job), flush=True)
        seconds = _send_all(source, maker, job)
        control.say("sent", messages=maker.made, seconds=seconds, **counted(source.counters))
        while control.word(PROBE_IVL_S) != "report" and not control.is_over:
            pass
        control.say("repairs")
        control.wait_until_over()


def _send_all(source: Source, maker: MessageMaker, job: Mapping[str, Any]) -> float:
    """Send all messages of the job and return the seconds used."""
    begun_ns = time.monotonic_ns()
    until_ns = begun_ns + round(job["seconds"] * 1e9)
    while maker.made < job["messages"] or (not job["messages"] and time.monotonic_ns() < until_ns):
        _send_each(source, maker.next(), batched=job["batched"])
    source.flush()
    return (time.monotonic_ns() - begun_ns) / 1e9


def _send_each(source: Source, rows: Octets, *, batched: bool) -> None:
    send, size, octets = source.send, rows.shape[1], rows.tobytes()
    if batched:
        for number in range(len(rows)):
            send(octets[number * size : (number + 1) * size], subject=SUBJECTS[number % len(SUBJECTS)])
    else:
        for at in range(0, len(octets), size):
            send(octets[at : at + size])


if __name__ == "__main__":
    run_end({"send": send, "recv": recv})
