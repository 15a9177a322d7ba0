"""Loss on purpose: random and bursty models, by seed, for the simulator's links and for live sockets.

A model answers for a number of packets at once which of them are lost. Models know nothing of packets,
so control packets suffer like data.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

Lost = npt.NDArray[np.bool_]

_DRAWS = 1 << 32  # outcomes of one draw
_BLOCK = 1024  # packets whose fate is drawn at a time


class LossModel(Protocol):
    """Anything that decides the fate of the next `count` packets."""

    def draw(self, count: int) -> Lost | None:
        """True for each packet that is lost, or None where none is."""


@attrs.frozen
class Impairment:
    """What a link does to packets. Shares are of packets; `burst_length` is a mean in packets."""

    loss: float = 0.0  # lost independently
    burst_loss: float = 0.0  # lost in bursts, by a Gilbert-Elliott model
    burst_length: float = 8.0
    duplicate: float = 0.0  # simulator only
    reorder: float = 0.0  # simulator only: delayed by `reorder_ivl` more
    reorder_ivl: int = 2_000_000  # ns

    @property
    def asked(self) -> float:
        """The share of packets that will be lost in the long run."""
        return 1 - (1 - self.loss) * (1 - self.burst_loss)

    def deviation(self, count: int) -> float:
        """The standard deviation of the share that is lost of `count` packets, which bursts make larger.

        Within a burst the fates of two packets at distance k are correlated by `memory` to the power of k.
        """
        leave = 1 / max(1.0, self.burst_length)
        enter = leave * self.burst_loss / (1 - self.burst_loss) if self.burst_loss < 1 else 1.0
        memory = max(0.0, 1 - leave - enter)
        together = 2 * (1 - self.loss) ** 2 * self.burst_loss * (1 - self.burst_loss) * memory / (1 - memory)
        return math.sqrt((self.asked * (1 - self.asked) + together) / max(1, count))

    @property
    def is_lossless(self) -> bool:
        """Whether nothing is ever lost."""
        return not (self.loss or self.burst_loss)


class Injector:
    """Draws losses of one link by one seed and counts them.

    The bursty part is a two-state chain: a burst begins so often that bursts of mean `burst_length` lose
    `burst_loss` of the packets, and everything in a burst is lost. Fates are drawn ahead, so that packets to which
    nothing happens cost next to nothing.
    """

    def __init__(self, impairment: Impairment, seed: str) -> None:
        self.seen = 0
        self.lost = 0
        self._rng = random.Random(seed)
        self.change(impairment)

    def change(self, impairment: Impairment) -> None:
        """Lose like this from the next packet on; what was counted stays."""
        self.impairment = impairment
        leave = 1 / max(1.0, impairment.burst_length)
        share = impairment.burst_loss
        self._leave = leave
        self._enter = min(1.0, leave * share / (1 - share)) if share < 1 else 1.0
        self._bad = False
        self._run = 0  # packets until the chain changes its state
        # Packets whose fate is known, and the first that is lost or not among them.
        self._drawn = self._clear_end = self.seen
        self._lost_ahead: deque[int] = deque()  # which of those that have not come are lost

    def spares(self, count: int) -> bool:
        """Whether nothing happens to the next `count` packets, as far as drawn: then they have come, else `draw_places` says."""
        end = self.seen + count
        if end > self._clear_end:
            return False
        self.seen = end
        return True

    def give_back(self, count: int, places: Sequence[int]) -> None:
        """The last `count` packets, of which those at `places` were lost, have not come: they will, and the same befalls them."""
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
        if self._bad and at == self._drawn:  # the burst continues in what is not drawn yet
            self._bad, self._run = False, 0
        self._look_ahead()

    def _look_ahead(self) -> None:
        self._clear_end = self._lost_ahead[0] if self._lost_ahead else self._drawn

    def draw(self, count: int) -> Lost | None:
        """True for each of the next `count` packets that is lost, or None where none is."""
        places = self.draw_places(count)
        if not places:
            return None
        lost: Lost = np.zeros(count, np.bool_)
        lost[places] = True
        return lost

    def draw_places(self, count: int) -> list[int]:
        """Which of the next `count` packets are lost, by their place among them."""
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
        """Draw the fate of the next `count` packets already, so that it takes no time when they come."""
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
        """Packets up to one that happens with this share: geometric, at least 1."""
        return 1 + int(math.log(1 - self._rng.random()) / math.log1p(-share)) if share < 1 else 1


def seeded(seed: int | str, *names: str) -> random.Random:
    """A generator for one purpose, so that adding a node does not change the fate of the others."""
    return random.Random(":".join([str(seed), *names]))
