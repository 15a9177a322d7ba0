"""Runs: whole data packets kept in memory under 64-bit sqns. A repair needs no rebuilding."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.options import NO_OPTIONS, Fragment, Options, decode_options_untrusted, find

Octets = npt.NDArray[np.uint8]


@attrs.define(eq=False)
class Run:
    """Packets with sqns `first` to `first + count - 1`, of one format.

    Size and header length are the same for all packets. The packets are at `offset` of `buffer`, `stride` octets each.
    Holding a run keeps its buffer alive.
    """

    first: int
    count: int
    buffer: Octets
    offset: int
    stride: int
    payload_at: int

    @property
    def end(self) -> int:
        """The sqn after the last."""
        return self.first + self.count

    @property
    def octets(self) -> int:
        """Octets of all packets."""
        return self.count * self.stride

    @property
    def rows(self) -> Octets:
        """The packets as a (count, stride) view."""
        return self.buffer[self.offset : self.offset + self.octets].reshape(self.count, self.stride)

    @property
    def payloads(self) -> Octets:
        """The payloads as a (count, payload length) view."""
        at, count, stride = self.offset, self.count, self.stride
        return self.buffer[at : at + count * stride].reshape(count, stride)[:, self.payload_at :]

    def alone(self) -> bytes:
        """Return a copy of the payload of the only packet."""
        return self.buffer.data[self.offset + self.payload_at : self.offset + self.stride].tobytes()

    @property
    def has_options(self) -> bool:
        """Whether the packets carry options, for example OPT_FRAGMENT."""
        return self.payload_at > DATA_HEADER_OCTETS

    def options(self) -> Options:
        """Return the options of the first packet. The options of other packets differ only in the fragment offset."""
        if not self.has_options:
            return NO_OPTIONS
        head = self.buffer.data[self.offset : self.offset + self.payload_at]
        return decode_options_untrusted(head, DATA_HEADER_OCTETS, self.payload_at)[0]

    def part(self, first: int, end: int) -> Run:
        """Return the packets `first` to `end - 1`, sharing memory."""
        if first == self.first and end == self.end:
            return self
        offset = self.offset + (first - self.first) * self.stride
        return Run(first, end - first, self.buffer, offset, self.stride, self.payload_at)

    def is_continued_by(self, other: Run) -> bool:
        """Return whether `other` follows in sqns and in memory, with the same format. Both can then be one run."""
        return (
            other.buffer is self.buffer
            and other.first == self.first + self.count
            and other.offset == self.offset + self.octets
            and other.stride == self.stride
            and other.payload_at == self.payload_at == DATA_HEADER_OCTETS
        )

    def with_more(self, other: Run) -> Run:
        """Return this run extended by a run that continues it."""
        return Run(self.first, self.count + other.count, self.buffer, self.offset, self.stride, self.payload_at)


def fragment_of(run: Run) -> Fragment | None:
    """Return OPT_FRAGMENT of the run's first packet; None if there is none."""
    return find(run.options(), Fragment) if run.has_options else None
