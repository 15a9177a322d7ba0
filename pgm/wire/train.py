"""Trains: with `pgm.wire.packet_run`, the only file that slices received octets.

A `Train` is one read, or several reads that are adjacent in memory. The packets have equal size, except that the last
one may be shorter. Parsing a train yields control packets and `Data`: consecutive data packets of one session with the
same format.

`pgm.wire.train_grouping` decides which packets form one item. A single packet, and each packet of a train of control
packets, is summed as one large integer. The integer sum saves the cost of numpy calls; the result is the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import WireError
from pgm.wire import checksum
from pgm.wire.control_packets import Packet, decode_control_untrusted, packet_type_untrusted
from pgm.wire.formats import (
    DATA,
    DATA_HEADER_OCTETS,
    HEADER,
    HEADER_OCTETS,
    OPTIONS_PARITY,
    OPTIONS_PRESENT,
    OPTIONS_VAR_PKTLEN,
    SQN_AT,
    TRAIL_AT,
    TYPE_AT,
    PacketType,
    Tsi,
)
from pgm.wire.naks import Naks, naks_untrusted
from pgm.wire.options import NO_OPTIONS, Fragment, Options, decode_options_untrusted
from pgm.wire.packet_run import Run as Run
from pgm.wire.packet_run import fragment_of as fragment_of
from pgm.wire.sequence_numbers import HALF, MASK
from pgm.wire.train_grouping import group_packets

Octets = npt.NDArray[np.uint8]

_DATA_TYPES = frozenset(int(kind) for kind in DATA)
_NAK_TYPES = frozenset(map(int, (PacketType.NAK, PacketType.NNAK, PacketType.NCF)))

# One send of at most 64 KB with all its headers: the device cuts a longer one into single packets (gso_max_size).
MAX_TRAIN_OCTETS = 65_400
MAX_TRAIN_PACKETS = 64  # UDP_MAX_SEGMENTS of older kernels
# Trains that are sent together if they are adjacent in memory. The fixed cost of a call of numpy or of a core is paid
# once for all of them, and the octets still fit a processor's second cache.
MAX_CONVOY_OCTETS = 8 * MAX_TRAIN_OCTETS
MAX_CONVOY_PACKETS = 8 * MAX_TRAIN_PACKETS
# Trains that are read together if so many wait. That pays if some packets are lost, although no cache holds the octets.
MAX_READ_OCTETS = 16 * MAX_TRAIN_OCTETS
MAX_READ_PACKETS = 16 * MAX_TRAIN_PACKETS


def packets_a_train(stride: int) -> int:
    """Return how many packets of a size one system call sends."""
    return max(1, min(MAX_TRAIN_PACKETS, MAX_TRAIN_OCTETS // stride))


def fits_behind(octets: int, stride: int, tail: int) -> bool:
    """Return whether one system call sends packets of `stride` octets, and a shorter one of `tail` octets behind them."""
    return octets + tail <= MAX_TRAIN_OCTETS and octets // stride < MAX_TRAIN_PACKETS


def in_whole_trains(count: int, stride: int) -> int:
    """Return how many of `count` packets to process together. More packets than one train are cut to full trains."""
    full = packets_a_train(stride)
    return count - count % full if count > full else count


@attrs.define(eq=False)
class _Keeping:
    """Record whether some part keeps views of a train.

    The record is an object of its own, so that parsed items need not refer to the train. Items and train would
    otherwise wait as a cycle for the garbage collector, together with their chunk.
    """

    is_kept: bool = False
    end: int = 0  # end of the train's octets in their buffer, if there is room after them
    room: int = 0  # octets after the end that are free until the next read, for the part that keeps the train
    grown: int = 0  # octets of the room that are used; negative if the last octets of the train are free

    def leave_out(self, octets: int) -> None:
        """Free the last `octets` octets of the train."""
        self.end -= octets
        self.room += octets
        self.grown -= octets


@attrs.define(eq=False)
class Data:
    """Consecutive data packets of one session in a train. Type, ports, size and options are the same."""

    type: PacketType
    tsi: Tsi
    data_port: int
    wire_sqn: int
    count: int
    wire_trail: int  # of the last packet
    parity: bool
    options: Options
    buffer: Octets
    offset: int
    stride: int
    payload_at: int
    keeping: _Keeping

    @property
    def says_more(self) -> bool:
        """Whether options say more than the position in a fragmented message."""
        return bool(self.options) and (len(self.options) > 1 or type(self.options[0]) is not Fragment)

    def run(self, first: int) -> Run:
        """Return the packets as a run under 64-bit sqns, and mark the train as kept."""
        self.keeping.is_kept = True
        return Run(first, self.count, self.buffer, self.offset, self.stride, self.payload_at)

    def view(self, first: int) -> Run:
        """Return the packets as a run that is valid until the next read."""
        return Run(first, self.count, self.buffer, self.offset, self.stride, self.payload_at)

    @property
    def octets(self) -> Octets:
        """The packets as received, contiguous."""
        return self.buffer[self.offset : self.offset + self.count * self.stride]


@attrs.define(eq=False)
class DataWithGaps:
    """Data packets of one session in a train, with gaps between their sqns.

    The packets have no options, and differ only in sqn and checksum. The packets form pieces of consecutive sqns.
    `data` is the first piece. For each piece in arrival order, `rows` has its position in memory, in packets from the
    first. `spans` has its sqns, relative to the sqn of the first packet.
    """

    data: Data
    count: int  # packets
    rows: list[int]
    spans: list[tuple[int, int]]
    is_ascending: bool  # each piece has higher sqns than the piece before

    @property
    def tsi(self) -> Tsi:
        """The TSI of the session."""
        return self.data.tsi

    @property
    def data_port(self) -> int:
        """The data port of the stream."""
        return self.data.data_port

    def pieces(self) -> Iterator[Data]:
        """Yield each piece as an item of its own."""
        data = self.data
        for row, (low, end) in zip(self.rows, self.spans, strict=True):
            yield Data(
                data.type,
                data.tsi,
                data.data_port,
                data.wire_sqn + low & MASK,
                end - low,
                data.wire_trail,
                data.parity,
                data.options,
                data.buffer,
                data.offset + row * data.stride,
                data.stride,
                data.payload_at,
                data.keeping,
            )

    def runs(self, base: int) -> list[Run]:
        """Return the pieces as runs, and mark the train as kept. `base` is the 64-bit sqn of the first packet."""
        self.data.keeping.is_kept = True
        return self.views(base)

    def views(self, base: int) -> list[Run]:
        """Return the pieces as runs that are valid until the next read."""
        data = self.data
        buffer, offset, stride, payload_at = data.buffer, data.offset, data.stride, data.payload_at
        return [
            Run(base + low, end - low, buffer, offset + row * stride, stride, payload_at)
            for row, (low, end) in zip(self.rows, self.spans, strict=True)
        ]

    def spread_run(self, base: int) -> Run:
        """Return all pieces as one run with the holes that `open_gaps` made room for. Mark the train as kept."""
        data = self.data
        data.keeping.is_kept = True
        return Run(base, self.spans[-1][1], data.buffer, data.offset, data.stride, data.payload_at)

    def open_gaps(self, most: int) -> bool:
        """Make room in memory for the packets that are missing between ascending pieces.

        All pieces are then one run with holes. Return False and move nothing if more than `most` packets are missing,
        or if the read has no room after it. Other data in the way also prevents the move.
        """
        data, keeping = self.data, self.data.keeping
        offset, stride, spans, rows = data.offset, data.stride, self.spans, self.rows
        low, end = spans[-1]
        empty = low - rows[-1]
        if not 0 < empty <= most or empty * stride > keeping.room or offset + (end - empty) * stride != keeping.end:
            return False
        view, octets = data.buffer.data, empty * stride
        view[keeping.end : keeping.end + octets] = bytes(octets)  # a hole has no octets of others, for tapes
        for index in range(len(rows) - 1, 0, -1):
            (low, end), row = spans[index], rows[index]
            begin = offset + row * stride
            view[offset + low * stride : offset + end * stride] = view[begin : begin + (end - low) * stride]
            rows[index] = low
        keeping.end += octets
        keeping.room -= octets
        keeping.grown += octets
        return True


Item = Data | Packet


@attrs.define(eq=False)
class Train:
    """Datagrams of one read: `length` octets at `offset` of `buffer`.

    The octets are cut every `stride` octets. `kept` becomes true when some part keeps views of the train, and tells the
    driver not to reuse the octets.
    """

    buffer: Octets
    offset: int
    length: int
    stride: int
    keeping: _Keeping = attrs.field(factory=_Keeping)
    _parsed: tuple[list[Item | DataWithGaps], list[str]] | None = None
    _runs: tuple[list[Item], list[str]] | None = None
    _singles: tuple[list[Item], list[str]] | None = None
    whole: Train | None = None  # of which this is the part for one of several endpoints

    @classmethod
    def of(cls, octets: bytes | bytearray | Octets, stride: int = 0) -> Train:
        """Return a train over its own octets; one packet unless a stride is given."""
        buffer = octets if isinstance(octets, np.ndarray) else np.frombuffer(octets, np.uint8)
        return cls(buffer, 0, len(buffer), stride or max(1, len(buffer)))

    @property
    def kept(self) -> bool:
        """Whether the octets must stay in place."""
        return self.keeping.is_kept

    @kept.setter
    def kept(self, is_kept: bool) -> None:
        self.keeping.is_kept = is_kept

    def has_room_behind(self) -> None:
        """Let the part that keeps the train, and no other, use the room after its octets until the next read."""
        keeping = self.keeping
        keeping.end = self.offset + self.length
        keeping.room = self.buffer.nbytes - keeping.end

    @property
    def octets_to_keep(self) -> int:
        """Number of octets to stay in place if the train is kept, counted from the first octet of the train."""
        return self.length + self.keeping.grown

    @property
    def count(self) -> int:
        """Number of packets, including a shorter last one."""
        return -(-self.length // self.stride)

    def part(self, items: list[Item | DataWithGaps], rejects: list[str]) -> Train:
        """Return the train as one of several endpoints sees it, with some of its items; the octets are shared."""
        return Train(self.buffer, self.offset, self.length, self.stride, self.keeping, (items, rejects), whole=self)

    def packets(self) -> Iterator[bytes]:
        """Yield each packet as octets of its own."""
        for at in range(0, self.length, self.stride):
            yield self.buffer[self.offset + at : self.offset + min(at + self.stride, self.length)].tobytes()

    def without(self, lost: npt.NDArray[np.bool_]) -> Train | None:
        """Return a copy without the packets marked lost, or None if no packet remains."""
        octets = self.buffer[self.offset : self.offset + self.length].copy()
        left = Train(octets, 0, self.length, self.stride).closed_up(lost)
        return None if left is None else Train(octets[: left.length], 0, left.length, left.stride)

    def closed_up(self, lost: npt.NDArray[np.bool_]) -> Train | None:
        """Remove the packets marked lost in place, move later ones up. Only the owner may, before the parsing."""
        octets, first, stride = self.buffer.data, self.offset, self.stride
        end = first + self.length
        gone = lost.nonzero()[0].tolist()
        at = first + gone[0] * stride if gone else end
        for low, behind in itertools.pairwise([*gone, self.count]):
            start, stop = first + (low + 1) * stride, min(first + behind * stride, end)
            if start < stop:
                octets[at : at + stop - start] = octets[start:stop]
                at += stop - start
        at = min(at, end)
        return Train(self.buffer, first, at - first, min(stride, at - first)) if at > first else None

    def parse_untrusted(self) -> tuple[list[Item], list[str]]:
        """Return all items in order, control packets one by one, and the reject reasons. The function never raises."""
        if self._singles is None:
            items, rejects = self.parse_runs_untrusted()
            if any(type(item) is Naks for item in items):
                items = [single for item in items for single in (item.singles() if isinstance(item, Naks) else (item,))]
            self._singles = items, rejects
        return self._singles

    def parse_runs_untrusted(self) -> tuple[list[Item], list[str]]:
        """Return all items in order, grouped NAKs as `Naks`, and the reject reasons. The function never raises."""
        if self._runs is None:
            items, rejects = self.parse_scattered_untrusted()
            each = (item.pieces() if isinstance(item, DataWithGaps) else (item,) for item in items)
            self._runs = [piece for pieces in each for piece in pieces], rejects
        return self._runs

    def parse_scattered_untrusted(self) -> tuple[list[Item | DataWithGaps], list[str]]:
        """Return all items in order, and the reject reasons; data may have gaps.

        Data packets with gaps may be one `DataWithGaps`. The result is cached, so that a train that reaches many nodes
        of a simulation is parsed once.
        """
        if self._parsed is None:
            items: list[Item | DataWithGaps] = []
            rejects: list[str] = []
            self._parsed = items, rejects
            if self.length == self.stride and HEADER_OCTETS <= self.length <= checksum.INTEGER_OCTETS:
                _parse_one_untrusted(self, self.offset, self.length, items, rejects)
                return self._parsed
            whole = self.length // self.stride
            if whole:
                _parse_block_untrusted(self, self.offset, whole, self.stride, items, rejects)
            tail = self.length - whole * self.stride
            if tail:
                before = len(items)
                _parse_block_untrusted(self, self.offset + whole * self.stride, 1, tail, items, rejects)
                if not any(isinstance(item, (Data, DataWithGaps)) for item in items[before:]):
                    self.keeping.leave_out(tail)
        return self._parsed


def _parse_block_untrusted(
    train: Train, offset: int, count: int, stride: int, items: list[Item | DataWithGaps], rejects: list[str]
) -> None:
    """Parse `count` packets of equal size. An invalid packet does not affect the others."""
    if stride < HEADER_OCTETS:
        rejects.extend(["truncated"] * count)
        return
    kind = int(train.buffer[offset + TYPE_AT])
    is_short = stride < DATA_HEADER_OCTETS or (count == 1 and stride <= checksum.INTEGER_OCTETS)
    if is_short or kind not in _DATA_TYPES:
        if count > 1 and kind in _NAK_TYPES:
            naks = naks_untrusted(train.buffer[offset : offset + count * stride].reshape(count, stride))
            if naks is not None:
                items.append(naks)
                return
        for at in range(offset, offset + count * stride, stride):
            _parse_one_untrusted(train, at, stride, items, rejects)
        return
    rows = train.buffer[offset : offset + count * stride].reshape(count, stride)
    wrong = count
    for first, cuts, no_checksum in group_packets(rows):
        wrong -= cuts[-1]
        _read_group_untrusted(train, offset + first * stride, stride, cuts, no_checksum, items, rejects)
    rejects.extend(["checksum"] * wrong)


def _read_group_untrusted(
    train: Train,
    at: int,
    stride: int,
    cuts: list[int],
    no_checksum: bool,
    items: list[Item | DataWithGaps],
    rejects: list[str],
) -> None:
    """Parse packets from `at` on as one item, with gaps where `cuts` says."""
    count = cuts[-1]
    try:
        data = _read_untrusted(train.buffer.data[at : at + stride], train, at, cuts[1], no_checksum)
    except WireError as error:
        rejects.extend([error.reason] * count)
        return
    if cuts[1] == count:
        items.append(data)
        return
    assert isinstance(data, Data)
    octets, sqn_at, wire_sqn = train.buffer.data, at + SQN_AT, data.wire_sqn
    behind, spans, is_ascending = cuts[1], [(0, cuts[1])], True
    for row, end in itertools.pairwise(cuts[1:]):
        place = sqn_at + row * stride
        low = (int.from_bytes(octets[place : place + 4], "big") - wire_sqn + HALF & MASK) - HALF
        is_ascending &= low > behind
        behind = low + end - row
        spans.append((low, behind))
    items.append(DataWithGaps(data, count, cuts[:-1], spans, is_ascending))


def _parse_one_untrusted(
    train: Train, offset: int, stride: int, items: list[Item | DataWithGaps], rejects: list[str]
) -> None:
    octets = train.buffer.data[offset : offset + stride].tobytes()
    is_unsealed = checksum.is_absent(octets)
    if not is_unsealed and not checksum.is_valid(octets):
        rejects.append("checksum")
        return
    try:
        items.append(_read_untrusted(octets, train, offset, 1, is_unsealed))
    except WireError as error:
        rejects.append(error.reason)


def _read_untrusted(octets: bytes | memoryview, train: Train, offset: int, count: int, no_checksum: bool) -> Item:
    """Parse one item: `count` packets from `offset` on. `octets` are those of the first packet. Raise `WireError`."""
    stride = len(octets)
    _, dport, type_octet, flags, _, gsi, tsdu_length = HEADER.unpack_from(octets)
    kind = packet_type_untrusted(type_octet)
    if kind not in DATA:
        return decode_control_untrusted(bytes(octets))
    if no_checksum:
        raise WireError("no_checksum")
    if stride < DATA_HEADER_OCTETS:
        raise WireError("truncated")
    if flags & OPTIONS_VAR_PKTLEN and not flags & OPTIONS_PARITY:
        raise WireError("flags")
    options, payload_at = NO_OPTIONS, DATA_HEADER_OCTETS
    if flags & OPTIONS_PRESENT:
        options, payload_at = decode_options_untrusted(memoryview(octets), DATA_HEADER_OCTETS, stride)
    if payload_at + tsdu_length != stride:
        raise WireError("length")
    last = octets if count == 1 else train.buffer.data[offset + (count - 1) * stride : offset + count * stride]
    return Data(
        kind,
        gsi + octets[:2],
        dport,
        int.from_bytes(octets[SQN_AT : SQN_AT + 4], "big"),
        count,
        int.from_bytes(last[TRAIL_AT : TRAIL_AT + 4], "big"),
        bool(flags & OPTIONS_PARITY),
        options,
        train.buffer,
        offset,
        stride,
        payload_at,
        train.keeping,
    )
