"""Records what a node delivers: takes effects on the protocol's side, and writes them on a thread of its own.

The protocol's side only puts a run into a queue: a few microseconds for a train. When the queue is full, because the disk is too
slow, what comes is recorded as lost with cause RECORDER; the protocol never waits.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import attrs

from pgm.archive.gathering import Feed, Recording
from pgm.archive.recovery import Log
from pgm.archive.rows import Session
from pgm.archive.writer import ArchiveWriter
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Deliver, Effect, Lost
from pgm.core.path import Path
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.formats import Tsi, tsi_text

_SMALL_OCTETS = 512  # what a loss or an ending counts for in the queue
_MOST_AT_ONCE = 64  # things taken from the queue before timers are looked at


@attrs.frozen
class Names:
    """How the rows name what a node records: its own name, its segment, and by data port its streams and their sources."""

    node: str
    segment: str | None
    streams: dict[int, str] = attrs.Factory(dict)
    sources: dict[int, str] = attrs.Factory(dict)
    batched: frozenset[int] = frozenset()  # data ports of streams with batches


def feed_of(tsi: Tsi, path: Path | None, names: Names) -> Feed:
    """How a session is recorded, by what is known of it now."""
    if path is None:  # it was evicted before anything came of it
        return Feed(Session(tsi_text(tsi), node=names.node, segment=names.segment))
    epoch_us = None if path.started_ns is None or path.epoch_shift is None else path.started_ns // 1000
    session = Session(
        tsi=tsi_text(tsi),
        epoch_us=epoch_us,
        stream=names.streams.get(path.data_port),
        source=names.sources.get(path.data_port),
        node=names.node,
        segment=names.segment,
    )
    return Feed(session, (path.epoch_shift or 0) if epoch_us is not None else 0, path.data_port in names.batched)


class Recorder:
    """Puts what a node delivers into an archive. `take` belongs to the protocol's thread, as do `start` and `close`."""

    def __init__(
        self,
        writer: ArchiveWriter,
        parameters: Parameters,
        names: Names,
        path_of: Callable[[Tsi], Path | None],
        log: Log,
    ) -> None:
        self._writer = writer
        self._most = parameters.record_queue_bytes
        self._names = names
        self._path_of = path_of
        self._log = log
        self._queue: queue.SimpleQueue[tuple[Feed | None, Any, int, int]] = queue.SimpleQueue()
        self._put = 0  # octets that went into the queue
        self._taken = 0  # and that came out again
        self._feeds: dict[Tsi, Feed] = {}
        self._lock = threading.Lock()
        self._overrun: dict[int, tuple[Feed, int, int]] = {}  # by feed: sqns that found the queue full
        self._recording = Recording(writer, parameters, log)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._has_ended = False
        self.failure: Exception | None = None

    @property
    def counters(self) -> Counters:
        """Where it counts what it records: those of the core whose deliveries it takes."""
        return self._recording.counters

    @counters.setter
    def counters(self, counters: Counters) -> None:
        self._recording.counters = counters

    # The protocol's side

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def take(self, effect: Effect) -> None:
        """Record what was delivered, lost or closed; other effects are none of an archive's business."""
        if isinstance(effect, Deliver):
            run = effect.run
            feed = self._feed(effect.tsi)
            if self._overrun or self._put - self._taken + run.octets > self._most:
                self._overflow(feed, run, run.octets, run.first, run.end)
            else:
                self._enqueue(feed, run, run.octets)
        elif isinstance(effect, Lost):
            end = effect.first + effect.count
            self._overflow(self._feed(effect.tsi), effect, _SMALL_OCTETS, effect.first, end)
        elif isinstance(effect, Closed) and effect.cause is not CloseCause.SILENT:
            feed = self._feed(effect.tsi)
            self._overflow(feed, effect, _SMALL_OCTETS, effect.next_sqn, effect.next_sqn)
            del self._feeds[effect.tsi]

    def _feed(self, tsi: Tsi) -> Feed:
        """What the session is to the archive; anew when its epoch has become known."""
        known = self._feeds.get(tsi)
        if known is not None and known.session.epoch_us is not None:
            return known
        found = feed_of(tsi, self._path_of(tsi), self._names)
        if known is not None:
            if found.session.epoch_us is None:
                return known
            # To the archive it is another session from here on: its sqns mean something else.
            self._overflow(known, Closed(tsi, 0, CloseCause.EXPIRED), _SMALL_OCTETS, 0, 0)
        self._feeds[tsi] = found
        return found

    def _enqueue(self, feed: Feed | None, item: Any, octets: int) -> None:
        self._put += octets
        self._queue.put((feed, item, octets, time.time_ns() // 1000))

    def _overflow(self, feed: Feed, item: Any, octets: int, first: int, end: int) -> None:
        """Queue something if there is room, behind what found none before."""
        with self._lock:
            is_full = self._put - self._taken + octets > self._most
            before = self._overrun.pop(id(feed), None)
            if is_full:
                self._overrun[id(feed)] = (feed, before[1] if before else first, end)
                return
            if before is not None:
                self._enqueue(feed, (before[1], before[2]), 0)
            self._enqueue(feed, item, octets)

    @property
    def waiting_octets(self) -> int:
        """Octets in the queue."""
        return self._put - self._taken

    def account(self) -> dict[str, Any]:
        """What was recorded so far, with stable keys."""
        return self._recording.account() | {"waiting_octets": self.waiting_octets}

    def close(self) -> None:
        """Write what waits, and end. `failure` then says whether anything unforeseen happened."""
        self._enqueue(None, None, 0)
        self._thread.join()

    # The writing side

    def _run(self) -> None:
        try:
            self._write_until_closed()
        except Exception as error:
            self.failure = error
            self._log("recorder-failed", f"recording ends: {type(error).__name__}: {error}")
            self._drop_all()

    def _write_until_closed(self) -> None:
        recording = self._recording
        while True:
            try:
                feed, item, octets, at_us = self._queue.get(timeout=recording.wait_ns / SECOND)
            except queue.Empty:
                self._take_overrun()
                recording.on_time()
                continue
            for _ in range(_MOST_AT_ONCE):
                if feed is None:
                    self._has_ended = True
                    self._take_overrun()
                    recording.close()
                    return
                recording.add(feed, item, at_us)
                self._taken += octets
                try:
                    feed, item, octets, at_us = self._queue.get_nowait()
                except queue.Empty:
                    break
            else:
                self._handle_again(feed, item, octets, at_us)
            recording.on_time()

    def _handle_again(self, feed: Feed | None, item: Any, octets: int, at_us: int) -> None:
        """What was taken and not written yet when timers had to be looked at."""
        if feed is None:
            self._queue.put((feed, item, octets, at_us))  # the last there is
            return
        self._recording.add(feed, item, at_us)
        self._taken += octets

    def _take_overrun(self) -> None:
        """The queue is empty: what found it full before is recorded as lost now, not when more comes."""
        if self._overrun:
            with self._lock:
                if self._queue.empty():
                    for feed, first, end in self._overrun.values():
                        self._recording.add(feed, (first, end), time.time_ns() // 1000)
                    self._overrun.clear()

    def _drop_all(self) -> None:
        while not self._has_ended:
            feed, _, octets, _ = self._queue.get()
            self._taken += octets
            self._has_ended = feed is None
