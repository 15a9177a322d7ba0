"""Fragmentation and reassembly of large messages (RFC 9.2).

A message is delivered whole or not at all. If one packet of a message is lost, the packets that did arrive are reported
lost too, with cause FRAGMENT. Delivered and lost sqns therefore add up to the sqns that were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np

from pgm.core.effects import LossCause, Lost
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.options import Fragment, encode_options
from pgm.wire.sequence_numbers import unwrap, wrap
from pgm.wire.train import Octets, Run, fragment_of


def fragment_options(first_sqn: int, apdu_length: int) -> bytes:
    """Return the option octets that all fragments of one message share. The offset is set packet by packet."""
    option = Fragment(first_sqn=wrap(first_sqn), offset=0, apdu_length=apdu_length)
    return encode_options((option,), PacketType.ODATA)[0]


@attrs.define(eq=False)
class WholeMessages:
    """Whole messages of one packet each: the payloads of a run, in place."""

    tsi: Tsi
    run: Run

    @property
    def payloads(self) -> Octets:
        """Return a (count, size) view."""
        return self.run.payloads


@attrs.define(eq=False)
class LargeMessage:
    """One message that came in several packets, sqns `first` to `first + count - 1`."""

    tsi: Tsi
    first: int
    count: int
    payload: bytes | memoryview


@attrs.define(eq=False)
class _Partial:
    """Message whose first `octets` octets came, in reserved memory; a page exists from its first write."""

    first: int
    payload: Octets
    octets: int
    next_sqn: int

    def add(self, run: Run) -> None:
        """Copy the next fragments to their place in the message."""
        pieces = run.payloads
        end = self.octets + pieces.size
        self.payload[self.octets : end].reshape(pieces.shape)[:] = pieces
        self.octets, self.next_sqn = end, run.end


def _new_block(octets: int) -> Octets:
    return np.empty(octets, np.uint8)


def _started(first: int, length: int, take_block: Callable[[int], Octets]) -> _Partial | None:
    """Start a message; return None if the kernel refuses its memory."""
    try:
        return _Partial(first, take_block(length), 0, first)
    except MemoryError:  # the address space is limited: the length that a source claims must not end a process
        return None


class Reassembler:
    """Reassembler of one session's in-order runs and losses.

    A message that claims more than `max_apdu` octets is reported lost. Address space is reserved for the claimed
    length, but memory is used only for the octets that arrived, rounded up to a huge page. The sources of
    `max_sessions` sessions can therefore claim much memory but use little.
    """

    def __init__(self, tsi: Tsi, max_apdu: int, take_block: Callable[[int], Octets] = _new_block) -> None:
        """Reassemble in memory of `take_block`, which returns undefined octets."""
        self._tsi = tsi
        self._max_apdu = max_apdu
        self._take_block = take_block
        self._partial: _Partial | None = None

    @property
    def is_between(self) -> bool:
        """Whether no message is incomplete: unfragmented runs then pass unchanged."""
        return self._partial is None

    def add(self, run: Run) -> Iterator[WholeMessages | LargeMessage | Lost]:
        """Take a run that continues the stream."""
        fragment = fragment_of(run)
        if fragment is None:
            yield from self._abandon()
            yield WholeMessages(self._tsi, run)
            return
        start = unwrap(fragment.first_sqn, run.first)
        if start == run.first and fragment.offset == 0:
            yield from self._abandon()
            if fragment.apdu_length <= self._max_apdu:
                self._partial = _started(start, fragment.apdu_length, self._take_block)
        if not self._continues(run, fragment, start):
            yield from self._abandon()
            yield Lost(self._tsi, run.first, run.count, LossCause.FRAGMENT)
            return
        partial = self._partial
        assert partial is not None
        partial.add(run)
        if partial.octets == partial.payload.size:
            self._partial = None
            payload = partial.payload.data.toreadonly()
            yield LargeMessage(self._tsi, partial.first, run.end - partial.first, payload)

    def _continues(self, run: Run, fragment: Fragment, start: int) -> bool:
        partial = self._partial
        return (
            partial is not None
            and partial.first == start
            and partial.payload.size == fragment.apdu_length
            and partial.octets == fragment.offset
            and partial.octets + run.payloads.size <= fragment.apdu_length
            and partial.next_sqn == run.first
        )

    def add_lost(self, lost: Lost) -> Iterator[Lost]:
        """Take a loss that continues the stream."""
        yield from self._abandon()
        yield lost

    @property
    def mark(self) -> tuple[int, int] | None:
        """First sqn and octets of the incomplete message, or None. An unchanged mark means no progress."""
        return None if self._partial is None else (self._partial.first, self._partial.octets)

    def end(self) -> Iterator[Lost]:
        """Report the incomplete message as lost. The stream ends here, or the wait for the message is over."""
        return self._abandon()

    def _abandon(self) -> Iterator[Lost]:
        partial, self._partial = self._partial, None
        if partial is not None and partial.next_sqn > partial.first:
            yield Lost(self._tsi, partial.first, partial.next_sqn - partial.first, LossCause.FRAGMENT)
