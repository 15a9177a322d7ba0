"""Messages of a stream with batches, without an object for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pgm.core.source_names import FromSession
from pgm.errors import UsageError
from pgm.messages.batch_decoder import Sqns
from pgm.messages.columns import Columns, Indexes, Octets, Offsets
from pgm.wire.formats import Tsi


@attrs.frozen(eq=False)
class PackedBatch(FromSession):
    """Successive messages of a stream with `framing = "batch"`, in memory of their own.

    All messages lie in one buffer, `octets`. Message i is `octets[offsets[i]:offsets[i + 1]]`; `batch[i]` is a view of
    it and `batch.subject(i)` its subject. Iteration gives each message as its own byte string. Messages for other nodes
    and of subjects without a subscription are left out. `packet_sqns` and `packet_counts` give the number of messages
    of each packet.
    """

    tsi: Tsi
    columns: Columns
    packet_sqns: Sqns
    packet_counts: Sqns
    last: int = -1  # with ack="manual": the newest sqn that an ack of the batch covers
    index: int = 0  # messages of its first packet before the batch, where the receiver counts them

    def __len__(self) -> int:
        return self.columns.count

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the messages, each as its own byte string."""
        return iter(self.columns.payloads())

    def __getitem__(self, place: int) -> memoryview:
        """Return one message as a view that copies nothing. Raises IndexError."""
        count = self.columns.count
        if not -count <= place < count:
            raise IndexError(f"{place} of {count} messages")
        place %= count
        size, offsets = self.columns.size, self.columns.offsets
        if offsets is None:
            return self.columns.data.data[place * size : (place + 1) * size]
        return self.columns.data.data[int(offsets[place]) : int(offsets[place + 1])]

    @property
    def octets(self) -> Octets:
        """Return the octets of all messages, one after the other."""
        return self.columns.data

    @property
    def offsets(self) -> Offsets:
        """Return the begin and end of each message in `octets`; one entry more than there are messages."""
        return self.columns.ends

    @property
    def payloads(self) -> Octets:
        """Return messages of equal size as a (count, size) view. Raises `UsageError` if sizes differ."""
        if self.columns.offsets is not None:
            raise UsageError(
                "these messages are not all of one size", remedy="use octets and offsets, iterate, or call arrow()"
            )
        return self.columns.data.reshape(self.columns.count, self.columns.size)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Return the table of subjects; some may have no message."""
        return self.columns.subjects

    @property
    def subject_indexes(self) -> Indexes:
        """Return for each message the index of its subject in `subjects`, counted from 1; 0 for none."""
        indexes = self.columns.subject
        return np.full(self.columns.count, indexes, np.uint32) if isinstance(indexes, int) else indexes

    def subject(self, place: int) -> str | None:
        """Return the subject of one message."""
        indexes = self.columns.subject
        index = indexes if isinstance(indexes, int) else int(indexes[place])
        return self.columns.subjects[index - 1] if index else None

    def subjects_of_all(self) -> list[str | None]:
        """Return the subject of each message."""
        return self.columns.names_of_all()[0]

    @property
    def sqns(self) -> npt.NDArray[np.int64]:
        """Return for each message the sqn of its packet; for a large message that of its first packet."""
        return np.repeat(self.packet_sqns, self.packet_counts)

    def sqn_at(self, place: int) -> int:
        """Return the sqn of one message's packet; for a large message that of its first packet."""
        return int(self.packet_sqns[np.searchsorted(np.cumsum(self.packet_counts), place, side="right")])

    def copy(self) -> PackedBatch:
        """Return the batch itself: its memory is never receive memory, so nothing needs a copy."""
        return self

    def place(self, number: int) -> tuple[int, int]:
        """Return the sqn of one message's packet, and the place of the message in it."""
        ends = np.cumsum(self.packet_counts)
        packet = int(np.searchsorted(ends, number, side="right"))
        begin = int(ends[packet] - self.packet_counts[packet])
        return int(self.packet_sqns[packet]), number - begin + (0 if begin else self.index)

    def behind(self, taken: int, index: int) -> PackedBatch:
        """Return the batch without its first `taken` messages. `index` messages of its first packet lie before it."""
        counted = attrs.evolve(self, index=index)
        if not taken:
            return counted
        return attrs.evolve(counted.part(taken, len(self)), index=counted.place(taken)[1])

    def part(self, first: int, end: int) -> PackedBatch:
        """Return messages `first` to `end - 1`, sharing memory."""
        ends = np.cumsum(self.packet_counts)
        counts = np.clip(np.minimum(ends, end) - np.maximum(ends - self.packet_counts, first), 0, None)
        return attrs.evolve(self, columns=self.columns.part(first, end), packet_counts=counts)

    def arrow(self) -> Any:
        """Return the payloads as an Arrow array that shares memory.

        The type is a fixed-size binary for equal sizes, else `large_binary`. Raises `UsageError` if pyarrow is missing.
        """
        pa = _pyarrow()
        data = pa.py_buffer(self.columns.data)
        if self.columns.offsets is None:
            return pa.Array.from_buffers(pa.binary(self.columns.size), self.columns.count, [None, data])
        offsets = pa.py_buffer(self.columns.offsets)
        return pa.Array.from_buffers(pa.large_binary(), self.columns.count, [None, offsets, data])

    def table(self) -> Any:
        """Return an Arrow table: `sqn`, `subject` (a dictionary), `payload`. Raises `UsageError` without pyarrow."""
        pa = _pyarrow()
        indexes = self.subject_indexes.astype(np.int32) - 1
        names = pa.array(self.columns.subjects, pa.string())
        subject = pa.DictionaryArray.from_arrays(pa.array(indexes, mask=indexes < 0), names)
        return pa.table({"sqn": self.sqns, "subject": subject, "payload": self.arrow()})


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UsageError(
            "Arrow is not installed", remedy="pip install 'pgm-repair-network[arrow]', or use octets and offsets"
        ) from None
    return pyarrow
