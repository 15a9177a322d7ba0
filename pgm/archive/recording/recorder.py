"""Records what a node delivers: takes effects on the protocol's side, and hands them to the process that writes the archive.

The protocol's side only copies the octets of a run into memory that both share: some microseconds for a train. When that is full,
because the disk is too slow, what comes is recorded as lost with cause RECORDER; the protocol never waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path as Directory
from typing import Any

import attrs

from pgm.archive.errors import ArchiveError
from pgm.archive.recording.feeds import RowNames, SessionFeed, feed_of
from pgm.archive.recording.shared_ring import HELD, RingItemKind, SharedRing, place_of
from pgm.archive.recording.writer_process import WriterProcess
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Deliver, Effect, LossCause, Lost
from pgm.core.session.state import SessionState
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.formats import Tsi
from pgm.wire.train import Run

Log = Callable[[str, str], None]  # code, text

_MOST_ENDED = 4096  # sessions that have ended and are remembered until that is on disk
_MOST_DOUBLINGS = 6  # of the time between two deaths and the next attempt
_SOUND_NS = 60 * SECOND  # a process that lived so long was no failed attempt


@attrs.define(eq=False)
class _Course:
    """One session on its way into the archive: the sqns from `begin` to `end - 1` were put, or found no room."""

    feed: SessionFeed
    name: bytes  # the feed, as it goes along with everything
    begin: int  # HELD when something of it is on disk
    end: int
    lost_from: int | None = None  # what found no room and was not put as a loss yet, up to `end`
    owes_end: bool = False  # its end is to be put yet
    owes_reached: bool = False  # and how far it had come when the process died


class Recorder:
    """Puts what a node delivers into an archive. `take` belongs to the protocol's thread, as do `start` and `close`.

    `counters` are those of the core whose deliveries it takes.
    """

    def __init__(
        self,
        directory: Directory,
        parameters: Parameters,
        names: RowNames,
        path_of: Callable[[Tsi], SessionState | None],
        log: Log,
    ) -> None:
        self.directory = directory
        self.counters = Counters()
        self.failure: ArchiveError | None = None
        self._parameters = parameters
        self._names = names
        self._path_of = path_of
        self._log = log
        self._ring = SharedRing.new(parameters.record_queue_bytes)
        self._process = WriterProcess(directory, parameters, self._ring)
        self._courses: dict[Tsi, _Course] = {}
        self._ended: dict[bytes, _Course] = {}  # until it is known that their ends are on disk
        self._owing: dict[bytes, _Course] = {}
        self._unrecorded = 0  # packets that came after recording had ended for good
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="recorder", daemon=True)

    # The protocol's side

    def start(self) -> None:
        """Begin to write. Raises `ArchiveError`."""
        try:
            self._process.start(self._heard)
        except ArchiveError:
            self._ring.close()
            raise
        self._thread.start()

    @property
    def pid(self) -> int:
        """The process that writes now, or the last that did."""
        return self._process.pid

    def take(self, effect: Effect) -> None:
        """Record what was delivered, lost or closed; other effects are none of an archive's business."""
        if isinstance(effect, Deliver):
            run = effect.run
            with self._lock:
                course = self._course(effect.tsi, run.first)
                self._put_run(course, run, time.time_ns() // 1000)
        elif isinstance(effect, Lost):
            with self._lock:
                course = self._course(effect.tsi, effect.first)
                place = place_of(effect.cause)
                self._put(course, RingItemKind.LOSS, effect.first, effect.count, time.time_ns() // 1000, place)
        elif isinstance(effect, Closed) and effect.cause is not CloseCause.SILENT:
            with self._lock:
                self._end(self._course(effect.tsi, effect.next_sqn))
                self._courses.pop(effect.tsi, None)
        else:
            return
        if self._ring.wants_waking():
            self._process.wake()

    def _course(self, tsi: Tsi, first: int) -> _Course:
        """What the session is to the archive; anew when its epoch has become known."""
        known = self._courses.get(tsi)
        if known is not None and known.feed.session.epoch_us is not None:
            return known
        found = feed_of(tsi, self._path_of(tsi), self._names)
        if known is not None:
            if found.session.epoch_us is None:
                return known
            # To the archive it is another session from here on: its sqns mean something else.
            self._end(known)
        course = self._courses[tsi] = _Course(found, found.to_bytes(), first, first)
        return course

    def _put_run(self, course: _Course, run: Run, at_us: int) -> None:
        if run.octets > self._ring.largest:
            middle = run.first + run.count // 2
            if run.count > 1:
                self._put_run(course, run.part(run.first, middle), at_us)
                self._put_run(course, run.part(middle, run.end), at_us)
                return
        octets = run.buffer[run.offset : run.offset + run.octets]
        self._put(course, RingItemKind.RUN, run.first, run.count, at_us, run.stride, run.payload_at, octets)

    def _put(self, course: _Course, kind: RingItemKind, first: int, count: int, at_us: int, *more: Any) -> None:
        """Put what is next of a session, if there is room behind what found none before."""
        course.end = first + count
        if self.failure is not None:
            self._unrecorded += count
            self._count()
            return
        if (not self._owing or self._settle()) and self._ring.put(
            kind, course.name, course.begin, first, count, at_us, *more
        ):
            return
        if course.lost_from is None:
            course.lost_from = first
        self._owe(course)

    def _owe(self, course: _Course) -> None:
        self._owing[course.name] = course
        self._ring.has_overrun = True

    def _end(self, course: _Course) -> None:
        if self.failure is not None:
            return
        course.owes_end = True
        if len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[course.name] = course
        self._owe(course)
        self._settle(is_last=True)

    def _settle(self, *, is_last: bool = False) -> bool:
        """Put what is owed if there is room again, or nothing more comes; whether nothing is owed any more."""
        if not (is_last or self._ring.has_room_again):
            return False
        at_us = time.time_ns() // 1000
        for course in list(self._owing.values()):
            if course.owes_reached:
                end = course.end if course.lost_from is None else course.lost_from
                if not self._ring.put(RingItemKind.REACHED, course.name, course.begin, end, 0, at_us):
                    return False
                course.owes_reached = False
            if course.lost_from is not None:
                count = course.end - course.lost_from
                if not self._ring.put(RingItemKind.OVERRUN, course.name, course.begin, course.lost_from, count, at_us):
                    return False
                course.lost_from = None
            if course.owes_end:
                if not self._ring.put(RingItemKind.CLOSED, course.name, course.begin, course.end, 0, at_us):
                    return False
                course.owes_end = False
            del self._owing[course.name]
        self._ring.has_overrun = False
        return True

    @property
    def waiting_octets(self) -> int:
        """Octets that the writing process has not taken yet."""
        return self._ring.waiting_octets

    def account(self) -> dict[str, Any]:
        """What was recorded so far, with stable keys."""
        tally = self._ring.tally
        if self._unrecorded:
            cause = LossCause.RECORDER.value
            tally.lost[cause] = tally.lost.get(cause, 0) + self._unrecorded
        return {
            "rows": tally.rows,
            "messages": tally.rows - tally.loss_rows,
            "lost": tally.lost,
            "octets": tally.octets,
            "syncs": tally.syncs,
            "waiting_octets": self.waiting_octets,
        }

    def close(self) -> None:
        """Have what waits written, and end. `failure` then says whether it could be."""
        self._ring.is_closing = True
        self._closing.set()
        self._process.wake()
        self._thread.join()
        self._count()
        self._ring.close()

    # The thread that looks after the process: it sleeps but for what that process says

    def _keep(self) -> None:
        failed = 0
        while not self._process.serve(self._heard):
            failed = 1 if self._process.lived_ns > _SOUND_NS else failed + 1
            self.counters.recorder_deaths += 1
            while not self._begin_again(failed):
                if self.failure is not None:
                    return
                failed += 1

    def _begin_again(self, failed: int) -> bool:
        """Start another process after one that died or could not be started."""
        why, most = self._process.why_it_ended, self._parameters.record_restarts
        if failed > most:
            with self._lock:
                self.failure = ArchiveError(why, remedy="start the node anew when that is mended")
                while (item := self._ring.get()) is not None:
                    self._unrecorded += item.count if item.kind in (RingItemKind.RUN, RingItemKind.OVERRUN) else 0
            self._count()
            self._log("recorder-failed", f"recording into {self.directory} ends for good: {why}")
            return False
        pause_ns = self._parameters.record_retry_ivl << min(failed - 1, _MOST_DOUBLINGS)
        self._log(
            "recorder-died",
            f"{why}; what it had not written is recorded as lost; it is begun anew in "
            f"{pause_ns / SECOND:g} s ({failed} of {most})",
        )
        self._closing.wait(pause_ns / SECOND)
        try:
            self._process.start(self._heard)
        except ArchiveError:
            return False
        self._say_what_was_reached()
        return True

    def _say_what_was_reached(self) -> None:
        """What the process that died had taken and not written is a loss, even where nothing more comes."""
        with self._lock:
            for course in self._ended.values():
                course.owes_end = True
                self._owe(course)
            for course in self._courses.values():
                course.owes_reached = True
                self._owe(course)
            self._settle()
        self._process.wake()

    def _heard(self, told: dict[str, Any]) -> None:
        """What the process says."""
        if "log" in told:
            self._log(*told["log"])
        if "room" in told:
            with self._lock:
                self._settle()
            self._process.wake()
        for name in told.get("ended", ()):
            with self._lock:
                self._ended.pop(name.encode(), None)
        if told.get("held"):
            names = {name.encode() for name in told["held"]}
            with self._lock:
                for course in self._courses.values():
                    course.begin = HELD if course.name in names else course.begin
        self._count()

    def _count(self) -> None:
        tally = self._ring.tally
        self.counters.recorded_rows = tally.rows
        self.counters.recorder_lost = tally.lost.get(LossCause.RECORDER.value, 0) + self._unrecorded
