"""Collector in the writer process: items become rows, rows become batches, refused batches become losses."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.frame_maker import FrameMaker
from pgm.archive.recording.other_archives import OtherArchives
from pgm.archive.recording.rows import RowBuilder, batch_of, repaired_of, rows_of, rows_of_batch, rows_of_loss
from pgm.archive.recording.shared_ring import RingTally
from pgm.archive.session import COMPANIONS, OPENED, SIGNED, RecordedSession
from pgm.archive.store.index import Key
from pgm.archive.store.recovery import Log
from pgm.archive.store.writer import ArchiveWriter, WriteFailed
from pgm.core.effects import LossCause, Lost
from pgm.core.structures.ranges import Span
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.messages.batch_decoder import BadPackets, BatchDecoder
from pgm.messages.subjects import SubjectFilter
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.train import Run

_RECORDER = LossCause.RECORDER.value
_IDLE_NS = SECOND  # longest wait while nothing is due
_CALM_RETRIES = 10  # times record_retry_ivl without a refusal until the disk counts as writable again
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@attrs.define(eq=False)
class _SessionBuffer:
    """Rows of one session in memory. `next_sqn` is the sqn after the last collected one; None until the first."""

    session: RecordedSession
    reassembler: Reassembler
    next_sqn: int | None
    decoder: BatchDecoder | None = None
    frames: FrameMaker | None = None  # of a signed stream
    parts: list[RowBuilder] = attrs.field(factory=list)
    octets: int = 0
    since_ns: int = 0
    lost_from: int | None = None  # every sqn from here to next_sqn found no room on the disk
    closes: bool = False


_Cut = tuple[Key, int, int]  # session, first and end of a batch


@attrs.define
class _Fullness:
    """State of a disk that refused data. It ends when the disk has taken all data for a while, since `calm_ns`."""

    calm_ns: int
    lost: int = 0  # packets recorded as lost so far


class RowCollector:
    """Collector that writes the items of feeds.

    A disk that refuses data never raises an error here.

    `tally` continues the totals of earlier writers. `publish` receives the totals whenever they have changed.
    """

    def __init__(
        self,
        writer: ArchiveWriter,
        parameters: Parameters,
        log: Log,
        tally: RingTally | None = None,
        publish: Callable[[RingTally], None] = lambda _tally: None,
        others: OtherArchives | None = None,
    ) -> None:
        self._writer = writer
        self._parameters = parameters
        self._log = log
        self._sessions: dict[Key, _SessionBuffer] = {}
        self._retry_at_ns: int | None = None  # the disk is not tried before then
        self.tally = tally or RingTally()
        self._publish = publish
        self._others = others
        self._before = self.tally.octets, self.tally.syncs
        self._overrun = 0  # packets that found no room, and are not logged yet
        self._overrun_logged_ns = 0
        self._unsynced: dict[Key, bool] = {}
        self._counted: dict[_Cut, RingTally] = {}  # totals of unsynced batches, which a full disk cuts off again
        self._fullness: _Fullness | None = None
        self.tally.unwritten = 0  # those of an earlier process are recorded as rows that it lost

    # Items from the ring

    def begin(self, feed: SessionFeed, first: int) -> None:
        """Note the first sqn of a session of which the archive has nothing yet, before any of its items."""
        buffer = self._session(feed)
        if buffer.next_sqn is None:
            buffer.next_sqn = first + feed.shift

    def add_run(self, feed: SessionFeed, run: Run, at_us: int) -> None:
        """Add a run."""
        buffer = self._session(feed)
        if buffer.frames is not None:
            buffer.frames.note(run)
        for item in buffer.reassembler.add(run):
            self._add_item(buffer, item, feed.shift, at_us)

    def add_lost(self, feed: SessionFeed, lost: Lost, at_us: int) -> None:
        """Add a loss, or what the archives of other recorders have in its place."""
        buffer = self._session(feed)
        for loss in buffer.reassembler.add_lost(lost):
            self._add_item(buffer, loss, feed.shift, at_us)

    def add_overrun(self, feed: SessionFeed, first: int, count: int, at_us: int) -> None:
        """Add a loss of packets that found no room in the ring, with one log line each `record_retry_ivl`."""
        self._overrun += count
        self.add_lost(feed, Lost(b"", first, count, LossCause.RECORDER), at_us)

    def add_closed(self, feed: SessionFeed, end: int, at_us: int) -> None:
        """Add the end of a session, of which all sqns before `end` were added."""
        buffer = self._session(feed)
        for loss in buffer.reassembler.end():
            self._add_item(buffer, loss, feed.shift, at_us)
        self.add_reached(feed, end, at_us)
        buffer.closes = True
        self._flush(buffer)

    def add_reached(self, feed: SessionFeed, end: int, at_us: int) -> None:
        """Record as lost the sqns before `end` that are not in the archive.

        The fragments of an unfinished message are accounted for by the reassembler.
        """
        buffer = self._session(feed)
        start = buffer.next_sqn
        if start is not None and start < end + feed.shift and buffer.reassembler.is_between:
            self._add_rows(buffer, rows_of_loss(start, end + feed.shift - start, _RECORDER, at_us))

    def _session(self, feed: SessionFeed) -> _SessionBuffer:
        key = feed.session.key
        buffer = self._sessions.get(key)
        if buffer is None:
            known = self._writer.index.sessions.get(key)
            reassembler = Reassembler(b"", self._parameters.max_apdu)
            buffer = self._sessions[key] = _SessionBuffer(feed.session, reassembler, known.next_sqn if known else None)
            if feed.has_batches:
                buffer.decoder = BatchDecoder(None, SubjectFilter(None))
            if feed.session.kind in (OPENED, SIGNED):
                buffer.frames = FrameMaker()
        return buffer

    def _add_item(
        self, buffer: _SessionBuffer, item: WholeMessages | LargeMessage | Lost, shift: int, at_us: int
    ) -> None:
        """Add the next item; skip sqns recorded before, and record unseen ones as lost."""
        first = (item.run.first if isinstance(item, WholeMessages) else item.first) + shift
        count = item.run.count if isinstance(item, WholeMessages) else item.count
        start = buffer.next_sqn if buffer.next_sqn is not None else first
        if first + count <= start:
            return
        if first > start:
            self._add_loss(buffer, (start, first), _RECORDER, at_us)
        elif first < start:
            rest = first + count - start
            if isinstance(item, WholeMessages):
                item = WholeMessages(item.tsi, item.run.part(item.run.end - rest, item.run.end))
            else:
                cause = item.cause if isinstance(item, Lost) else LossCause.FRAGMENT
                item = Lost(b"", start - shift, rest, cause)
        if isinstance(item, Lost):
            first = item.first + shift
            self._add_loss(buffer, (first, first + item.count), item.cause.value, at_us)
        elif buffer.decoder is None:
            rows = rows_of(item, shift, at_us)
            if buffer.frames is not None and isinstance(item, LargeMessage):
                rows = attrs.evolve(rows, frames=buffer.frames.of_large())
            self._add_rows(buffer, rows)
        else:
            self._add_batches(buffer, buffer.decoder, item, shift, at_us)

    def _add_loss(self, buffer: _SessionBuffer, span: Span, cause: str, at_us: int) -> None:
        """Add the rows of a loss, or those of other archives.

        A disk that is full or too slow gets no rows of others. Packets in conflict stay lost: another archive may hold a
        false copy.
        """
        is_conflict = cause == LossCause.CONFLICT.value
        if self._others is None or self._retry_at_ns is not None or self._overrun or is_conflict:
            self._add_rows(buffer, rows_of_loss(span[0], span[1] - span[0], cause, at_us))
            return
        for rows in self._others.rows(buffer.session, span, cause, at_us):
            self._add_rows(buffer, rows)

    def _add_batches(
        self, buffer: _SessionBuffer, decoder: BatchDecoder, item: WholeMessages | LargeMessage, shift: int, at_us: int
    ) -> None:
        """Add packets that hold batches; a packet that holds none is a loss."""
        if isinstance(item, LargeMessage):
            first, each, repaired = item.first, item.count, np.zeros(1, np.bool_)
            packets = np.frombuffer(item.payload, np.uint8).reshape(1, -1)
        else:
            first, each, repaired, packets = item.run.first, 1, repaired_of(item.run), item.run.payloads
        for decoded in decoder.add(first, packets):
            if isinstance(decoded, BadPackets):
                count = decoded.count * each
                self._add_rows(buffer, rows_of_loss(decoded.first + shift, count, LossCause.MALFORMED.value, at_us))
            else:
                places = decoded.sqns - first
                rows = rows_of_batch(decoded, shift, at_us, repaired[places], each)
                if buffer.frames is not None:
                    is_large = isinstance(item, LargeMessage)
                    frames = buffer.frames.of_batches(decoded, packets[places], is_large=is_large)
                    rows = attrs.evolve(rows, frames=frames)
                self._add_rows(buffer, rows)

    def _add_rows(self, buffer: _SessionBuffer, rows: RowBuilder) -> None:
        buffer.next_sqn = rows.end
        if self._retry_at_ns is not None:
            buffer.lost_from = rows.first if buffer.lost_from is None else buffer.lost_from
            return
        if not buffer.parts:
            buffer.since_ns = time.monotonic_ns()
        buffer.parts.append(rows)
        buffer.octets += rows.size
        if buffer.octets >= self._parameters.record_batch_bytes:
            self._flush(buffer)

    # Writing to the disk

    def _flush(self, buffer: _SessionBuffer) -> None:
        """Write the collected rows of a session."""
        if self._retry_at_ns is not None or not (buffer.parts or buffer.closes):
            return
        parts, buffer.parts, buffer.octets = buffer.parts, [], 0
        end = buffer.next_sqn or 0
        first = parts[0].first if parts else end
        now_us = time.time_ns() // 1000
        times = [part.received_us for part in parts] or [now_us]
        received = (min(times), max(times))  # the clock may be set meanwhile
        batch = batch_of(buffer.session, parts)
        try:
            self._writer.append(buffer.session, batch, first, end, received, closes=buffer.closes)
        except WriteFailed as failure:
            self._on_failure(failure)
            return
        self._unsynced[buffer.session.key] = buffer.closes
        if buffer.closes:
            self._sessions.pop(buffer.session.key, None)
        self._count(buffer.session, parts, batch.num_rows, (buffer.session.key, first, end))
        self._publish_tally()

    def _count(self, session: RecordedSession, parts: Sequence[RowBuilder], rows: int, cut: _Cut) -> None:
        """Count rows and losses. Proofs and key records are no messages: only those count that found no room."""
        is_companion = session.kind in COMPANIONS
        counted = RingTally(rows=0 if is_companion else rows)
        for part in parts:
            if part.lost is not None and not (is_companion and part.lost != _RECORDER):
                counted.loss_rows += 0 if is_companion else 1
                counted.lost[part.lost] = counted.lost.get(part.lost, 0) + part.end - part.first
        self._add_up(counted, 1)
        if self._writer.sync_due_ns is None:
            self._counted.clear()
        else:
            self._counted[cut] = counted

    def _add_up(self, counted: RingTally, sign: int) -> None:
        self.tally.rows += sign * counted.rows
        self.tally.loss_rows += sign * counted.loss_rows
        for cause, count in counted.lost.items():
            self.tally.lost[cause] = self.tally.lost.get(cause, 0) + sign * count

    def _publish_tally(self) -> None:
        self.tally.unwritten = self._unwritten()
        octets, syncs = self._before
        self.tally.octets, self.tally.syncs = octets + self._writer.octets, syncs + self._writer.syncs
        self._publish(self.tally)

    def synced(self) -> dict[Key, bool]:
        """Return the sessions synced since the last call, and whether each has ended."""
        if self._writer.sync_due_ns is not None or not self._unsynced:
            return {}
        synced, self._unsynced = self._unsynced, {}
        return synced

    def _on_failure(self, failure: WriteFailed) -> None:
        """Record unsynced and collected rows as lost, until the disk takes data again."""
        self._unsynced.clear()
        for entry in failure.entries:
            buffer = self._sessions.get(entry.session.key)
            if buffer is None:  # it was closed since
                reassembler = Reassembler(b"", self._parameters.max_apdu)
                buffer = self._sessions[entry.session.key] = _SessionBuffer(entry.session, reassembler, entry.end)
            buffer.lost_from = entry.first if buffer.lost_from is None else min(buffer.lost_from, entry.first)
            buffer.closes = buffer.closes or entry.closes
            self._add_up(self._counted.pop((entry.session.key, entry.first, entry.end), RingTally()), -1)
        for buffer in self._sessions.values():
            if buffer.parts:
                buffer.lost_from = buffer.parts[0].first if buffer.lost_from is None else buffer.lost_from
                buffer.parts, buffer.octets = [], 0
        if self._fullness is None:
            problem = "is full" if failure.error.errno in _NO_ROOM else "cannot be written"
            self._log(
                "archive-full",
                f"{self._writer.directory} {problem}: {failure.error.strerror}; packets are recorded as lost until it can be written again",
            )
            self._fullness = _Fullness(0)
        self._retry_at_ns = time.monotonic_ns() + self._parameters.record_retry_ivl
        self._publish_tally()

    def _retry(self) -> None:
        """Try to write the losses, and record again if the disk takes them."""
        self._retry_at_ns = None
        lost_packets = 0
        now_us = time.time_ns() // 1000
        for buffer in list(self._sessions.values()):
            if buffer.lost_from is None or buffer.next_sqn is None:
                continue
            first, buffer.lost_from = buffer.lost_from, None
            if first < buffer.next_sqn:
                lost_packets += buffer.next_sqn - first
                buffer.parts = [rows_of_loss(first, buffer.next_sqn - first, _RECORDER, now_us)]
                buffer.since_ns = time.monotonic_ns()
        for buffer in list(self._sessions.values()):
            self._flush(buffer)
        self._sync()
        if self._retry_at_ns is None and self._fullness is not None:
            self._fullness.lost += lost_packets
            self._fullness.calm_ns = time.monotonic_ns()

    def _unwritten(self) -> int:
        """Return the packets that are lost for the archive, while no row says so yet."""
        spans = ((one.lost_from, one.next_sqn) for one in self._sessions.values())
        return sum(end - first for first, end in spans if first is not None and end is not None)

    def _resume(self) -> None:
        """Log the end of a full disk."""
        if self._fullness is not None:
            lost, self._fullness = self._fullness.lost, None
            self._log(
                "archive-resumed",
                f"{self._writer.directory} can be written again: {lost} packets are recorded as lost",
            )

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except WriteFailed as failure:
            self._on_failure(failure)
        if self._writer.sync_due_ns is None:
            self._counted.clear()
        self._publish_tally()

    # Timers

    @property
    def wait_ns(self) -> int:
        """Time until the next timer is due, ns, if no item arrives."""
        now_ns = time.monotonic_ns()
        due = [now_ns + _IDLE_NS]
        if self._retry_at_ns is not None:
            due.append(self._retry_at_ns)
        elif self._fullness is not None:
            due.append(self._fullness.calm_ns + self._calm_ivl)
        due += [
            buffer.since_ns + self._parameters.record_batch_ivl for buffer in self._sessions.values() if buffer.parts
        ]
        sync_due = self._writer.sync_due_ns
        if sync_due is not None:
            due.append(now_ns + max(0, sync_due - time.time_ns()))
        return max(0, min(due) - now_ns)

    @property
    def _calm_ivl(self) -> int:
        return _CALM_RETRIES * self._parameters.record_retry_ivl

    def on_time(self) -> None:
        """Handle due timers: write batches that are old enough, sync, retry."""
        now_ns = time.monotonic_ns()
        if self._retry_at_ns is not None:
            if now_ns >= self._retry_at_ns:
                self._retry()
        elif self._fullness is not None and now_ns >= self._fullness.calm_ns + self._calm_ivl:
            self._resume()
        oldest_ns = now_ns - self._parameters.record_batch_ivl
        for buffer in list(self._sessions.values()):
            if buffer.parts and buffer.since_ns <= oldest_ns:
                self._flush(buffer)
        sync_due = self._writer.sync_due_ns
        if sync_due is not None and time.time_ns() >= sync_due:
            self._sync()
        if self._overrun and now_ns >= self._overrun_logged_ns + self._parameters.record_retry_ivl:
            self._log_overrun()

    def _log_overrun(self) -> None:
        self._log(
            "archive-slow",
            f"{self._overrun} packets arrived faster than {self._writer.directory} could be written: recorded as lost",
        )
        self._overrun, self._overrun_logged_ns = 0, time.monotonic_ns()

    def close(self) -> None:
        """Write all that remains; log the packets that the disk refuses even now."""
        if self._retry_at_ns is not None:
            self._retry()
        for buffer in list(self._sessions.values()):
            self._flush(buffer)
        self._sync()
        if self._retry_at_ns is not None:
            self._writer.free_reserve()
            self._retry()
        if self._retry_at_ns is None:
            self._resume()
        unrecorded = self._unwritten()
        if unrecorded:
            self._log(
                "archive-unrecorded",
                f"the last {unrecorded} packets are in {self._writer.directory} neither as messages nor as losses",
            )
        if self._overrun:
            self._log_overrun()
        try:
            self._writer.close()
        except WriteFailed as failure:
            self._log("archive-full", f"{self._writer.directory}: {failure.error.strerror}")
        self._publish_tally()
