"""The recorder's writing side: what came becomes rows, rows become batches, and what the disk does not take becomes losses."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import attrs
import numpy as np

from pgm.archive.recording.feeds import SessionFeed
from pgm.archive.recording.rows import RowBuilder, batch_of, repaired_of, rows_of, rows_of_batch, rows_of_loss
from pgm.archive.recording.shared_ring import RingTally
from pgm.archive.session import RecordedSession
from pgm.archive.store.index import Key
from pgm.archive.store.recovery import Log
from pgm.archive.store.writer import ArchiveWriter, WriteFailed
from pgm.core.effects import LossCause, Lost
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.messages.batch_decoder import BadPackets, BatchDecoder
from pgm.messages.subjects import SubjectFilter
from pgm.parameters import Parameters
from pgm.units import SECOND
from pgm.wire.train import Run

_RECORDER = LossCause.RECORDER.value
_IDLE_NS = SECOND  # between two looks at nothing
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@attrs.define(eq=False)
class _Gathered:
    """What one session has in memory. `next_sqn` is behind everything that was gathered; None until something was."""

    session: RecordedSession
    reassembler: Reassembler
    next_sqn: int | None
    decoder: BatchDecoder | None = None
    parts: list[RowBuilder] = attrs.field(factory=list)
    octets: int = 0
    since_ns: int = 0
    lost_from: int | None = None  # everything from here to next_sqn found no room on the disk
    closes: bool = False


class RowCollector:
    """Writes what feeds bring. Never raises for a disk that takes nothing.

    `tally` goes on from what others recorded before, and `publish` gets it whenever it has changed.
    """

    def __init__(
        self,
        writer: ArchiveWriter,
        parameters: Parameters,
        log: Log,
        tally: RingTally | None = None,
        publish: Callable[[RingTally], None] = lambda _tally: None,
    ) -> None:
        self._writer = writer
        self._parameters = parameters
        self._log = log
        self._sessions: dict[Key, _Gathered] = {}
        self._retry_at_ns: int | None = None  # the disk takes nothing until then
        self.tally = tally or RingTally()
        self._publish = publish
        self._before = self.tally.octets, self.tally.syncs
        self._overrun = 0  # packets that found no room, and were not told of yet
        self._overrun_told_ns = 0
        self._unsynced: dict[Key, bool] = {}

    # What comes

    def begin(self, feed: SessionFeed, first: int) -> None:
        """Say where a session began of which the archive has nothing yet, before anything of it."""
        one = self._session(feed)
        if one.next_sqn is None:
            one.next_sqn = first + feed.shift

    def add_run(self, feed: SessionFeed, run: Run, at_us: int) -> None:
        """Take a run."""
        one = self._session(feed)
        for found in one.reassembler.add(run):
            self._add_found(one, found, feed.shift, at_us)

    def add_lost(self, feed: SessionFeed, lost: Lost, at_us: int) -> None:
        """Take a loss."""
        one = self._session(feed)
        for loss in one.reassembler.add_lost(lost):
            self._add_found(one, loss, feed.shift, at_us)

    def add_overrun(self, feed: SessionFeed, first: int, count: int, at_us: int) -> None:
        """Take what found no room on its way here. It is told of, if not too often."""
        self._overrun += count
        self.add_lost(feed, Lost(b"", first, count, LossCause.RECORDER), at_us)

    def add_closed(self, feed: SessionFeed, end: int, at_us: int) -> None:
        """Take the end of a session, of which everything up to `end` was taken."""
        one = self._session(feed)
        for loss in one.reassembler.end():
            self._add_found(one, loss, feed.shift, at_us)
        self.add_reached(feed, end, at_us)
        one.closes = True
        self._flush(one)

    def add_reached(self, feed: SessionFeed, end: int, at_us: int) -> None:
        """Record as lost what was taken of a session up to `end` and is not in the archive.

        A message under way says itself what becomes of it.
        """
        one = self._session(feed)
        start = one.next_sqn
        if start is not None and start < end + feed.shift and one.reassembler.is_between:
            self._add_rows(one, rows_of_loss(start, end + feed.shift - start, _RECORDER, at_us))

    def _session(self, feed: SessionFeed) -> _Gathered:
        key = feed.session.key
        one = self._sessions.get(key)
        if one is None:
            known = self._writer.index.sessions.get(key)
            reassembler = Reassembler(b"", self._parameters.max_apdu)
            one = self._sessions[key] = _Gathered(feed.session, reassembler, known.next_sqn if known else None)
            if feed.has_batches:
                one.decoder = BatchDecoder(None, SubjectFilter(None))
        return one

    def _add_found(self, one: _Gathered, found: WholeMessages | LargeMessage | Lost, shift: int, at_us: int) -> None:
        """Take what follows; what was recorded before is passed over, what nobody recorded is a loss."""
        first = (found.run.first if isinstance(found, WholeMessages) else found.first) + shift
        count = found.run.count if isinstance(found, WholeMessages) else found.count
        start = one.next_sqn if one.next_sqn is not None else first
        if first + count <= start:
            return
        if first > start:
            self._add_rows(one, rows_of_loss(start, first - start, _RECORDER, at_us))
        elif first < start:
            rest = first + count - start
            if isinstance(found, WholeMessages):
                found = WholeMessages(found.tsi, found.run.part(found.run.end - rest, found.run.end))
            else:
                cause = found.cause if isinstance(found, Lost) else LossCause.FRAGMENT
                found = Lost(b"", start - shift, rest, cause)
        if isinstance(found, Lost):
            self._add_rows(one, rows_of_loss(found.first + shift, found.count, found.cause.value, at_us))
        elif one.decoder is None:
            self._add_rows(one, rows_of(found, shift, at_us))
        else:
            self._add_batches(one, one.decoder, found, shift, at_us)

    def _add_batches(
        self, one: _Gathered, decoder: BatchDecoder, found: WholeMessages | LargeMessage, shift: int, at_us: int
    ) -> None:
        """Take packets that hold batches; one that holds none is a loss."""
        if isinstance(found, LargeMessage):
            first, each, repaired = found.first, found.count, np.zeros(1, np.bool_)
            packets = np.frombuffer(found.payload, np.uint8).reshape(1, -1)
        else:
            first, each, repaired, packets = found.run.first, 1, repaired_of(found.run), found.run.payloads
        for item in decoder.add(first, packets):
            if isinstance(item, BadPackets):
                count = item.count * each
                self._add_rows(one, rows_of_loss(item.first + shift, count, LossCause.MALFORMED.value, at_us))
            else:
                places = item.sqns - first
                self._add_rows(one, rows_of_batch(item, shift, at_us, repaired[places], each))

    def _add_rows(self, one: _Gathered, rows: RowBuilder) -> None:
        one.next_sqn = rows.end
        if self._retry_at_ns is not None:
            one.lost_from = rows.first if one.lost_from is None else one.lost_from
            return
        if not one.parts:
            one.since_ns = time.monotonic_ns()
        one.parts.append(rows)
        one.octets += rows.size
        if one.octets >= self._parameters.record_batch_bytes:
            self._flush(one)

    # What goes to the disk

    def _flush(self, one: _Gathered) -> None:
        """Write what a session has gathered."""
        if self._retry_at_ns is not None or not (one.parts or one.closes):
            return
        parts, one.parts, one.octets = one.parts, [], 0
        end = one.next_sqn or 0
        first = parts[0].first if parts else end
        now_us = time.time_ns() // 1000
        received = (parts[0].received_us, parts[-1].received_us) if parts else (now_us, now_us)
        batch = batch_of(one.session, parts)
        try:
            self._writer.append(one.session, batch, first, end, received, closes=one.closes)
        except WriteFailed as failed:
            self._failed(failed)
            return
        self._unsynced[one.session.key] = one.closes
        if one.closes:
            self._sessions.pop(one.session.key, None)
        self.tally.rows += batch.num_rows
        for part in parts:
            if part.lost is not None:
                self.tally.loss_rows += 1
                self.tally.lost[part.lost] = self.tally.lost.get(part.lost, 0) + part.end - part.first
        self._tell_tally()

    def _tell_tally(self) -> None:
        octets, syncs = self._before
        self.tally.octets, self.tally.syncs = octets + self._writer.octets, syncs + self._writer.syncs
        self._publish(self.tally)

    def synced(self) -> dict[Key, bool]:
        """Sessions of which something went to the disk since the last call, and whether they have ended there."""
        if self._writer.sync_due_ns is not None or not self._unsynced:
            return {}
        found, self._unsynced = self._unsynced, {}
        return found

    def _failed(self, failed: WriteFailed) -> None:
        """The disk takes no more: what was not synced, and what is gathered, is lost; so is what comes until it does."""
        self._unsynced.clear()
        for entry in failed.entries:
            one = self._sessions.get(entry.session.key)
            if one is None:  # it was closed since
                reassembler = Reassembler(b"", self._parameters.max_apdu)
                one = self._sessions[entry.session.key] = _Gathered(entry.session, reassembler, entry.end)
            one.lost_from = entry.first if one.lost_from is None else min(one.lost_from, entry.first)
            one.closes = one.closes or entry.closes
            self.tally.rows -= entry.rows if entry.offset else 0
        for one in self._sessions.values():
            if one.parts:
                one.lost_from = one.parts[0].first if one.lost_from is None else one.lost_from
                one.parts, one.octets = [], 0
        if self._retry_at_ns is None:
            what = "is full" if failed.error.errno in _NO_ROOM else "cannot be written"
            self._log(
                "archive-full",
                f"{self._writer.directory} {what}: {failed.error.strerror}; what comes is recorded as lost until it takes more",
            )
        self._retry_at_ns = time.monotonic_ns() + self._parameters.record_retry_ivl

    def _retry(self) -> None:
        """Try to write what was lost as losses; if that works, go on."""
        self._retry_at_ns = None
        told = 0
        now_us = time.time_ns() // 1000
        for one in list(self._sessions.values()):
            if one.lost_from is None or one.next_sqn is None:
                continue
            first, one.lost_from = one.lost_from, None
            if first < one.next_sqn:
                told += one.next_sqn - first
                one.parts = [rows_of_loss(first, one.next_sqn - first, _RECORDER, now_us)]
                one.since_ns = time.monotonic_ns()
        for one in list(self._sessions.values()):
            self._flush(one)
        self._sync()
        if self._retry_at_ns is None:
            self._log("archive-resumed", f"{self._writer.directory} takes more: {told} packets are recorded as lost")

    def _sync(self) -> None:
        try:
            self._writer.sync()
        except WriteFailed as failed:
            self._failed(failed)
        self._tell_tally()

    # Time

    @property
    def wait_ns(self) -> int:
        """How long nothing has to be done if nothing comes."""
        now_ns = time.monotonic_ns()
        due = [now_ns + _IDLE_NS]
        if self._retry_at_ns is not None:
            due.append(self._retry_at_ns)
        due += [one.since_ns + self._parameters.record_batch_ivl for one in self._sessions.values() if one.parts]
        sync_due = self._writer.sync_due_ns
        if sync_due is not None:
            due.append(now_ns + max(0, sync_due - time.time_ns()))
        return max(0, min(due) - now_ns)

    def on_time(self) -> None:
        """Do what is due: write batches that are old enough, sync, try again."""
        now_ns = time.monotonic_ns()
        if self._retry_at_ns is not None and now_ns >= self._retry_at_ns:
            self._retry()
        oldest_ns = now_ns - self._parameters.record_batch_ivl
        for one in list(self._sessions.values()):
            if one.parts and one.since_ns <= oldest_ns:
                self._flush(one)
        sync_due = self._writer.sync_due_ns
        if sync_due is not None and time.time_ns() >= sync_due:
            self._sync()
        if self._overrun and now_ns >= self._overrun_told_ns + self._parameters.record_retry_ivl:
            self._tell_overrun()

    def _tell_overrun(self) -> None:
        self._log(
            "archive-slow",
            f"{self._overrun} packets came faster than {self._writer.directory} took them: recorded as lost",
        )
        self._overrun, self._overrun_told_ns = 0, time.monotonic_ns()

    def close(self) -> None:
        """Write all there is; what the disk does not take even now is told in the log."""
        if self._retry_at_ns is not None:
            self._retry()
        for one in list(self._sessions.values()):
            self._flush(one)
        self._sync()
        unrecorded = sum(
            (one.next_sqn or 0) - one.lost_from for one in self._sessions.values() if one.lost_from is not None
        )
        if unrecorded:
            self._log(
                "archive-unrecorded",
                f"the last {unrecorded} packets are in {self._writer.directory} neither as messages nor as losses",
            )
        if self._overrun:
            self._tell_overrun()
        try:
            self._writer.close()
        except WriteFailed as failed:
            self._log("archive-full", f"{self._writer.directory}: {failed.error.strerror}")
        self._tell_tally()
