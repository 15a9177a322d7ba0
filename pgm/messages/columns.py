"""Many messages as columns: one buffer of octets, the ends of the messages in it, and their names.

A batch on the wire, the argument of `send_batch`, and a delivered batch all have this form. There is no object per message.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

Octets = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.unsignedinteger[Any]]
Offsets = npt.NDArray[np.int64]

MIXED = -1  # size of messages with different sizes


def _sliced(indexes: Indexes | int, first: int, end: int) -> Indexes | int:
    return indexes if isinstance(indexes, int) else indexes[first:end]


def _chosen(indexes: Indexes | int, rows: npt.NDArray[np.intp]) -> Indexes | int:
    return indexes if isinstance(indexes, int) else indexes[rows]


@attrs.frozen(eq=False)
class Columns:
    """Columns of `count` messages.

    `data` holds the octets of the messages in a row. If all messages have one `size` of at least 1, there are no `offsets`.
    Otherwise `size` is `MIXED`, and message i is `data[offsets[i]:offsets[i + 1]]`.

    `subject` holds an index for each message, or one number for all. Index 0 is no subject, and index i is `subjects[i - 1]`.
    `to` holds indexes into `nodes` in the same way. Index 0 of `to` means all nodes.
    """

    count: int
    data: Octets
    size: int
    offsets: Offsets | None = None
    subjects: tuple[str, ...] = ()
    subject: Indexes | int = 0
    nodes: tuple[str, ...] = ()
    to: Indexes | int = 0

    @classmethod
    def of_sizes(cls, data: Octets, sizes: npt.NDArray[np.int64], **more: Any) -> Columns:
        """Return messages of these sizes that lie in `data` in a row."""
        size = int(sizes[0]) if len(sizes) else 0
        if size and bool((sizes == size).all()):
            return cls(len(sizes), data, size, **more)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        return cls(len(sizes), data, MIXED, offsets, **more)

    @classmethod
    def of_list(cls, payloads: Sequence[bytes | bytearray | memoryview], **more: Any) -> Columns:
        """Return the messages of a list. Raises ValueError for a view whose items are not octets."""
        data = np.frombuffer(b"".join(payloads), np.uint8)
        sizes = np.fromiter(map(len, payloads), np.int64, len(payloads))
        if int(sizes.sum()) != len(data):
            raise ValueError("a message whose items are not octets")
        return cls.of_sizes(data, sizes, **more)

    @classmethod
    def of_rows(cls, rows: Octets, **more: Any) -> Columns:
        """Return the messages of a (count, size) array."""
        count, size = rows.shape
        if not size:
            return cls(count, np.empty(0, np.uint8), MIXED, np.zeros(count + 1, np.int64), **more)
        return cls(count, rows.reshape(-1), size, **more)

    @property
    def ends(self) -> Offsets:
        """Return the `count + 1` places at which messages begin and end, for any sizes."""
        return np.arange(self.count + 1, dtype=np.int64) * self.size if self.offsets is None else self.offsets

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Return the octets of each message."""
        return np.full(self.count, self.size, np.int64) if self.offsets is None else np.diff(self.offsets)

    @property
    def octets(self) -> int:
        """Return the octets of all messages."""
        return self.count * self.size if self.offsets is None else int(self.offsets[-1] - self.offsets[0])

    def payloads(self) -> list[bytes]:
        """Return each message as separate octets."""
        octets = self.data.tobytes()
        if self.offsets is None:
            size = self.size
            return [octets[at : at + size] for at in range(0, self.count * size, size)]
        ends = self.offsets.tolist()
        return [octets[begin:end] for begin, end in itertools.pairwise(ends)]

    def names_of_all(self) -> tuple[list[str | None], list[str | None]]:
        """Return the subject of each message, and the node that it is for; None for neither."""
        return self._names(self.subjects, self.subject), self._names(self.nodes, self.to)

    def _names(self, names: tuple[str, ...], indexes: Indexes | int) -> list[str | None]:
        table = (None, *names)
        if isinstance(indexes, int):
            return [table[indexes]] * self.count
        return [table[index] for index in indexes.tolist()]

    def part(self, first: int, end: int) -> Columns:
        """Return messages `first` to `end - 1`, which share the memory."""
        if self.offsets is None:
            data, offsets = self.data[first * self.size : end * self.size], None
        else:
            offsets = self.offsets[first : end + 1] - self.offsets[first]
            data = self.data[self.offsets[first] : self.offsets[end]]
        subject, to = _sliced(self.subject, first, end), _sliced(self.to, first, end)
        return attrs.evolve(self, count=end - first, data=data, offsets=offsets, subject=subject, to=to)

    def select(self, rows: npt.NDArray[np.intp]) -> Columns:
        """Return a copy of the messages with these indexes."""
        subject, to = _chosen(self.subject, rows), _chosen(self.to, rows)
        if self.offsets is None:
            data, offsets = self.data.reshape(self.count, self.size)[rows].reshape(-1), None
        else:
            sizes = np.diff(self.offsets)[rows]
            offsets = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(sizes, out=offsets[1:])
            places = np.arange(int(offsets[-1])) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], sizes)
            data = self.data[places]
        return attrs.evolve(self, count=len(rows), data=data, offsets=offsets, subject=subject, to=to)


def joined(parts: Sequence[Columns]) -> Columns:
    """Return all messages of several columns in order. Raises ValueError without any."""
    if len(parts) == 1:
        return parts[0]
    count = sum(part.count for part in parts)
    size = parts[0].size if all(part.size == parts[0].size for part in parts) else MIXED
    offsets = None
    if size == MIXED:
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(np.concatenate([part.sizes for part in parts]), out=offsets[1:])
    data = np.concatenate([part.data[: part.octets] for part in parts])
    subjects, subject = _joined_table([(part.subjects, part.subject, part.count) for part in parts])
    nodes, to = _joined_table([(part.nodes, part.to, part.count) for part in parts])
    return Columns(count, data, size, offsets, subjects, subject, nodes, to)


def _joined_table(parts: Sequence[tuple[tuple[str, ...], Indexes | int, int]]) -> tuple[tuple[str, ...], Indexes | int]:
    table, indexes, _ = parts[0]
    if isinstance(indexes, int) and all(part[0] == table and part[1] is indexes for part in parts):
        return table, indexes
    known: dict[str, int] = {}
    columns = []
    for names, indexes, count in parts:
        places = np.array([0, *(known.setdefault(name, len(known) + 1) for name in names)], np.uint32)
        columns.append(np.full(count, places[indexes], np.uint32) if isinstance(indexes, int) else places[indexes])
    return tuple(known), np.concatenate(columns)
