"""Messages into batches that fill packets: many at once by numpy, or one after the other as an application sends them."""

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

_WORD_OCTETS = 8  # full batches are padded to a multiple of this, which packets are summed faster by
_TIME_ITEM_OCTETS = 8
_MANY = 16  # full packets, beside which the padding of one more is some hundredths of them
_TABLE_SHARE = 8  # a table of up to an eighth of a packet goes into every packet as it is
_FRONT_OCTETS = 40  # at most, of a batch without tables: keys, counts and heads
_OFFSET_OCTETS = 4
_TABLE_KEYS_OCTETS = {"subjects": 24, "nodes": 20}  # at most, of both keys and the array's heads


@attrs.frozen(eq=False)
class FullBatches:
    """`count` batches of `octets` each that look alike. They are not built yet: `write` does so where they are to lie."""

    layout: BatchLayout
    count: int
    columns: Columns  # the messages that fill all of them but `last`
    last: bytes  # one more behind them that is ready, or empty
    at_us: int | None

    @property
    def octets(self) -> int:
        """Of each batch."""
        return self.layout.octets

    def write(self, rows: Octets, first: int) -> None:
        """Build batches `first`, `first + 1` and so on, as many as there are `rows`."""
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
    """Distribute octets over all rows, from a column on."""
    if len(octets):
        each = octets.reshape(len(rows), -1)
        as_items(rows[:, begin : begin + each.shape[1]])[:] = as_items(each)


def pack(columns: Columns, room: int, at_us: int | None = None) -> Iterator[FullBatches | list[bytes]]:
    """Batches of at most `room` octets, in order: equal ones, or lists of such that differ; with a time, that of now.

    A message that does not fit `room` is a batch by itself, longer than that.
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
    """Whether the tables are small enough to be repeated in every packet."""
    return not (subjects or nodes) or _table_length(subjects, nodes) <= room // _TABLE_SHARE


def _index_width(indexes: Indexes | int, names: Sequence[str]) -> int:
    return 0 if isinstance(indexes, int) else width_of(len(names))


def _pack_equal(columns: Columns, layout: BatchLayout, at_us: int | None) -> Iterator[FullBatches | list[bytes]]:
    """Messages of one size with tables that every packet repeats: all full packets look alike."""
    count = layout.count
    full = columns.count // count if columns.count // count > 1 else 0
    # What is left is as long as the others where there are many: trains are of packets of one length, and the next
    # call's go with them.
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
    """How the batch is built that has as many messages of one size as `room` takes. None stands for one index for each message.

    None where the tables are too large for that.
    """
    if not _fits_everywhere(subjects, nodes, room):
        return None
    at_us = 0 if has_time else None

    def batch_of(count: int, pad_to: int = 0) -> bytes:
        each = [np.zeros(count, np.uint8) if one is None else one for one in (subject, to)]
        columns = Columns(count, np.zeros(count * size, np.uint8), size, None, subjects, each[0], nodes, each[1])
        return compose(columns, pad_to, at_us)

    front = _front(at_us) + sum(_TABLE_KEYS_OCTETS.values()) + _table_length(subjects, nodes)
    indexes = sum(width_of(len(names)) for names, one in ((subjects, subject), (nodes, to)) if one is None)
    count = max(1, min(MOST_MESSAGES, (room - front) // (size + indexes)))
    while count < MOST_MESSAGES and len(batch_of(count + 1)) <= room:
        count += 1
    octets = len(batch_of(count))
    padded = -(-octets // _WORD_OCTETS) * _WORD_OCTETS
    return read_layout(batch_of(count, padded if padded <= room else 0))


def _pack_mixed(columns: Columns, room: int, at_us: int | None) -> Iterator[bytes]:
    """Messages of any sizes: each packet takes as many as it surely has room for, and is padded to the same length."""
    costs = columns.sizes + (_OFFSET_OCTETS if room > 0xFFFF else _OFFSET_OCTETS // 2)
    front = _front(at_us)
    is_shared = _fits_everywhere(columns.subjects, columns.nodes, room)
    for key, names, indexes in (
        ("subjects", columns.subjects, columns.subject),
        ("nodes", columns.nodes, columns.to),
    ):
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
        # The last one may be as short as it is: it leaves alone anyway.
        yield compose(part if is_shared else _own_tables(part), room if end < columns.count else 0, at_us)
        first, spent = end, int(ends[end - 1])


def _own_tables(columns: Columns) -> Columns:
    """The same messages with tables of the names they really have."""
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
class _Names:
    """The table of a packet that is being filled, and what each of its messages has of it; empty while none has anything."""

    key: str
    places: dict[str, int] = attrs.field(factory=dict)
    indexes: list[int] = attrs.field(factory=list)
    octets: int = 0
    _last: str | None = None
    _is_plain: bool = True  # all messages have the same

    def cost_with(self, name: str | None, count: int) -> int:
        """Octets of table and indexes with one more message behind `count`, at most."""
        octets, names, is_same = self.octets, len(self.places), name == self._last
        if not is_same and name is not None and name not in self.places:
            octets, names = octets + _octets_of(name), names + 1
        is_plain = self._is_plain and (is_same or not count)
        return _TABLE_KEYS_OCTETS[self.key] + octets + (0 if is_plain else (count + 1) * width_of(names))

    def add(self, name: str | None, count: int) -> None:
        """Note what the message behind `count` others has."""
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
        """Table and indexes of all messages; nothing is left."""
        if not self.places:
            return (), 0
        names, indexes, is_plain = tuple(self.places), self.indexes, self._is_plain
        self.places, self.indexes, self.octets, self._last, self._is_plain = {}, [], 0, None, True
        if is_plain:
            return names, indexes[0]
        return names, np.array(indexes, f"<u{width_of(len(names))}")


def _octets_of(name: str) -> int:
    """What a name adds to a table at most, its head included."""
    octets = len(name.encode())
    return octets + len(head(0, octets)) + 2


class OpenBatch:
    """One packet that is being filled message by message; `has_time` leaves room for when it is taken."""

    def __init__(self, room: int, *, has_time: bool = False) -> None:
        self.room = room
        self._front = _front(0 if has_time else None)
        self._payloads: list[bytes | bytearray | memoryview] = []
        self._octets = 0
        self._size = 0  # of all, or MIXED
        self._subjects = _Names("subjects")
        self._nodes = _Names("nodes")

    def __len__(self) -> int:
        return len(self._payloads)

    def has_room_for(self, size: int, subject: str | None, to: str | None) -> bool:
        """Whether one more message surely fits the packet."""
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

    def add(self, payload: bytes | bytearray | memoryview, subject: str | None, to: str | None) -> None:
        """Put one more message in. It is copied: the caller's buffer is its own again."""
        size = len(payload)
        if not self._payloads:
            self._size = size or MIXED
        elif size != self._size:
            self._size = MIXED
        self._octets += size
        self._payloads.append(payload if isinstance(payload, bytes) else bytes(payload))
        if subject is not None or self._subjects.places:
            self._subjects.add(subject, len(self._payloads) - 1)
        if to is not None or self._nodes.places:
            self._nodes.add(to, len(self._payloads) - 1)

    def take(self, at_us: int | None = None) -> bytes:
        """The batch of all that was put in, filled at a time; nothing is left. Raises ValueError if nothing was."""
        if not self._payloads:
            raise ValueError("a batch without messages")
        subjects, subject = self._subjects.take()
        nodes, to = self._nodes.take()
        payloads, self._payloads = self._payloads, []
        self._octets = self._size = 0
        columns = Columns.of_list(payloads, subjects=subjects, subject=subject, nodes=nodes, to=to)
        return compose(columns, at_us=at_us)
