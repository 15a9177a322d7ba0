"""The lossless maximum: the highest rate at which nothing is lost, found by bisection and confirmed."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable

import attrs
import trio

from deploy.bench.trial import TrialResult

_MOST_STEPS = 12  # of the bisection: from a rate ten times too high to a hundredth of it
_MOST_RETREATS = 12  # rates that were found and then not confirmed
REACHED = 0.97  # of a rate: below it the sender did not send that fast
_MOST_MISSES = 2
_STEP_BACK = 0.93
_STEP_ON = 1.5
_LEAST_SHARE = 1 / 4096  # of what a sender can send: a contender that loses even there has no lossless rate
_PLAIN = 0.1  # of all messages: who loses more was not stalled once by the machine, but is too slow

Run = Callable[[float], Awaitable[TrialResult]]  # a trial at so many messages a second, 0 for as fast as it goes


@attrs.frozen
class Maximum:
    """What the search found."""

    runs: list[TrialResult]  # in a row, at the highest lossless rate; empty if there was none
    too_fast: TrialResult | None  # at the lowest rate that was too much
    trials: int
    stumbles: int = 0  # trials at the highest lossless rate that were not whole, before those in a row

    @property
    def median(self) -> TrialResult | None:
        """The run with the median rate."""
        if not self.runs:
            return None
        middle = statistics.median_low(one.messages_per_s for one in self.runs)
        return next(one for one in self.runs if one.messages_per_s == middle)


@attrs.define
class RateSearch:
    """One contender's search. `precision` is the width of the last interval as a share of the rate; with 1 any rate will do.

    A rate is too fast when a second trial at it is not whole either, or when the first lost more than a stall explains:
    machines are stopped for milliseconds now and then, and one such stop must not decide about a contender.
    """

    run: Run
    runs: int
    precision: float
    before_confirming: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    trials: int = 0
    _flawed: list[TrialResult] = attrs.field(factory=list)
    _too_fast: TrialResult | None = None

    async def maximum(self) -> Maximum:
        """Find it: flat out, then by rates, then above what was sent flat out, which is not always the most that can be sent."""
        first = await self._try(0.0)
        high, low = first.offered_per_s, 0.0
        guess = min(first.messages_per_s, high) * 0.9
        good: TrialResult | None = None
        if first.is_whole:
            low, good = high, first
        else:
            self._note(first)
        steps = missed = 0
        is_limit = (
            False  # of what is sent flat out: a source that adapts sends less then than by a rate that all can bear
        )
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
            outcome = await self._judged(rate)
            if outcome.is_whole:
                good = outcome if good is None or outcome.messages_per_s > good.messages_per_s else good
                if outcome.offered_per_s >= REACHED * rate:
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

    async def _settle(self, good: TrialResult | None) -> Maximum:
        """Confirm a rate that was good once, or a lower one."""
        await self.before_confirming()
        for _ in range(_MOST_RETREATS if good is not None else 0):
            assert good is not None
            confirmed = await self._confirm(good)
            if confirmed:
                stumbles = sum(one.rate == good.rate for one in self._flawed)
                return Maximum(confirmed, self._limit_above(good), self.trials, stumbles)
            least = (good.rate or good.offered_per_s) * _LEAST_SHARE
            rate = (good.rate or good.offered_per_s) * _STEP_BACK
            good = await self._judged(rate)
            while not good.is_whole and rate > least and self.trials < 10 * _MOST_STEPS:
                rate *= _STEP_BACK
                good = await self._judged(rate)
        return Maximum([], self._too_fast, self.trials)

    async def _confirm(self, good: TrialResult) -> list[TrialResult]:
        """As many good runs in a row as are wanted, or none. Once they may begin anew."""
        found = [good]
        while len(found) < self.runs:
            outcome = await self._try(good.rate)
            if outcome.is_whole:
                found.append(outcome)
            elif _is_plain(outcome) or sum(one.rate == good.rate for one in self._flawed) > 1:
                self._note(outcome)
                return []
            else:
                found = []
        return found

    async def _judged(self, rate: float) -> TrialResult:
        """A trial; a second one where the first was not whole and that may have been the machine."""
        outcome = await self._try(rate)
        if not outcome.is_whole and not _is_plain(outcome):
            outcome = await self._try(rate)
        if not outcome.is_whole:
            self._note(outcome)
        return outcome

    async def _try(self, rate: float) -> TrialResult:
        self.trials += 1
        outcome = await self.run(rate)
        if not outcome.is_whole:
            self._flawed.append(outcome)
        return outcome

    def _limit_above(self, good: TrialResult) -> TrialResult | None:
        """What was too fast, if that was more than this."""
        known = self._too_fast
        is_above = known is not None and (known.rate or known.offered_per_s) > good.offered_per_s
        return known if good.rate and is_above else None

    def _note(self, outcome: TrialResult) -> None:
        """A rate that is too fast: the lowest is told of."""
        known = self._too_fast
        if known is None or not known.rate or 0 < outcome.rate < known.rate:
            self._too_fast = outcome


def _is_plain(outcome: TrialResult) -> bool:
    """Whether so much was lost that no second trial is needed."""
    return outcome.lost > _PLAIN * outcome.sent
