"""Archive of trades in three sessions of different hours, and the bars that these trades make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

from pgm.archive.recording.rows import RowBuilder, rows_of
from pgm.core.window.reassembly import WholeMessages
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType
from pgm.wire.train import Run
from tests.spark.support.archives import session, writing
from tests.unit.archive.makers import TSI

_SECOND_US = 1_000_000
_HOUR_US = 3600 * _SECOND_US
_DIGITS = 8  # of a price, as text
_PART = 100  # trades that are received at the same time
_BATCH = 20  # parts of a stored batch

Bar = tuple[int, int, int, int, int]  # trades, open, high, low, close


@attrs.frozen
class TradedSession:
    """Session of one trade a packet, `rate` trades a second from `start_us` on."""

    tsi: str
    start_us: int
    prices: npt.NDArray[np.int64]
    rate: int = 10_000

    def received_us(self) -> npt.NDArray[np.int64]:
        """Return the receive time of each trade."""
        parts = np.arange(len(self.prices)) // _PART
        return self.start_us + parts * _PART * _SECOND_US // self.rate

    def batches(self) -> Iterator[list[RowBuilder]]:
        """Yield the stored batches."""
        received = self.received_us()
        for first in range(0, len(self.prices), _BATCH * _PART):
            ends = range(first, min(first + _BATCH * _PART, len(self.prices)), _PART)
            yield [self._part(at, int(received[at])) for at in ends]

    def _part(self, first: int, received_us: int) -> RowBuilder:
        prices = self.prices[first : first + _PART]
        octets = np.zeros((len(prices), DATA_HEADER_OCTETS + _DIGITS), np.uint8)
        octets[:, 4] = PacketType.ODATA.value
        tens = 10 ** np.arange(_DIGITS - 1, -1, -1)
        octets[:, DATA_HEADER_OCTETS:] = prices[:, None] // tens % 10 + ord("0")
        run = Run(first, len(prices), octets.reshape(-1), 0, octets.shape[1], DATA_HEADER_OCTETS)
        return rows_of(WholeMessages(TSI, run), 0, received_us)

    def bars(self) -> dict[tuple[str, int], Bar]:
        """Return the bar of each second, by session and time."""
        seconds = self.received_us() // _SECOND_US
        edges = [*np.flatnonzero(np.diff(seconds, prepend=-1)).tolist(), len(seconds)]
        found = {}
        for first, end in itertools.pairwise(edges):
            prices = self.prices[first:end]
            bar = (end - first, int(prices[0]), int(prices.max()), int(prices.min()), int(prices[-1]))
            found[self.tsi, int(seconds[first])] = bar
        return found


def three_sessions(trades: int, seed: int) -> list[TradedSession]:
    """Return sessions of two fifths, two fifths and a fifth of the trades. The last two overlap in time."""
    rng = np.random.default_rng(seed)
    counts = (2 * trades // 5, 2 * trades // 5, trades - 4 * trades // 5)
    starts = (9 * _HOUR_US, 14 * _HOUR_US, 14 * _HOUR_US + counts[1] * _SECOND_US // 20_000)
    return [
        TradedSession(f"{at}.{at}.{at}.{at}.{at}.{at}.7500", start, 1_000_000 + rng.integers(-9, 10, count).cumsum())
        for at, (count, start) in enumerate(zip(counts, starts, strict=True), 1)
    ]


def write_trades(folder: Path, sessions: list[TradedSession]) -> None:
    """Write the archive."""
    with writing(folder) as add:
        for one in sessions:
            for parts in one.batches():
                add(parts, session(tsi=one.tsi))
