"""Batches of messages that share packets, packed at the source and unpacked at the receiver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from pgm.core.counters import Counters
from pgm.core.effects import CloseCause, Closed, LossCause, Lost, Opened
from pgm.core.source.source import SourceCore
from pgm.core.structures.arena import BlockPool
from pgm.core.subject_counts import SubjectCounts
from pgm.errors import PayloadTooLarge, SourceClosed, UsageError
from pgm.messages.arguments import Names, Payload, Payloads, columns_of_arguments, longest_of, require_node
from pgm.messages.batch_decoder import BatchDecoder, DecodedBatch
from pgm.messages.batch_encoder import FullBatches, OpenBatch, pack
from pgm.messages.batch_format import TIME_OCTETS, compose
from pgm.messages.columns import Columns
from pgm.messages.subjects import SubjectFilter, require_absolute
from pgm.net.framing.items import Batch, BatchItem
from pgm.net.framing.packed_batch import PackedBatch
from pgm.parameters import Parameters
from pgm.units import MICROSECOND, NEVER, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS, Tsi

# A call with at most this many messages lets them share packets with those of other calls.
_FEW_MESSAGES = 16
# Upper bound of the octets that a batch of one message has beside the message and its names.
_OVERHEAD_OCTETS = 96


class BatchSender:
    """Packer of a source's messages into batches that fill packets.

    A message waits up to `flush_ivl` for others to share its packet. It does not wait while few packets leave
    (`flush_rte`), nor with `flush`. While the rate or the window holds packets back, all messages wait, so that later
    packets are full.

    Raises `UsageError` if the transmit window has no room for a batch.
    """

    def __init__(self, core: SourceCore, parameters: Parameters, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._core = core
        self._wall_ns = wall_ns if parameters.batch_times else None
        self._flush_ivl = parameters.flush_ivl
        self._sparse_ivl = SECOND // parameters.flush_rte if parameters.flush_rte else NEVER
        room = min(core.max_tpdu - DATA_HEADER_OCTETS, core.window.largest_payload)
        self.largest = core.window.largest_payload - _OVERHEAD_OCTETS - (TIME_OCTETS if self._wall_ns else 0)
        if self.largest < 1:
            raise UsageError(
                f"a transmit window for payloads of {core.window.largest_payload} octets holds no batch",
                remedy="raise max_apdu, txw_bytes or txw_secs",
            )
        self._filling = OpenBatch(room, has_time=self._wall_ns is not None)
        self._subjects = SubjectCounts(parameters.max_subjects)
        core.counters.subjects[core.setup.data_port] = self._subjects
        self._is_due = False  # leave once no packet waits ahead
        self._deadline_ns = NEVER
        self._emitted_ns = -NEVER

    def _time_us(self) -> int | None:
        """Return the time to write into a batch, in us since the epoch; None without `batch_times`."""
        return None if self._wall_ns is None else self._wall_ns() // MICROSECOND

    @property
    def has_rest(self) -> bool:
        """Return whether a message waits that is in no packet yet."""
        return len(self._filling) > 0

    def add(self, payload: Payload, subject: str | None, to: str | None, *, flush: bool, now_ns: int) -> int:
        """Accept one message. Return the sqn of its packet.

        Raises `UsageError`, `PayloadTooLarge`, `SourceClosed` or ValueError before the message is accepted.
        """
        if subject is not None:
            require_absolute(subject)
        if to is not None:
            require_node(to)
        if type(payload) is not bytes and memoryview(payload).nbytes != len(payload):
            raise ValueError("the items of a message are not octets")
        names = 0 if subject is None and to is None else len((subject or "").encode()) + len((to or "").encode())
        if len(payload) + names > self.largest:
            self._require_fit(len(payload) + names)
        self._core.require_open()
        sqn = self._fill(payload, subject, to, now_ns)
        if flush or self._deadline_ns == NEVER:
            self._schedule(now_ns, flush=flush)
        return sqn

    def _fill(self, payload: Payload, subject: str | None, to: str | None, now_ns: int) -> int:
        if not self._filling.add(payload, subject, to):
            self.send_rest(now_ns)
            self._filling.add(payload, subject, to)
        return self._core.window.end

    def add_batch(self, payloads: Payloads, subject: Names, to: Names, *, flush: bool, now_ns: int) -> int:
        """Accept many messages. Return the first sqn.

        At most 16 messages share packets with other calls; more messages fill packets of their own. Raises as `add`.
        """
        columns = columns_of_arguments(payloads, subject, to)
        if not columns.count:
            return self._core.window.end
        names = longest_of(columns.subjects) + longest_of(columns.nodes)
        self._require_fit((columns.size if columns.offsets is None else int(columns.sizes.max())) + names)
        self._core.require_open()
        if columns.count <= _FEW_MESSAGES:
            subjects, nodes = columns.names_of_all()
            messages = list(zip(columns.payloads(), subjects, nodes, strict=True))
            sqn = self._fill(*messages[0], now_ns)
            for message in messages[1:]:
                self._fill(*message, now_ns)
            self._schedule(now_ns, flush=flush)
            return sqn
        self.send_rest(now_ns)
        sqn = self._core.window.end
        for batches in pack(columns, self._filling.room, self._time_us()):
            if isinstance(batches, FullBatches):
                self._core.submit_rows(batches)
            else:
                self._core.submit(batches)
        self._emitted_ns = now_ns
        self._count(columns)
        return sqn

    def _count(self, columns: Columns) -> None:
        self._core.counters.messages_sent += columns.count
        self._subjects.add(columns.subjects, columns.subject, columns.count)

    def _require_fit(self, octets: int) -> None:
        if octets > self.largest:
            raise PayloadTooLarge(
                f"a message of {octets} octets, names included, does not fit: the limit is {self.largest}",
                remedy="raise max_apdu, txw_bytes or txw_secs, or send it in parts",
            )

    def _schedule(self, now_ns: int, *, flush: bool) -> None:
        """Schedule when the open batch leaves."""
        if not self.has_rest:
            return
        if flush or not self._flush_ivl or now_ns - self._emitted_ns >= self._sparse_ivl:
            self._is_due = True
            self.send_rest_if_idle(now_ns)
        elif self._deadline_ns == NEVER:
            self._deadline_ns = now_ns + self._flush_ivl

    @property
    def deadline_ns(self) -> int:
        """Return when the open batch must leave by `flush_ivl`, in ns; NEVER if no time is set."""
        return self._deadline_ns

    def handle_deadline(self, now_ns: int) -> None:
        """Send the open batch if its deadline is over, or as soon as no packet waits ahead."""
        if self._deadline_ns <= now_ns:
            self._deadline_ns = NEVER
            self._is_due = True
            self.send_rest_if_idle(now_ns)

    def flush(self, now_ns: int) -> None:
        """Send the open batch as soon as no packet waits ahead."""
        self._is_due = self.has_rest
        self.send_rest_if_idle(now_ns)

    def send_rest_if_idle(self, now_ns: int) -> None:
        """Send the open batch if it is due and no packet waits ahead."""
        if self._is_due and not self._core.window.has_unsent:
            self.send_rest(now_ns)

    def send_rest(self, now_ns: int) -> None:
        """Send the open batch. After an abort the stream has ended, and the batch is not sent."""
        if not self.has_rest:
            return
        self._is_due, self._deadline_ns, self._emitted_ns = False, NEVER, now_ns
        columns = self._filling.take_columns()
        try:
            self._core.submit((compose(columns, at_us=self._time_us()),))
        except SourceClosed:
            return
        self._count(columns)


class BatchReceiver:
    """Unpacker of batches in a receiver's packets. Each session has a decoder; all share one filter."""

    def __init__(
        self, data_ports: Iterable[int], node: str, subjects: SubjectFilter, counters: Counters, max_subjects: int
    ) -> None:
        self._node = node
        self.subjects = subjects
        self._counters = counters
        self._decoders: dict[Tsi, tuple[BatchDecoder, SubjectCounts]] = {}
        counters.subjects.update((port, SubjectCounts(max_subjects)) for port in data_ports)
        self._blocks = BlockPool()

    def take(self, item: BatchItem) -> Iterator[BatchItem]:
        """Yield the messages of an item; yield the item itself if its stream has no batches."""
        if isinstance(item, Batch):
            known = self._decoders.get(item.tsi)
            if known is None:
                yield item
            else:
                yield from self._decode(*known, item)
            return
        if isinstance(item, Opened) and item.data_port in self._counters.subjects and item.tsi not in self._decoders:
            decoder = BatchDecoder(self._node, self.subjects, self._blocks.take)
            self._decoders[item.tsi] = decoder, self._counters.subjects[item.data_port]
        elif isinstance(item, Closed) and item.cause is not CloseCause.SILENT:
            self._decoders.pop(item.tsi, None)
        yield item

    def _decode(self, decoder: BatchDecoder, subjects: SubjectCounts, item: Batch) -> Iterator[BatchItem]:
        for result in decoder.add(item.first_sqn, item.payloads):
            if isinstance(result, DecodedBatch):
                self._counters.messages_skipped += result.skipped
                columns = result.columns
                self._counters.messages_received += columns.count
                if columns.count:
                    subjects.add(columns.subjects, columns.subject, columns.count)
                    yield PackedBatch(item.tsi, columns, result.sqns, result.counts)
            else:
                count = result.count * item.packets_each
                self._counters.framing_rejects += count
                yield Lost(item.tsi, result.first, count, LossCause.MALFORMED)

    def wanted(self, item: BatchItem) -> BatchItem | None:
        """Return the item without messages that no subscription matches any more; None if none is left."""
        if not isinstance(item, PackedBatch) or self.subjects.takes_all:
            return item
        return _selected(item, self.subjects)


def _selected(batch: PackedBatch, subjects: SubjectFilter) -> PackedBatch | None:
    columns: Columns = batch.columns
    mask = subjects.wanted(columns.subjects)[batch.subject_indexes]
    if mask.all():
        return batch
    packet = np.repeat(np.arange(len(batch.packet_counts)), batch.packet_counts)[mask]
    counts = np.bincount(packet, minlength=len(batch.packet_counts)).astype(np.int64)
    kept = columns.select(np.flatnonzero(mask))
    return PackedBatch(batch.tsi, kept, batch.packet_sqns, counts) if kept.count else None
