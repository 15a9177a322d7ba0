"""Search for the lossless maximum: bisection, then confirmation of the rate by consecutive runs."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

import attrs
import trio

from deploy.bench.trial import TrialResult

_MOST_STEPS = 12  # of the bisection: enough from a rate ten times too high to a hundredth of that rate
_MOST_RETREATS = 12  # rates that bisection accepted and confirmation rejected
REACHED = 0.97  # share of the requested rate that the sender must reach
_MOST_MISSES = 2
_STEP_BACK = 0.93
_STEP_ON = 1.5
_LEAST_SHARE = 1 / 4096  # of the sender's fastest rate; a contender that loses even at this share has no lossless rate
_HEAVY_LOSS = 0.1  # share of lost messages above which a stall of the machine cannot be the reason

# Runs one trial at a rate in messages a second. A rate of 0 means as fast as possible.
Run = Callable[[float], Awaitable[TrialResult]]


@attrs.frozen
class Maximum:
    """Result of a search."""

    runs: list[TrialResult]  # consecutive, at the highest lossless rate; empty if no rate was lossless
    too_fast: TrialResult | None  # the trial with the lowest rate that caused loss
    trials: int
    stumbles: int = 0  # failed trials at the highest lossless rate before the consecutive good runs

    @property
    def median(self) -> TrialResult | None:
        """Return the run with the median rate."""
        if not self.runs:
            return None
        middle = statistics.median_low(run.messages_per_s for run in self.runs)
        return next(run for run in self.runs if run.messages_per_s == middle)


@attrs.define
class RateSearch:
    """Rate search of one contender.

    `precision` is the width of the last interval as a share of the rate. With a precision of 1 the first lossless rate
    is enough.

    A rate is too fast if two trials at this rate fail. One trial decides alone if it lost more than a stall explains.
    Machines stall for milliseconds now and then, and one stall must not decide the result.
    """

    run: Run
    runs: int
    precision: float
    before_confirming: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    trials: int = 0
    _failures: list[TrialResult] = attrs.field(factory=list)
    _too_fast: TrialResult | None = None

    async def maximum(self) -> Maximum:
        """Search the maximum: without pacing first, then paced rates by bisection.

        The search continues above the unpaced rate, because pacing can allow more than an unpaced sender reaches.
        """
        first = await self._try(0.0)
        high, low = first.offered_per_s, 0.0
        guess = min(first.messages_per_s, high) * 0.9
        good: TrialResult | None = None
        if first.is_whole:
            low, good = high, first
        else:
            self._note_too_fast(first)
        steps = missed = 0
        is_limit = False  # a source that adapts can send less without pacing than at a paced rate
        while steps < _MOST_STEPS:
            is_beyond = low > 0 and high - low <= self.precision * high
            if is_beyond and (is_limit or self.precision >= 1):
                break
            if is_beyond:
                high *= _STEP_ON
            rate = high if is_beyond else (low + high) / 2
            if steps == 0 and low < guess < high:
                rate = guess
            steps += 1
            outcome = await self._try_twice(rate)
            if outcome.is_whole:
                good = outcome if good is None or outcome.messages_per_s > good.messages_per_s else good
                if outcome.offered_per_s >= REACHED * rate:
                    low = rate
                else:  # the sender was too slow, so the trial says nothing about this rate
                    low, missed = max(low, outcome.offered_per_s), missed + 1
                    if is_beyond or missed == _MOST_MISSES:
                        break
            elif rate < first.offered_per_s * _LEAST_SHARE:
                break
            else:
                high, is_limit = rate, True
        return await self._confirm_at_or_below(good)

    async def _confirm_at_or_below(self, good: TrialResult | None) -> Maximum:
        """Confirm a rate that was lossless once, or a lower rate."""
        await self.before_confirming()
        for _ in range(_MOST_RETREATS if good is not None else 0):
            assert good is not None
            confirmed = await self._confirm(good)
            if confirmed:
                stumbles = sum(failure.rate == good.rate for failure in self._failures)
                return Maximum(confirmed, self._limit_above(good), self.trials, stumbles)
            least = (good.rate or good.offered_per_s) * _LEAST_SHARE
            rate = (good.rate or good.offered_per_s) * _STEP_BACK
            good = await self._try_twice(rate)
            while not good.is_whole and rate > least and self.trials < 10 * _MOST_STEPS:
                rate *= _STEP_BACK
                good = await self._try_twice(rate)
        return Maximum([], self._too_fast, self.trials)

    async def _confirm(self, good: TrialResult) -> list[TrialResult]:
        """Return `runs` consecutive lossless trials, or none. One failed trial restarts the count."""
        runs = [good]
        while len(runs) < self.runs:
            outcome = await self._try(good.rate)
            if outcome.is_whole:
                runs.append(outcome)
            elif _is_heavy_loss(outcome) or sum(failure.rate == good.rate for failure in self._failures) > 1:
                self._note_too_fast(outcome)
                return []
            else:
                runs = []
        return runs

    async def _try_twice(self, rate: float) -> TrialResult:
        """Run a trial, and repeat it if a stall may explain its failure."""
        outcome = await self._try(rate)
        if not outcome.is_whole and not _is_heavy_loss(outcome):
            outcome = await self._try(rate)
        if not outcome.is_whole:
            self._note_too_fast(outcome)
        return outcome

    async def _try(self, rate: float) -> TrialResult:
        self.trials += 1
        outcome = await self.run(rate)
        if not outcome.is_whole:
            self._failures.append(outcome)
        return outcome

    def _limit_above(self, good: TrialResult) -> TrialResult | None:
        """Return the lowest rate that was too fast, if it is above the good rate."""
        too_fast = self._too_fast
        is_above = too_fast is not None and (too_fast.rate or too_fast.offered_per_s) > good.offered_per_s
        return too_fast if good.rate and is_above else None

    def _note_too_fast(self, outcome: TrialResult) -> None:
        """Record a failed trial; the one with the lowest rate is kept."""
        too_fast = self._too_fast
        if too_fast is None or not too_fast.rate or 0 < outcome.rate < too_fast.rate:
            self._too_fast = outcome


def _is_heavy_loss(outcome: TrialResult) -> bool:
    """Return whether the loss is too large for a stall of the machine. A loss of this size needs no second trial."""
    return outcome.lost > _HEAVY_LOSS * outcome.sent
