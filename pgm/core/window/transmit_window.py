"""Transmit window of a source (RFC 3.3, 5.1, 16).

The window holds packets that the source can repair, and packets accepted and not yet sent.

Packets are built once, in the arena, when they are accepted; sending takes a slice. The trail moves by increments. A
new increment begins every TXW_ADV_SECS, and the strategy of `pgm.core.window.trail_advance` decides when the oldest
leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import attrs
import numpy as np

from pgm.core.in_place import replace_parameters
from pgm.core.structures.arena import Arena
from pgm.core.structures.ranges import Span
from pgm.core.structures.run_store import RunStore
from pgm.core.window.reassembly import fragment_options
from pgm.core.window.trail_advance import strategy_of
from pgm.errors import PayloadTooLarge
from pgm.parameters import Parameters
from pgm.units import MIB, NEVER, SECOND
from pgm.wire.checksum import INTEGER_OCTETS
from pgm.wire.data_packets import write_odata
from pgm.wire.formats import DATA_HEADER_OCTETS, FRAGMENT_OCTETS, PacketType, Tsi
from pgm.wire.options import Fin, Syn, encode_options
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.single_odata import SingleOdataWriter
from pgm.wire.train import MAX_CONVOY_PACKETS, Octets, Run, fragment_of, in_whole_trains

Payload = bytes | bytearray | memoryview
# Octets written at a time. Per-write calls are rare at this size, and longer writes were no faster.
_APPEND_OCTETS = MIB
_MOST_SQNS = (1 << 31) - 1  # W-18
_OCTETS = frozenset((bytes, bytearray))


class PayloadRows(Protocol):
    """`count` payloads of `octets` each that are written in place."""

    @property
    def count(self) -> int:
        """Number of payloads."""

    @property
    def octets(self) -> int:
        """Octets of each payload."""

    def write(self, rows: Octets, first: int) -> None:
        """Write payloads `first`, `first + 1` and so on into the rows."""


Owes = Callable[[int, int], bool]  # whether a repair is owed of any sqn from the first up to the second, exclusive


def owes_nothing(_first: int, _end: int) -> bool:
    """Return False: no repair is owed."""
    return False


@attrs.frozen
class Capacity:
    """Largest size of a window."""

    octets: int
    sqns: int

    @classmethod
    def of(cls, parameters: Parameters) -> Capacity:
        """Return the capacity that the parameters name."""
        lasts_ns = parameters.txw_secs + parameters.txw_adv_secs  # the oldest increment leaves as a whole
        octets = parameters.txw_bytes or parameters.txw_max_rte * lasts_ns // SECOND
        return cls(octets, min(parameters.txw_sqns or _MOST_SQNS, _MOST_SQNS))


@attrs.define
class _Increment:
    first: int
    begun_at_ns: int  # by the strategy's clock


class _Increments:
    """Increments of a window in order, and the time of its last packet."""

    def __init__(self, lasts_ns: int) -> None:
        self._lasts_ns = lasts_ns
        self._increments: deque[_Increment] = deque()
        self.last_sent_ns = 0

    def sent(self, first: int, clock_ns: int, now_ns: int) -> None:
        """Note packets from `first` on, which may begin an increment."""
        self.last_sent_ns = now_ns
        increments = self._increments
        if not increments or clock_ns >= increments[-1].begun_at_ns + self._lasts_ns:
            increments.append(_Increment(first, clock_ns))

    def first_since(self, clock_ns: int) -> int:
        """Return the first sqn of the increment that was begun at a time, or of the oldest one; NEVER without any."""
        firsts = [one.first for one in self._increments if one.begun_at_ns <= clock_ns]
        return firsts[-1] if firsts else self._increments[0].first if self._increments else NEVER

    def end_of_oldest(self, end: int) -> int:
        """Return the first sqn after the oldest increment. `end` is that of the window."""
        return self._increments[1].first if len(self._increments) > 1 else end

    def oldest_ended_ns(self) -> int:
        """Return when the oldest increment ended; NEVER without one."""
        if not self._increments:
            return NEVER
        return self._increments[1].begun_at_ns if len(self._increments) > 1 else self.last_sent_ns

    def drop_before(self, trail: int, end: int) -> None:
        """Drop what lies before a new trail."""
        while self._increments and self.end_of_oldest(end) <= trail:
            self._increments.popleft()
        if self._increments and self._increments[0].first < trail:
            self._increments[0].first = trail


_FIXED = frozenset({"max_tpdu"})  # a window has a size of packets of its own
_LONG = 4  # A full window drops its oldest increment in parts if the increment is longer than 1 / _LONG of the window.
_PARTS = 8  # Each part is 1 / _PARTS of the window.


class TransmitWindow:
    """Transmit window of a source: `trail` is the oldest repairable sqn, `lead` the newest sent, `end` the next."""

    def __init__(self, tsi: Tsi, data_port: int, parameters: Parameters, first: int = 0) -> None:
        self._parameters = parameters
        self._plain = SingleOdataWriter(tsi, data_port)
        self._arena = Arena(warm_octets=parameters.warm_bytes, oldest_first=True)
        self._store = RunStore()
        self._increments = _Increments(parameters.txw_adv_secs)
        self.strategy = strategy_of(parameters)
        self._first = first
        self.trail = first
        self.lead = first - 1
        self.end = first
        self.unsent_octets = 0
        self._hole: Span = (first, first)  # the sqns after the last short group, which the next packet leaves out
        self.unstable_from = NEVER
        self.capacity = Capacity.of(parameters)
        self._most_alone = min(parameters.max_tpdu - DATA_HEADER_OCTETS, INTEGER_OCTETS, self.largest_payload)

    def change(self, parameters: Parameters) -> None:
        """Take other parameters, and a larger capacity."""
        replace_parameters(self._parameters, parameters, without=_FIXED)
        wanted = Capacity.of(self._parameters)
        self.capacity = Capacity(max(self.capacity.octets, wanted.octets), max(self.capacity.sqns, wanted.sqns))
        self.strategy.change(self._parameters)

    # Accepting

    @property
    def largest_payload(self) -> int:
        """Octets of the largest message that is accepted."""
        return min(self._parameters.max_apdu, self.capacity.octets // 2)

    def append(self, payloads: Sequence[Payload]) -> None:
        """Assign sqns to messages in order and build their packets.

        Raise before any message is taken: `PayloadTooLarge`, or ValueError for a view whose items are not octets.
        """
        if not _OCTETS.issuperset(map(type, payloads)) and any(
            memoryview(payload).nbytes != len(payload) for payload in payloads
        ):
            raise ValueError("a message whose items are not octets")
        largest = self._parameters.max_tpdu - DATA_HEADER_OCTETS
        limit = self.largest_payload
        sizes = list(map(len, payloads))
        if sizes and max(sizes) > limit:
            raise PayloadTooLarge(
                f"a message of {max(sizes)} octets does not fit: the limit is {limit}",
                remedy="raise max_apdu, txw_bytes or txw_secs, or send it in parts",
            )
        if payloads and self.end == self._hole[0]:
            self.end = self._hole[1]
        at = self._append_first(payloads[0]) if payloads and self._owes_syn else 0
        while at < len(payloads):
            size = sizes[at]
            if size > largest:
                self._append_fragments(payloads[at])
                at += 1
                continue
            until = min(len(payloads), at + self._rows_at_once(size))
            if sizes[at:until].count(size) < until - at:  # equal sizes need no step per message
                until = at + 1
                while sizes[until] == size:
                    until += 1
            if until == at + 1 and size <= INTEGER_OCTETS:
                self._append_alone(payloads[at])
                at = until
                continue
            joined = np.frombuffer(b"".join(payloads[at:until]), np.uint8)
            self._append_rows(joined.reshape(until - at, size), b"", None)
            at = until

    def append_rows(self, payloads: Octets | PayloadRows) -> None:
        """Assign sqns to messages of equal size, a (count, size) array or rows to write. Raise `PayloadTooLarge`."""
        if not isinstance(payloads, np.ndarray):
            self._append_written(payloads)
            return
        if payloads.shape[1] > self._parameters.max_tpdu - DATA_HEADER_OCTETS:
            self.append([row.data for row in np.ascontiguousarray(payloads)])
            return
        if len(payloads) and self.end == self._hole[0]:
            self.end = self._hole[1]
        at = self._append_first(payloads[0]) if len(payloads) and self._owes_syn else 0
        while at < payloads.shape[0]:
            until = at + self._rows_at_once(payloads.shape[1])
            self._append_rows(payloads[at:until], b"", None)
            at = until

    def _append_written(self, payloads: PayloadRows) -> None:
        at, size = 0, payloads.octets
        while at < payloads.count:
            until = min(payloads.count, at + self._rows_at_once(size))
            if self._owes_syn or size > self._parameters.max_tpdu - DATA_HEADER_OCTETS:
                rows = np.empty((until - at, size), np.uint8)
                payloads.write(rows, at)
                self.append_rows(rows)
            else:
                if self.end == self._hole[0]:
                    self.end = self._hole[1]
                run = self._room_for(until - at, DATA_HEADER_OCTETS, size)
                payloads.write(run.payloads, at)
                self._build(run, b"", None)
            at = until

    @property
    def next_sqn(self) -> int:
        """The sqn of the next message."""
        return self._hole[1] if self.end == self._hole[0] else self.end

    def resume_at(self, sqn: int) -> None:
        """Leave out the sqns before `sqn`: a group ended early (FEC-21), and everything accepted was sent."""
        self._hole = (self.end, sqn)

    @property
    def _first_unsent(self) -> int:
        return self._hole[1] if self.lead + 1 == self._hole[0] else self.lead + 1

    @property
    def _owes_syn(self) -> bool:
        return self._parameters.mark_ends and self.end == self._first

    def _append_first(self, payload: Payload | Octets) -> int:
        """Append the first message, with OPT_SYN if it fits (SRC-29). Return the messages taken, 0 or 1."""
        options, _ = encode_options((Syn(),), PacketType.ODATA)
        octets = np.frombuffer(payload, np.uint8)
        if DATA_HEADER_OCTETS + len(options) + len(octets) > self._parameters.max_tpdu:
            return 0
        self._append_rows(octets.reshape(1, -1), options, None)
        return 1

    def mark_end(self) -> None:
        """Put OPT_FIN on the last packet (SRC-28), unless it was sent or has no room for the option."""
        last = self._store.find(self.end - 1)
        if not self._parameters.mark_ends or not self.has_unsent or last is None:
            return
        last = last.part(self.end - 1, self.end)
        payloads, fragment = last.payloads, fragment_of(last)
        options, _ = encode_options((*last.options(), Fin()), PacketType.ODATA)
        if DATA_HEADER_OCTETS + len(options) + payloads.shape[1] > self._parameters.max_tpdu:
            return
        self._take_back(self.end - 1)
        at = None if fragment is None else range(fragment.offset, fragment.offset + 1)
        self._frame(self._copy_of(payloads, options), options, at)  # the payload is as it leaves

    def drop_unsent(self) -> None:
        """Drop messages that were accepted and not sent."""
        self._take_back(self.lead + 1)

    def _take_back(self, sqn: int) -> None:
        before = self._store.octets
        self._store.drop_from(sqn)
        self.unsent_octets -= before - self._store.octets
        self.end = min(self.end, sqn)

    def _append_fragments(self, payload: Payload) -> None:
        size = self._parameters.max_tpdu - DATA_HEADER_OCTETS - FRAGMENT_OCTETS
        octets = np.frombuffer(payload, np.uint8)
        options = fragment_options(self.end, len(octets))
        whole = len(octets) // size
        at = 0
        while at < whole:
            until = min(whole, at + self._rows_at_once(FRAGMENT_OCTETS + size))
            rows = octets[at * size : until * size].reshape(until - at, size)
            self._append_rows(rows, options, range(at * size, until * size, size))
            at = until
        if whole * size < len(octets):
            self._append_rows(octets[whole * size :].reshape(1, -1), options, range(whole * size, len(octets), size))

    def _rows_at_once(self, size: int) -> int:
        """Return how many payloads of a size to write next: as many as fill a chunk, to leave little unused."""
        stride = DATA_HEADER_OCTETS + size
        most = in_whole_trains(max(1, _APPEND_OCTETS // stride), stride)
        return min(most, self._arena.left_octets // stride or most)

    def _append_rows(self, payloads: Octets, options: bytes, offsets: range | None) -> None:
        self._build(self._copy_of(payloads, options), options, offsets)

    def _copy_of(self, payloads: Octets, options: bytes) -> Run:
        count, size = payloads.shape
        run = self._room_for(count, DATA_HEADER_OCTETS + len(options), size)
        run.payloads[...] = payloads
        return run

    def _room_for(self, count: int, payload_at: int, size: int) -> Run:
        """Reserve memory for the next packets."""
        stride = payload_at + size
        return Run(self.end, count, *self._arena.room(count * stride), stride, payload_at)

    def _build(self, run: Run, options: bytes, offsets: range | None) -> None:
        """Build packets around payloads of messages that are in place, and keep the packets."""
        self._frame(run, options, offsets)

    def _frame(self, run: Run, options: bytes, offsets: range | None) -> None:
        write_odata(
            run.rows,
            tsi=self._plain.tsi,
            data_port=self._plain.data_port,
            first=run.first,
            trail=self.trail,
            option_octets=options,
            fragment_offsets=offsets,
        )
        self._keep(run)

    def _append_alone(self, payload: Payload) -> None:
        packet = self._plain.packet(bytes(payload), self.end, self.trail)  # a list may hold arrays too
        octets = len(packet)
        self._store.append_alone(self.end, *self._arena.put(packet), octets, DATA_HEADER_OCTETS)
        self.end += 1
        self.unsent_octets += octets

    def _keep(self, run: Run) -> None:
        """Keep packets that were written at the arena's position."""
        self._arena.keep(run.octets)
        self._store.add(run)
        self.end += run.count
        self.unsent_octets += run.octets

    @property
    def held_octets(self) -> int:
        """Memory of the window in octets, in whole chunks."""
        return self._store.pinned_octets

    # Sending

    @property
    def has_unsent(self) -> bool:
        """Whether some packets wait to be sent."""
        return self.lead + 1 < self.end

    @property
    def unsent_packets(self) -> int:
        """Packets that wait to be sent."""
        return self.end - self.lead - 1

    @property
    def next_octets(self) -> int:
        """Largest number of octets that may be sent next."""
        first = self._first_unsent
        run = self._store.find(first)
        return 0 if run is None else min(run.end - first, MAX_CONVOY_PACKETS) * run.stride

    def next_train(
        self, most_octets: int, now_ns: int, most_packets: int = MAX_CONVOY_PACKETS, owes: Owes = owes_nothing
    ) -> Octets | None:
        """Return the next unsent packets, or None while the window is full.

        Return at least one packet, and at most `most_octets` and `most_packets`. The packets are one train or several
        full trains. The last train may be short if no more packets wait. A full window may wait for repairs that `owes`
        confirms.
        """
        first = self._first_unsent
        run = self._store.find(first)
        if run is None:
            return None
        stride = run.stride
        room = self._make_room(stride, now_ns, owes)
        if not room:
            return None
        most = min(room, most_packets, max(1, most_octets // stride))
        count = run.first + run.count - first
        if count > most:
            count = in_whole_trains(most, stride)
        at, octets = run.offset + (first - run.first) * stride, count * stride
        self.unsent_octets -= octets
        self._note_sent(first, first + count - 1, octets, now_ns)
        return run.buffer[at : at + octets].reshape(count, stride)

    def has_room_alone(self, payload: Payload, now_ns: int, owes: Owes) -> bool:
        """Make room for a message, and return whether `number_alone` may take it."""
        return (
            len(payload) <= self._most_alone
            and type(payload) in _OCTETS
            and self.end == self.lead + 1
            and not self._owes_syn
            and self.end == self.next_sqn
            and self._make_room(DATA_HEADER_OCTETS + len(payload), now_ns, owes) > 0
        )

    def number_alone(self, payload: Payload) -> bytes | None:
        """Assign the next sqn to one message and return its packet.

        The method is the fast path of `append` and `next_train`; a call of `keep_alone` must follow. The caller knows
        from `has_room_alone` or from the last `keep_alone` that there is room. Return None and take nothing if the
        message is no octet string or is too large.
        """
        kind = type(payload)
        if len(payload) > self._most_alone or (kind is not bytes and kind not in _OCTETS):
            return None
        sqn = self.lead = self.end
        self.end = sqn + 1
        return self._plain.packet(payload, sqn, self.trail)

    def keep_alone(self, packet: bytes, now_ns: int) -> bool:
        """Keep the packet `number_alone` returned last. Return whether another packet of any size has room."""
        stride, store = len(packet), self._store
        store.append_alone(self.lead, *self._arena.put(packet), stride, DATA_HEADER_OCTETS)
        self._note_sent(self.lead, self.lead, stride, now_ns)
        # the next packet will probably have the same size
        self._plain.prepare(stride - DATA_HEADER_OCTETS, self.end, self.trail)
        capacity = self.capacity
        has_octets = store.octets + self._most_alone + DATA_HEADER_OCTETS <= capacity.octets
        return has_octets and self.end - self.trail < capacity.sqns

    def _note_sent(self, first: int, last: int, octets: int, now_ns: int) -> None:
        self.lead = last
        self._increments.sent(first, self.strategy.elapsed_ns(now_ns), now_ns)
        self.strategy.sent(octets)

    def parts(self, first: int, end: int) -> Iterator[Run]:
        """Yield the repairable runs of `first` to `end - 1`."""
        return self._store.parts(max(first, self.trail), min(end, self.lead + 1))

    def stride_of(self, first: int, end: int) -> int:
        """Return the size of packets `first` to `end - 1`; 0 unless all are repairable, of one size, in few runs."""
        return self._store.stride_of(first, end) if self.trail <= first and end <= self.lead + 1 else 0

    def copy_of(self, spans: Sequence[Span], stride: int) -> Octets:
        """Copy the packets of ordered spans that `stride_of` has confirmed."""
        return self._store.copy_of(spans, stride)

    def sent_since(self, ago_ns: int, now_ns: int) -> int:
        """Return the first sqn of those sent in the last `ago_ns`, in steps of TXW_ADV_SECS."""
        return self._increments.first_since(self.strategy.elapsed_ns(now_ns) - ago_ns)

    def first_within(self, octets: int) -> int:
        """Return the first sqn of about the last `octets` that were sent."""
        sent = self.lead + 1 - self.trail
        held = max(1, self._store.octets - self.unsent_octets)
        return self.lead + 1 - min(sent, sent * octets // held)

    # Advancing

    def keep_from(self, sqn: int) -> None:
        """Keep all packets from `sqn` on: some member of an acknowledged stream may still send a NAK for them."""
        self.unstable_from = sqn

    def _room_packets(self, stride: int) -> int:
        """Return how many packets of a size fit before the window is full; one of any size in an empty window."""
        sqns = self.lead + 1 - self.trail
        octets = self.capacity.octets - (self._store.octets - self.unsent_octets)
        return max(0 if sqns else 1, min(octets // stride, self.capacity.sqns - sqns))

    def _make_room(self, stride: int, now_ns: int, owes: Owes) -> int:
        """Make room for a packet if there is none. Return for how many there is room now."""
        room = self._room_packets(stride)
        if not room:
            if self.strategy.holds(now_ns, is_owed=owes(self.trail, self._watched_end)):
                return 0
            while not room:
                trail = self._trail_for_room()
                if trail > self.unstable_from:
                    return 0
                self._move_trail(trail)
                room = self._room_packets(stride)
        self.strategy.moved()
        return room

    def _trail_for_room(self) -> int:
        """Return the trail to which a full window advances.

        The trail advances by the oldest increment, or by a part of an increment that is most of the window.
        TXW_ADV_SECS may be as long as the time the window can hold. Dropping such an increment at once would make
        recent packets unrepairable.
        """
        sqns = self.lead + 1 - self.trail
        trail = self._next_trail
        return trail if trail <= self.trail + sqns // _LONG else self.trail + max(1, sqns // _PARTS)

    def note_nak(self, first: int, now_ns: int) -> None:
        """Note a NAK for `first`, which may hold a full window."""
        if self.trail <= first < self._watched_end:
            self.strategy.nak(now_ns)

    @property
    def _watched_end(self) -> int:
        if self.unstable_from != NEVER:  # members' missing packets already hold the window
            return self.trail
        end, held = self.lead + 1, self._store.octets - self.unsent_octets
        # Measure against a full window: young packets need not leave soon, even if they are the oldest present.
        sqns = min(self.capacity.sqns, (end - self.trail) * self.capacity.octets // max(1, held))
        return self.strategy.watched_end(min(self.trail, end - sqns), self._next_trail, end)

    def retry_at(self) -> int:
        """Return when a full window may have room again."""
        return self.strategy.retry_at()

    @property
    def deadline_ns(self) -> int:
        """When the oldest increment leaves a window that has room."""
        ended_ns = self._increments.oldest_ended_ns()
        if ended_ns == NEVER or self._next_trail > self.unstable_from:
            return NEVER
        return self.strategy.expires_at(ended_ns, self._increments.last_sent_ns)

    @property
    def _next_trail(self) -> int:
        return self._increments.end_of_oldest(self.lead + 1)

    def advance(self, now_ns: int) -> None:
        """Drop expired increments; an idle window closes completely (SRC-13)."""
        while self.deadline_ns <= now_ns:
            self._move_trail(self._next_trail)

    def advance_to(self, sqn: int) -> None:
        """Move the trail to `sqn`, before which no repair is needed (SRC-14). A message it splits stays whole."""
        run = self._store.find(sqn) if sqn <= self.lead else None
        fragment = fragment_of(run.part(sqn, sqn + 1)) if run is not None else None
        self._move_trail(min(sqn, self.lead + 1) if fragment is None else unwrap(fragment.first_sqn, sqn))

    def _move_trail(self, trail: int) -> None:
        self.trail = max(self.trail, trail)
        self._store.drop_before(self.trail)
        self._increments.drop_before(self.trail, self.lead + 1)
