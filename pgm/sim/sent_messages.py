"""Messages of a source by sqn: the reference for deliveries.

Sqns are those of the source. A receiver that saw data before an SPM may count from another multiple of 2^32. The
methods therefore accept any number with the right lower half.
"""

from __future__ import annotations

from bisect import bisect_right

import attrs
import numpy as np

from pgm.units import NEVER
from pgm.wire.sequence_numbers import unwrap, wrap
from pgm.wire.train import Octets, Run


@attrs.define(eq=False)
class _Block:
    """Messages of one packet each, as rows; or one longer message of `count` packets, as one row."""

    first: int
    count: int
    rows: Octets
    is_large: bool


@attrs.frozen
class LedgerNews:
    """What another process must learn of a ledger: its newest blocks. `known` counts all blocks so far."""

    first: int
    data_port: int
    end: int
    messages: int
    known: int
    blocks: tuple[_Block, ...]
    states: dict[int, bytes]


class SentMessages:
    """Messages of one session, in order."""

    def __init__(self, first: int, data_port: int) -> None:
        self.first = first
        self.data_port = data_port  # of the stream
        self.end = first  # the sqn after the last packet
        self.messages = 0
        self.closed_ns = NEVER  # when the application closed the session
        self.states: dict[int, bytes] = {}  # by position: states that the application gave
        self._firsts: list[int] = []
        self._blocks: list[_Block] = []
        # The run that matched last. Trains reach many receivers one after another, so this saves most comparisons.
        self._last_matched: tuple[Octets, int, int, int] | None = None

    def news_since(self, known: int) -> LedgerNews:
        """Return all blocks after the first `known`."""
        blocks = tuple(self._blocks[known:])
        return LedgerNews(
            self.first, self.data_port, self.end, self.messages, len(self._blocks), blocks, dict(self.states)
        )

    def learn(self, news: LedgerNews) -> None:
        """Add the messages that a source in another process has sent."""
        for block in news.blocks:
            self._firsts.append(block.first)
            self._blocks.append(block)
        self.end, self.messages = news.end, news.messages
        self.states.update(news.states)

    def add_rows(self, rows: Octets) -> None:
        """Add messages of one packet each, as a (count, size) array."""
        self._add(_Block(self.end, rows.shape[0], rows, False))
        self.messages += rows.shape[0]

    def add_large(self, payload: bytes, packets: int) -> None:
        """Add one message that takes several packets."""
        self._add(_Block(self.end, packets, np.frombuffer(payload, np.uint8).reshape(1, -1), True))
        self.messages += 1

    def skip_to(self, sqn: int) -> None:
        """Mark the sqns before `sqn` as unused, after a group of packets that ended early."""
        self.end = sqn

    def is_unused(self, first: int, end: int) -> bool:
        """Return whether the source gave no packet a sqn from `first` to `end - 1`."""
        low, high = self.own(first), self.own(end)
        index = bisect_right(self._firsts, high - 1) - 1
        return index >= 0 and self._blocks[index].first + self._blocks[index].count <= low < high <= self.end

    def _add(self, block: _Block) -> None:
        self._firsts.append(block.first)
        self._blocks.append(block)
        self.end += block.count

    def own(self, sqn: int) -> int:
        """Return the source's number for a sqn as some receiver counts it."""
        return unwrap(wrap(sqn), self.end)

    def has_rows(self, run: Run) -> bool:
        """Return whether the packets of a run are messages with these payloads."""
        if self._is_last_matched(run):
            return True
        payloads = run.payloads
        at, row = self.own(run.first), 0
        while row < run.count:
            block = self._at(at)
            if block is None or block.is_large:
                return False
            low = at - block.first
            count = min(run.count - row, block.count - low)
            if not np.array_equal(block.rows[low : low + count], payloads[row : row + count]):
                return False
            at, row = at + count, row + count
        self._last_matched = (run.buffer, run.offset, run.first, run.count)
        return True

    def _is_last_matched(self, run: Run) -> bool:
        matched = self._last_matched
        return matched is not None and matched[0] is run.buffer and matched[1:] == (run.offset, run.first, run.count)

    def has_large(self, first: int, count: int, payload: bytes | memoryview) -> bool:
        """Return whether the `count` packets from `first` on are one message with this payload."""
        block = self._at(self.own(first))
        return (
            block is not None
            and block.is_large
            and (block.first, block.count) == (self.own(first), count)
            and block.rows.tobytes() == payload
        )

    def _at(self, sqn: int) -> _Block | None:
        index = bisect_right(self._firsts, sqn) - 1
        if index < 0 or sqn >= self._blocks[index].first + self._blocks[index].count:
            return None
        return self._blocks[index]
