"""Encoder of messages into batches that fill packets: many at once with numpy, or one by one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from pgm.messages.batch_format import (
    MOST_MESSAGES,
    TIME_OCTETS,
    BatchLayout,
    as_items,
    compose,
    head,
    read_layout,
    table_octets,
    width_of,
)
from pgm.messages.columns import MIXED, Columns, Indexes, Octets

_WORD_OCTETS = 8  # full batches are padded to a multiple of this, which speeds up the checksum
_TIME_ITEM_OCTETS = 8
_MANY = 16  # full packets from which the padding of one more costs only some per cent
_TABLE_SHARE = 8  # every packet repeats a table of up to an eighth of the packet
_FRONT_OCTETS = 40  # maximum of a batch without tables: keys, counts and heads
_OFFSET_OCTETS = 4
_TABLE_KEYS_OCTETS = {"subjects": 24, "nodes": 20}  # maximum of both keys and the array's heads


@attrs.frozen(eq=False)
class FullBatches:
    """`count` equal batches of `octets` each. `write` builds them in the caller's memory."""

    layout: BatchLayout
    count: int
    columns: Columns  # messages of all batches except `last`
    last: bytes  # a last batch that is ready, or empty
    at_us: int | None

    @property
    def octets(self) -> int:
        """Return the octets of each batch."""
        return self.layout.octets

    def write(self, rows: Octets, first: int) -> None:
        """Build batches `first`, `first + 1` and so on in `rows`, a (batches, octets) array."""
        layout, columns = self.layout, self.columns
        full = self.count - bool(self.last)
        if first + len(rows) > full:
            rows[full - first] = np.frombuffer(self.last, np.uint8)
            rows = rows[: full - first]
        at, end = first * layout.count, (first + len(rows)) * layout.count
        as_items(rows)[:] = as_items(layout.sample)
        _put(rows, layout.data.begin, columns.data[at * layout.size : end * layout.size])
        for place, indexes in ((layout.subject, columns.subject), (layout.to, columns.to)):
            if not isinstance(place, int) and not isinstance(indexes, int):
                _put(rows, place.begin, np.ascontiguousarray(indexes[at:end], place.dtype).view(np.uint8))
        if layout.at is not None and self.at_us is not None:
            octets = self.at_us.to_bytes(_TIME_ITEM_OCTETS, "big")
            rows[:, layout.at.begin : layout.at.end] = np.frombuffer(octets, np.uint8)


def _put(rows: Octets, begin: int, octets: Octets) -> None:
    """Distribute octets over all rows, from column `begin` on."""
    if len(octets):
        each = octets.reshape(len(rows), -1)
        as_items(rows[:, begin : begin + each.shape[1]])[:] = as_items(each)


def pack(columns: Columns, room: int, at_us: int | None = None) -> Iterator[FullBatches | list[bytes]]:
    """Yield batches of at most `room` octets in order, as equal batches or as lists of unequal ones.

    `at_us` is the time of the batches in us since 1970, or None for none. A message larger than `room` becomes a longer batch
    of its own.
    """
    layout = None if columns.offsets is not None else _fullest_of(columns, room, at_us)
    if layout is None:
        yield list(_pack_mixed(columns, room, at_us))
    else:
        yield from _pack_equal(columns, layout, at_us)


def _fullest_of(columns: Columns, room: int, at_us: int | None) -> BatchLayout | None:
    subject, to = columns.subject, columns.to
    return _fullest(
        columns.size,
        columns.subjects,
        subject if isinstance(subject, int) else None,
        columns.nodes,
        to if isinstance(to, int) else None,
        room,
        at_us is not None,
    )


def _front(at_us: int | None) -> int:
    return _FRONT_OCTETS if at_us is None else _FRONT_OCTETS + TIME_OCTETS


def _table_length(subjects: tuple[str, ...], nodes: tuple[str, ...]) -> int:
    return len(table_octets("subjects", subjects)) + len(table_octets("nodes", nodes))


def _fits_everywhere(subjects: tuple[str, ...], nodes: tuple[str, ...], room: int) -> bool:
    """Return whether the tables are small enough for every packet."""
    return not (subjects or nodes) or _table_length(subjects, nodes) <= room // _TABLE_SHARE


def _index_width(indexes: Indexes | int, names: Sequence[str]) -> int:
    return 0 if isinstance(indexes, int) else width_of(len(names))


def _pack_equal(columns: Columns, layout: BatchLayout, at_us: int | None) -> Iterator[FullBatches | list[bytes]]:
    """Pack messages of one size whose tables every packet repeats. All full packets then have one layout."""
    count = layout.count
    full = columns.count // count if columns.count // count > 1 else 0
    # After many full packets the rest gets the same length: a train has packets of one length, and the packets of the next
    # call then join the train.
    pad_to = layout.octets if full >= _MANY else 0
    parts = [columns.part(at, min(at + count, columns.count)) for at in range(full * count, columns.count, count)]
    rest = [compose(part, pad_to, at_us) for part in parts]
    last = rest.pop() if full and rest and len(rest[0]) == layout.octets else b""
    if full:
        yield FullBatches(layout, full + bool(last), columns, last, at_us)
    if rest:
        yield rest


@functools.lru_cache(maxsize=64)
def _fullest(
    size: int,
    subjects: tuple[str, ...],
    subject: int | None,
    nodes: tuple[str, ...],
    to: int | None,
    room: int,
    has_time: bool,
) -> BatchLayout | None:
    """Return the layout of a full batch: the most messages of one size that fit into `room`.

    `subject` and `to` are one index for all messages, or None for one index each. Returns None if the tables are too large
    for every packet.
    """
    if not _fits_everywhere(subjects, nodes, room):
        return None
    at_us = 0 if has_time else None

    def batch_of(count: int, pad_to: int = 0) -> bytes:
        indexes = [np.zeros(count, np.uint8) if index is None else index for index in (subject, to)]
        columns = Columns(count, np.zeros(count * size, np.uint8), size, None, subjects, indexes[0], nodes, indexes[1])
        return compose(columns, pad_to, at_us)

    front = _front(at_us) + sum(_TABLE_KEYS_OCTETS.values()) + _table_length(subjects, nodes)
    index_octets = sum(width_of(len(names)) for names, index in ((subjects, subject), (nodes, to)) if index is None)
    count = max(1, min(MOST_MESSAGES, (room - front) // (size + index_octets)))
    while count < MOST_MESSAGES and len(batch_of(count + 1)) <= room:
        count += 1
    octets = len(batch_of(count))
    padded = -(-octets // _WORD_OCTETS) * _WORD_OCTETS
    return read_layout(batch_of(count, padded if padded <= room else 0))


def _pack_mixed(columns: Columns, room: int, at_us: int | None) -> Iterator[bytes]:
    """Pack messages of any sizes. Each packet takes as many as surely fit, and is padded to `room`."""
    costs = columns.sizes + (_OFFSET_OCTETS if room > 0xFFFF else _OFFSET_OCTETS // 2)
    front = _front(at_us)
    is_shared = _fits_everywhere(columns.subjects, columns.nodes, room)
    for key, names, indexes in (("subjects", columns.subjects, columns.subject), ("nodes", columns.nodes, columns.to)):
        if names:
            front += _TABLE_KEYS_OCTETS[key] + (len(table_octets(key, names)) if is_shared else 0)
            costs += _index_width(indexes, names)
            if not is_shared:
                lengths = np.array([0, *(len(name.encode()) + 3 for name in names)], np.int64)
                costs += lengths[indexes]
    ends = np.cumsum(costs)
    first, spent = 0, 0
    while first < columns.count:
        end = int(np.searchsorted(ends, spent + room - front, side="right"))
        end = min(max(end, first + 1), first + MOST_MESSAGES, columns.count)
        part = columns.part(first, end)
        # The last packet needs no padding, because it leaves alone.
        yield compose(part if is_shared else _own_tables(part), room if end < columns.count else 0, at_us)
        first, spent = end, int(ends[end - 1])


def _own_tables(columns: Columns) -> Columns:
    """Return the same messages with tables of only the names in use."""
    subjects, subject = _own_table(columns.subjects, columns.subject)
    nodes, to = _own_table(columns.nodes, columns.to)
    return attrs.evolve(columns, subjects=subjects, subject=subject, nodes=nodes, to=to)


def _own_table(names: tuple[str, ...], indexes: Indexes | int) -> tuple[tuple[str, ...], Indexes | int]:
    if isinstance(indexes, int):
        return ((names[indexes - 1],), 1) if indexes else ((), 0)
    places: dict[int, int] = {0: 0}
    chosen = [places.setdefault(index, len(places)) for index in indexes.tolist()]
    own = tuple(names[index - 1] for index in places if index)
    if len(set(chosen)) == 1:
        return own, chosen[0]
    return own, np.array(chosen, f"<u{width_of(len(own))}")


@attrs.define
class _NameTable:
    """Table of names of an open packet, and each message's index in it. Both are empty while no message has a name."""

    key: str
    places: dict[str, int] = attrs.field(factory=dict)
    indexes: list[int] = attrs.field(factory=list)
    octets: int = 0
    _last: str | None = None
    _is_plain: bool = True  # all messages have the same name

    def cost_with(self, name: str | None, count: int) -> int:
        """Return the maximum octets of table and indexes after one more message, which follows `count` others."""
        octets, names, is_same = self.octets, len(self.places), name == self._last
        if not is_same and name is not None and name not in self.places:
            octets, names = octets + _octets_of(name), names + 1
        is_plain = self._is_plain and (is_same or not count)
        return _TABLE_KEYS_OCTETS[self.key] + octets + (0 if is_plain else (count + 1) * width_of(names))

    def add(self, name: str | None, count: int) -> None:
        """Add the name of the message that follows `count` others."""
        if name == self._last and self.indexes:
            self.indexes.append(self.indexes[-1])
            return
        place = 0
        if name is not None:
            place = self.places.get(name, 0)
            if not place:
                place = self.places[name] = len(self.places) + 1
                self.octets += _octets_of(name)
        if len(self.indexes) < count:
            self.indexes += [0] * (count - len(self.indexes))
        self._is_plain = not count
        self._last = name
        self.indexes.append(place)

    def take(self) -> tuple[tuple[str, ...], Indexes | int]:
        """Return table and indexes of all messages, and start an empty table."""
        if not self.places:
            return (), 0
        names, indexes, is_plain = tuple(self.places), self.indexes, self._is_plain
        self.places, self.indexes, self.octets, self._last, self._is_plain = {}, [], 0, None, True
        if is_plain:
            return names, indexes[0]
        return names, np.array(indexes, f"<u{width_of(len(names))}")


def _octets_of(name: str) -> int:
    """Return the maximum octets that a name adds to a table, with its head."""
    octets = len(name.encode())
    return octets + len(head(0, octets)) + 2


class OpenBatch:
    """Packet that is filled message by message. `has_time` reserves room for the time of `take`."""

    def __init__(self, room: int, *, has_time: bool = False) -> None:
        self.room = room
        self._front = _front(0 if has_time else None)
        self._payloads: list[bytes | bytearray | memoryview] = []
        self._octets = 0
        self._size = 0  # of every message, or MIXED
        self._subjects = _NameTable("subjects")
        self._nodes = _NameTable("nodes")

    def __len__(self) -> int:
        return len(self._payloads)

    def _has_room_for(self, size: int, subject: str | None, to: str | None) -> bool:
        """Return whether one more message surely fits into the packet."""
        count = len(self._payloads)
        octets = self._front + self._octets + size
        if count and size == self._size:
            pass
        elif count or not size:
            octets += (count + 2) * (_OFFSET_OCTETS if self.room > 0xFFFF else _OFFSET_OCTETS // 2)
        if subject is not None or self._subjects.places:
            octets += self._subjects.cost_with(subject, count)
        if to is not None or self._nodes.places:
            octets += self._nodes.cost_with(to, count)
        return octets <= self.room and count < MOST_MESSAGES

    def add(self, payload: bytes | bytearray | memoryview, subject: str | None, to: str | None) -> bool:
        """Add one more message if it surely fits into the packet, or if it is the first. Return whether it was added.

        The message is copied, so the caller may reuse its buffer.
        """
        size = len(payload)
        if not self._payloads:
            self._size = size or MIXED
        elif not self._has_room_for(size, subject, to):
            return False
        elif size != self._size:
            self._size = MIXED
        self._octets += size
        self._payloads.append(payload if isinstance(payload, bytes) else bytes(payload))
        if subject is not None or self._subjects.places:
            self._subjects.add(subject, len(self._payloads) - 1)
        if to is not None or self._nodes.places:
            self._nodes.add(to, len(self._payloads) - 1)
        return True

    def take(self, at_us: int | None = None) -> bytes:
        """Return the batch of all messages, timed in us since 1970, and start anew. Raises ValueError if empty."""
        return compose(self.take_columns(), at_us=at_us)

    def take_columns(self) -> Columns:
        """Return the columns of all messages, and start anew. Raises ValueError if empty."""
        if not self._payloads:
            raise ValueError("a batch without messages")
        subjects, subject = self._subjects.take()
        nodes, to = self._nodes.take()
        payloads, self._payloads = self._payloads, []
        self._octets = self._size = 0
        return Columns.of_list(payloads, subjects=subjects, subject=subject, nodes=nodes, to=to)
