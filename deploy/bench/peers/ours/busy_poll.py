"""pgm's ends on the busy-poll driver, with one thread a process."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from deploy.bench.peers.control import PROBE_IVL_S, QUIET_S, Control, run_end
from deploy.bench.peers.messages import MessageMaker, MessageTally, pattern
from deploy.bench.peers.ours.common import (
    both_of,
    counted,
    lose,
    receiver_opening,
    receiver_parameters,
    source_opening,
    source_parameters,
    subjects_of,
    window_of,
)
from deploy.bench.peers.repair_watch import OneBurst, ReceiverWatch, SourceWatch
from deploy.bench.peers.round_trips import RoundTrips, TripResult
from pgm.blocking import open_receiver, open_source
from pgm.core.effects import Lost
from pgm.net.endpoint.busy_poll import BusyPollReceiver, BusyPollSource
from pgm.net.framing.items import Batch, Message
from pgm.net.framing.packed_batch import PackedBatch

_TURN_S = 0.02  # of polling between two checks for commands


def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then messages."""
    with open_source(**source_opening(job), busy_poll=True) as source:
        maker = MessageMaker(job["size"])
        subjects = subjects_of(maker.rows, job)
        watch = SourceWatch(source.driver.core)
        lose(source.driver.links, job)
        if job["watch"] and job["messages"]:  # a burst, for which the last repair is timed
            source.driver.core = watch
        control.say("ready")
        while control.word(PROBE_IVL_S) != "go":
            if control.is_over:
                return
            source.send_batch(probe := maker.probe(), subject=subjects_of(probe, job))
        begun_ns = time.monotonic_ns()
        until_ns = begun_ns + round(job["seconds"] * 1e9)
        while maker.made < job["messages"] or (not job["messages"] and time.monotonic_ns() < until_ns):
            source.send_batch(maker.next(), subject=subjects)
        seconds = (time.monotonic_ns() - begun_ns) / 1e9
        window = window_of(watch)
        control.say("sent", messages=maker.made, seconds=seconds, **window, **counted(source.counters))
        while not control.is_over:
            _turn(source)
            if control.word() == "report":
                control.say("repairs", **watch.result())


def _turn(end: BusyPollSource | BusyPollReceiver) -> None:
    until_ns = time.monotonic_ns() + round(_TURN_S * 1e9)
    while time.monotonic_ns() < until_ns:
        end.poll()


def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Receive until all messages arrived, or until `quiet_s` of silence."""
    with open_receiver(**receiver_opening(job), busy_poll=True) as receiver:
        tally = MessageTally(job["size"])
        watch, burst = ReceiverWatch(receiver.driver.core), OneBurst()
        if job["watch"]:
            receiver.driver.core = watch
            if job["messages"]:  # a burst; the injector costs time on every read
                receiver.links[0].injector = burst
        control.say("ready")
        while not tally.probes:
            _take(receiver, tally)
            control.word()
            if control.is_over:
                return
        control.say("hears")
        expected, quiet_s = None, 0.0
        while not control.is_over and (expected is None or (tally.messages < expected and quiet_s < job["quiet_s"])):
            quiet_s = 0.0 if _take(receiver, tally) else quiet_s + _TURN_S
            word = control.word()
            if word.startswith("expect"):
                expected = int(word.split()[1])
            elif word.startswith("lose"):
                burst.begin(int(word.split()[1]))
                control.say("loses")
        control.say("result", **tally.result(), **counted(receiver.counters), **watch.result())
        control.wait_until_over()


def _take(receiver: BusyPollReceiver, tally: MessageTally) -> bool:
    item = receiver.next_batch(_TURN_S)
    if isinstance(item, (Batch, PackedBatch)):
        tally.add(item.payloads)
    return item is not None


def ping(control: Control, job: Mapping[str, Any]) -> None:
    """Send requests and measure the times to their answers."""
    with _both(job, is_ping=True) as (source, receiver):
        control.say("ready")
        while control.word() != "go" and not control.is_over:
            _turn(source)
        payload = pattern(job["size"]).tobytes()
        trips = RoundTrips(job["seconds"])
        gc.freeze()
        while not trips.are_over:
            trips.begin()
            source.send(payload)
            trips.end(_answer(receiver))
        control.say("result", **trips.result(), **counted(receiver.counters))
        while not control.is_over:
            _turn(source)
            control.word()


def _answer(receiver: BusyPollReceiver) -> TripResult:
    while True:
        item = receiver.recv(QUIET_S)
        if isinstance(item, Message):
            return TripResult.YES
        if item is None:
            return TripResult.NO
        if isinstance(item, Lost):
            return TripResult.LOST


def pong(control: Control, job: Mapping[str, Any]) -> None:
    """Answer each request."""
    with _both(job, is_ping=False) as (source, receiver):
        control.say("ready")
        gc.freeze()
        while not control.is_over:
            item = receiver.recv(_TURN_S)
            if isinstance(item, Message):
                source.send(item.payload)
            else:
                control.word()


@contextmanager
def _both(job: Mapping[str, Any], *, is_ping: bool) -> Iterator[tuple[BusyPollSource, BusyPollReceiver]]:
    asking, listening = both_of(job, is_ping=is_ping)
    with (
        open_receiver(**listening, busy_poll=True, **receiver_parameters(job)) as receiver,
        open_source(**asking, busy_poll=True, **source_parameters(job)) as source,
    ):
        yield source, receiver


if __name__ == "__main__":
    run_end({"send": send, "recv": recv, "ping": ping, "pong": pong})
