"""The lossless maximum: the highest rate at which nothing is lost, found by bisection and confirmed."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

import attrs

from deploy.bench.trial import Outcome

_MOST_STEPS = 12  # of the bisection: from a rate ten times too high to a hundredth of it
_MOST_RETREATS = 6  # rates that were found and then not confirmed
_REACHED = 0.97  # of a rate: below it the sender did not send that fast
_MOST_MISSES = 2
_STEP_BACK = 0.93
_STEP_ON = 1.5
_LEAST_SHARE = 1 / 4096  # of what a sender can send: a contender that loses even there has no lossless rate

Run = Callable[[float], Awaitable[Outcome]]  # a trial at so many messages a second, 0 for as fast as it goes


@attrs.frozen
class Maximum:
    """What the search found."""

    runs: list[Outcome]  # at the highest lossless rate; empty if there was none
    too_fast: Outcome | None  # at the lowest rate that was too much
    trials: int

    @property
    def median(self) -> Outcome | None:
        """The run with the median rate."""
        if not self.runs:
            return None
        middle = statistics.median_low(one.messages_per_s for one in self.runs)
        return next(one for one in self.runs if one.messages_per_s == middle)


@attrs.define
class Search:
    """One contender's search. `precision` is the width of the last interval as a share of the rate."""

    run: Run
    runs: int
    precision: float
    trials: int = 0
    _too_fast: Outcome | None = None

    async def maximum(self) -> Maximum:
        """Find it."""
        first = await self._try(0.0)
        if first.is_whole:
            confirmed = await self._confirm(0.0, [first])
            if confirmed:
                return Maximum(confirmed, None, self.trials)
        high, low = first.offered_per_s, 0.0
        guess = min(first.messages_per_s, high) * 0.9
        good: Outcome | None = None
        steps = missed = 0
        is_limit = (
            False  # of what is sent flat out: a source that adapts sends less then than by a rate that all can bear
        )
        while steps < _MOST_STEPS:
            is_beyond = high - low <= self.precision * high
            if is_beyond and is_limit:
                break
            if is_beyond:
                high *= _STEP_ON
            rate = high if is_beyond else (low + high) / 2
            if steps == 0 and low < guess < high:
                rate = guess
            steps += 1
            outcome = await self._try(rate)
            if outcome.is_whole:
                good = outcome if good is None or outcome.messages_per_s > good.messages_per_s else good
                if outcome.offered_per_s >= _REACHED * rate:
                    low = rate
                else:  # the sender was held up, so nothing is known of this rate
                    low, missed = max(low, outcome.offered_per_s), missed + 1
                    if is_beyond or missed == _MOST_MISSES:
                        break
            elif rate < first.offered_per_s * _LEAST_SHARE:
                break
            else:
                high, is_limit = rate, True
        return await self._settle(good)

    async def _settle(self, good: Outcome | None) -> Maximum:
        """Confirm a rate that was good once, or a lower one."""
        for _ in range(_MOST_RETREATS if good is not None else 0):
            assert good is not None
            confirmed = await self._confirm(good.rate, [good])
            if confirmed:
                return Maximum(confirmed, self._too_fast, self.trials)
            rate = good.rate * _STEP_BACK
            good = await self._try(rate)
            while not good.is_whole and rate > good.rate * _LEAST_SHARE and self.trials < 10 * _MOST_STEPS:
                rate *= _STEP_BACK
                good = await self._try(rate)
        return Maximum([], self._too_fast, self.trials)

    async def _confirm(self, rate: float, so_far: list[Outcome]) -> list[Outcome]:
        """As many good runs as are wanted, or none."""
        found = [*so_far]
        while len(found) < self.runs:
            outcome = await self._try(rate)
            if not outcome.is_whole:
                return []
            found.append(outcome)
        return found

    async def _try(self, rate: float) -> Outcome:
        self.trials += 1
        outcome = await self.run(rate)
        worst = self._too_fast
        if not outcome.is_whole and (worst is None or not worst.rate or outcome.offered_per_s <= worst.offered_per_s):
            self._too_fast = outcome
        return outcome
