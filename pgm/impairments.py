"""Injected loss: seeded random and bursty models for the simulator's links and for live sockets.

A model takes a number of packets and returns the lost ones among them. Models do not see the packets, so control packets
are lost like data.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

Lost = npt.NDArray[np.bool_]

_DRAWS = 1 << 32  # outcomes of one draw
_BLOCK = 1024  # packets drawn at a time


@attrs.frozen
class Impairment:
    """Impairments of one link, as shares of packets. `burst_length` is a mean in packets."""

    loss: float = 0.0  # lost independently
    burst_loss: float = 0.0  # lost in bursts, by a Gilbert-Elliott model
    burst_length: float = 8.0
    duplicate: float = 0.0  # simulator only
    reorder: float = 0.0  # simulator only: further delayed by `reorder_ivl`
    reorder_ivl: int = 2_000_000  # ns

    @property
    def asked(self) -> float:
        """Return the expected share of lost packets."""
        return 1 - (1 - self.loss) * (1 - self.burst_loss)

    def deviation(self, count: int) -> float:
        """Return the standard deviation of the lost share of `count` packets, which bursts increase.

        Within a burst the losses of two packets at distance k are correlated by `memory` to the power of k.
        """
        leave = 1 / max(1.0, self.burst_length)
        enter = leave * self.burst_loss / (1 - self.burst_loss) if self.burst_loss < 1 else 1.0
        memory = max(0.0, 1 - leave - enter)
        together = 2 * (1 - self.loss) ** 2 * self.burst_loss * (1 - self.burst_loss) * memory / (1 - memory)
        return math.sqrt((self.asked * (1 - self.asked) + together) / max(1, count))

    @property
    def is_lossless(self) -> bool:
        """Return whether no packet is ever lost."""
        return not (self.loss or self.burst_loss)


class Injector:
    """Seeded source of losses for one link, with counts.

    The bursty part is a two-state chain (Gilbert-Elliott) in which every packet of a burst is lost. Bursts with mean length
    `burst_length` begin often enough to lose the share `burst_loss` of the packets. Losses are drawn in advance, so that
    packets without a loss cost almost nothing.
    """

    def __init__(self, impairment: Impairment, seed: str) -> None:
        self.seen = 0
        self.lost = 0
        self._rng = random.Random(seed)
        self.change(impairment)

    def change(self, impairment: Impairment) -> None:
        """Use another impairment from the next packet on. The counts stay."""
        self.impairment = impairment
        leave = 1 / max(1.0, impairment.burst_length)
        share = impairment.burst_loss
        self._leave = leave
        self._enter = min(1.0, leave * share / (1 - share)) if share < 1 else 1.0
        self._bad = False
        self._run = 0  # packets until the chain changes its state
        # End of the packets drawn so far, and of those before the first loss among them.
        self._drawn = self._clear_end = self.seen
        self._lost_ahead: deque[int] = deque()  # numbers of the lost packets that have not arrived yet

    def spares(self, count: int) -> bool:
        """Take the next `count` packets if they are drawn and none is lost, and return whether that holds.

        Otherwise no packet is taken, and `draw_places` returns the losses.
        """
        end = self.seen + count
        if end > self._clear_end:
            return False
        self.seen = end
        return True

    def give_back(self, count: int, places: Sequence[int]) -> None:
        """Undo the draw of the last `count` packets, which lost those at `places`. The next draw repeats the result."""
        self.seen -= count
        self.lost -= len(places)
        self._lost_ahead.extendleft([self.seen + place for place in reversed(places)])
        self._look_ahead()

    def end_burst(self) -> None:
        """Let the next packets pass, up to the first that would pass anyway."""
        ahead, at = self._lost_ahead, self.seen
        while ahead and ahead[0] == at:
            ahead.popleft()
            at += 1
        if self._bad and at == self._drawn:  # the burst continues beyond the packets drawn so far
            self._bad, self._run = False, 0
        self._look_ahead()

    def _look_ahead(self) -> None:
        self._clear_end = self._lost_ahead[0] if self._lost_ahead else self._drawn

    def draw(self, count: int) -> Lost | None:
        """Return a mask of shape (count,), True for each lost packet, or None without a loss."""
        places = self.draw_places(count)
        if not places:
            return None
        lost: Lost = np.zeros(count, np.bool_)
        lost[places] = True
        return lost

    def draw_places(self, count: int) -> list[int]:
        """Return the indices of the lost packets among the next `count`, from 0."""
        begin, ahead = self.seen, self._lost_ahead
        end = self.seen = begin + count
        if end > self._drawn:
            self._draw_ahead(max(_BLOCK, count))
        places: list[int] = []
        while ahead and ahead[0] < end:
            places.append(ahead.popleft() - begin)
        self.lost += len(places)
        self._look_ahead()
        return places

    def foresee(self, count: int) -> None:
        """Draw the losses of the next `count` packets in advance, so that their arrival takes no time for that."""
        while self._drawn < self.seen + count:
            self._draw_ahead(_BLOCK)
        self._look_ahead()

    def _draw_ahead(self, count: int) -> None:
        impairment = self.impairment
        lost: Lost = np.zeros(count, np.bool_)
        if impairment.loss:
            lost = np.frombuffer(self._rng.randbytes(4 * count), "<u4") < round(impairment.loss * _DRAWS)
        if impairment.burst_loss:
            self._draw_bursts(lost)
        self._lost_ahead += (lost.nonzero()[0] + self._drawn).tolist()
        self._drawn += count

    def _draw_bursts(self, lost: Lost) -> None:
        at = 0
        while at < len(lost):
            if self._run == 0:
                self._run = self._packets_until(self._leave if self._bad else self._enter)
            step = min(self._run, len(lost) - at)
            if self._bad:
                lost[at : at + step] = True
            at += step
            self._run -= step
            if self._run == 0:
                self._bad = not self._bad

    def _packets_until(self, share: float) -> int:
        """Return the packets up to an event with probability `share`: geometric, at least 1."""
        return 1 + int(math.log(1 - self._rng.random()) / math.log1p(-share)) if share < 1 else 1


def seeded(seed: int | str, *names: str) -> random.Random:
    """Return a generator for one purpose, so that a further node does not change the losses of the others."""
    return random.Random(":".join([str(seed), *names]))
