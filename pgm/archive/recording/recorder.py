"""Recorder of a node's deliveries.

The recorder takes effects in the protocol's thread and passes them to the process that writes the archive.

The protocol's thread only copies the octets of a run into memory that both processes share. A slow disk fills that
memory. Deliveries are then recorded as lost with cause RECORDER, and the protocol never waits.
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
from pgm.archive.recording.shared_ring import HELD, RingItem, RingItemKind, SharedRing, place_of
from pgm.archive.recording.writer_process import WriterProcess
from pgm.archive.session import ReachedSession
from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, Deliver, Effect, Evidence, LossCause, Lost
from pgm.core.session.state import SessionState
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.formats import Tsi
from pgm.wire.train import Run

Log = Callable[[str, str], None]  # code, text

_MAX_ENDED = 4096  # ended sessions that are remembered until their end is on disk
_MAX_DOUBLINGS = 6  # of the pause between a death of the writer process and the next attempt
_HEALTHY_NS = 60 * SECOND  # a process that lived this long does not count as a failed attempt


@attrs.define(eq=False)
class _SessionProgress:
    """Progress of one session. The sqns from `begin` to `end - 1` were put into the ring, or found no room."""

    feed: SessionFeed
    name: bytes  # the encoded feed, which every item of the session carries
    begin: int  # HELD once part of the session is on disk
    end: int
    lost_from: int | None = None  # first sqn that found no room and is not yet put as a loss, up to `end`
    end_pending: bool = False  # the end of the session is still to be put
    reached_pending: bool = False  # the sqn reached when the writer process died is still to be put


class Recorder:
    """Recorder that puts the deliveries of a node into an archive.

    `take`, `start` and `close` belong to the protocol's thread. Callers may replace `counters` by those of the core
    whose deliveries are recorded.
    """

    def __init__(
        self,
        directory: Directory,
        parameters: Parameters,
        names: RowNames,
        path_of: Callable[[Tsi], SessionState | None],
        log: Log,
        archives: tuple[str, ...] = (),
    ) -> None:
        """Record into a directory. Losses are looked up in the `archives` of other recorders, by range service."""
        self.directory = directory
        self.counters = Counters()
        self.failure: ArchiveError | None = None
        self._parameters = parameters
        self._names = names
        self._path_of = path_of
        self._log = log
        self._ring = SharedRing.new(parameters.record_queue_bytes)
        self._process = WriterProcess(directory, parameters, self._ring, archives)
        self._progress: dict[Tsi, _SessionProgress] = {}
        self._ended: dict[bytes, _SessionProgress] = {}  # sessions whose end is not yet known to be on disk
        self._pending: dict[bytes, _SessionProgress] = {}
        self._unrecorded = 0  # packets that arrived after recording ended for good
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="recorder", daemon=True)

    # The protocol's thread

    def start(self) -> None:
        """Start the writer process. Raises `ArchiveError`."""
        try:
            self._process.start(self._on_report)
        except ArchiveError:
            self._ring.close()
            raise
        self._thread.start()

    @property
    def reached(self) -> tuple[ReachedSession, ...]:
        """Return how far the rows of earlier recordings reach, the session with the newest row last."""
        return self._process.reached

    @property
    def pid(self) -> int:
        """Process id of the present writer process, or of the last one."""
        return self._process.pid

    def take(self, effect: Effect) -> ReachedSession | None:
        """Record a delivery, a loss or the end of a session; ignore all other effects. Return a session that ended."""
        ended = None
        if isinstance(effect, Evidence):
            effect = effect.effect
        if isinstance(effect, Deliver):
            run = effect.run
            with self._lock:
                progress = self._progress_of(effect.tsi, run.first)
                self._put_run(progress, run, time.time_ns() // 1000)
        elif isinstance(effect, Lost):
            with self._lock:
                progress = self._progress_of(effect.tsi, effect.first)
                cause_index = place_of(effect.cause)
                self._put(progress, RingItemKind.LOSS, effect.first, effect.count, time.time_ns() // 1000, cause_index)
        elif isinstance(effect, Closed) and effect.cause is not CloseCause.SILENT:
            with self._lock:
                progress = self._progress_of(effect.tsi, effect.next_sqn)
                self._end(progress)
                self._progress.pop(effect.tsi, None)
            ended = progress.feed.reached(effect.next_sqn)
        else:
            return None
        if self._ring.wants_waking():
            self._process.wake()
        return ended

    def _progress_of(self, tsi: Tsi, first: int) -> _SessionProgress:
        """Return the progress of a session; start a new one once its epoch is known."""
        known = self._progress.get(tsi)
        if known is not None and known.feed.session.epoch_us is not None:
            return known
        feed = feed_of(tsi, self._path_of(tsi), self._names)
        if known is not None:
            if feed.session.epoch_us is None:
                return known
            # The sqns have another meaning from here on, so this is another session to the archive.
            self._end(known)
        progress = self._progress[tsi] = _SessionProgress(feed, feed.to_bytes(), first, first)
        return progress

    def _put_run(self, progress: _SessionProgress, run: Run, at_us: int) -> None:
        if run.octets > self._ring.largest:
            middle = run.first + run.count // 2
            if run.count > 1:
                self._put_run(progress, run.part(run.first, middle), at_us)
                self._put_run(progress, run.part(middle, run.end), at_us)
                return
        octets = run.buffer[run.offset : run.offset + run.octets]
        self._put(progress, RingItemKind.RUN, run.first, run.count, at_us, run.stride, run.payload_at, octets)

    def _put(
        self, progress: _SessionProgress, kind: RingItemKind, first: int, count: int, at_us: int, *more: Any
    ) -> None:
        """Put the next item of a session, if nothing older is pending and there is room."""
        progress.end = first + count
        if self.failure is not None:
            self._unrecorded += count
            self._count()
            return
        item = RingItem(kind, progress.name, progress.begin, first, count, at_us, *more)
        if (not self._pending or self._put_pending()) and self._ring.put(item):
            return
        if progress.lost_from is None:
            progress.lost_from = first
        self._defer(progress)

    def _defer(self, progress: _SessionProgress) -> None:
        self._pending[progress.name] = progress
        self._ring.has_overrun = True

    def _end(self, progress: _SessionProgress) -> None:
        if self.failure is not None:
            return
        progress.end_pending = True
        if len(self._ended) >= _MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[progress.name] = progress
        self._defer(progress)
        self._put_pending(is_last=True)

    def _put_pending(self, *, is_last: bool = False) -> bool:
        """Put the pending items if there is room again, or if `is_last`. Return whether nothing is pending any more."""
        if not (is_last or self._ring.has_room_again):
            return False
        at_us = time.time_ns() // 1000
        for progress in list(self._pending.values()):
            name, begin, end, lost_from = progress.name, progress.begin, progress.end, progress.lost_from
            if progress.reached_pending:
                reached = end if lost_from is None else lost_from
                if not self._ring.put(RingItem(RingItemKind.REACHED, name, begin, reached, 0, at_us)):
                    return False
                progress.reached_pending = False
            if lost_from is not None:
                if not self._ring.put(RingItem(RingItemKind.OVERRUN, name, begin, lost_from, end - lost_from, at_us)):
                    return False
                progress.lost_from = None
            if progress.end_pending:
                if not self._ring.put(RingItem(RingItemKind.CLOSED, name, begin, end, 0, at_us)):
                    return False
                progress.end_pending = False
            del self._pending[progress.name]
        self._ring.has_overrun = False
        return True

    @property
    def _lost(self) -> int:
        """Packets that the archive lacks for want of room or of a process, whether or not a row says so yet."""
        tally = self._ring.tally
        return tally.lost.get(LossCause.RECORDER.value, 0) + tally.unwritten + self._unrecorded

    @property
    def waiting_octets(self) -> int:
        """Octets that the writer process has not taken yet."""
        return self._ring.waiting_octets

    def account(self) -> dict[str, Any]:
        """Return the totals of this recording, with stable keys."""
        tally = self._ring.tally
        if self._lost:
            tally.lost[LossCause.RECORDER.value] = self._lost
        return {
            "rows": tally.rows,
            "messages": tally.rows - tally.loss_rows,
            "lost": tally.lost,
            "octets": tally.octets,
            "syncs": tally.syncs,
            "waiting_octets": self.waiting_octets,
        }

    def close(self) -> None:
        """Write the remaining items and end the recording. `failure` then tells whether that succeeded."""
        self._ring.is_closing = True
        self._closing.set()
        self._process.wake()
        self._thread.join()
        self._count()
        self._ring.close()

    # The thread that supervises the writer process: it sleeps until that process reports

    def _supervise(self) -> None:
        failed = 0
        while not self._process.serve(self._on_report):
            failed = 1 if self._process.lived_ns > _HEALTHY_NS else failed + 1
            self.counters.recorder_deaths += 1
            while not self._restart(failed):
                if self.failure is not None:
                    return
                failed += 1

    def _restart(self, failed: int) -> bool:
        """Start another process after one that died or could not be started."""
        why, limit = self._process.end_reason, self._parameters.record_restarts
        if failed > limit:
            with self._lock:
                self.failure = ArchiveError(why, remedy="correct the cause, then restart the node")
                while (item := self._ring.get()) is not None:
                    self._unrecorded += item.count if item.kind in (RingItemKind.RUN, RingItemKind.OVERRUN) else 0
            self._count()
            self._log("recorder-failed", f"recording into {self.directory} ends for good: {why}")
            return False
        pause_ns = self._parameters.record_retry_ivl << min(failed - 1, _MAX_DOUBLINGS)
        self._log(
            "recorder-died",
            f"{why}; rows not yet written are recorded as lost; it is restarted in"
            f"{pause_ns / SECOND:g} s ({failed} of {limit})",
        )
        self._closing.wait(pause_ns / SECOND)
        try:
            self._process.start(self._on_report)
        except ArchiveError:
            return False
        self._report_progress()
        return True

    def _report_progress(self) -> None:
        """Put the sqns reached, so that a silent session shows the rows that the dead process lost."""
        with self._lock:
            for progress in self._ended.values():
                progress.end_pending = True
                self._defer(progress)
            for progress in self._progress.values():
                progress.reached_pending = True
                self._defer(progress)
            self._put_pending()
        self._process.wake()

    def _on_report(self, report: dict[str, Any]) -> None:
        if "log" in report:
            self._log(*report["log"])
        if "room" in report:
            with self._lock:
                self._put_pending()
            self._process.wake()
        for name in report.get("ended", ()):
            with self._lock:
                self._ended.pop(name.encode(), None)
        if report.get("held"):
            names = {name.encode() for name in report["held"]}
            with self._lock:
                for progress in self._progress.values():
                    progress.begin = HELD if progress.name in names else progress.begin
        self._count()

    def _count(self) -> None:
        self.counters.recorded_rows = self._ring.tally.rows
        self.counters.recorder_lost = self._lost
