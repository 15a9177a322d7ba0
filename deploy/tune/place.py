"""Places of additional repairers: a search by formulas, and its proof by simulations.

Few placements are all computed. A greedy search of many placements adds the best repairer to those chosen before. Exchanges then move
single repairers as long as the score falls. The best placements, an even spread and the file itself are simulated with the same seeds.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from deploy.tune.score import Score, compared, value_of
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, TuneTrial, applied, run
from pgm.core_usage import CoreUsage
from pgm.errors import UsageError
from pgm.prediction.predict import Conditions, FeedPrediction, predict_feed
from pgm.prediction.tree import feeds_of
from pgm.prediction.waits import mean_ns, quantile_ns
from pgm.topology.model import Topology
from pgm.units import MILLISECOND

Place = tuple[str, ...]  # segments with one more repairer each, in the order of the file

MOST_EXHAUSTIVE = 200  # placements; each takes some ten ms for every link
_PROVED = 4  # placements that are simulated, the best by formula
MOST_PROVED = _PROVED + 2  # simulated trees: also the even spread and the file
SEARCH_DRAWS = 1024  # of a wait while placements are compared
_LEAST_WAIT_MS = 1e-3
_AS_IT_IS = Candidate()


class Runs(Protocol):
    """Runner of trials: Spark, or this process."""

    usage: CoreUsage

    def run(self, cases: Sequence[TuneTrial]) -> list[RunMeasures]:
        """Return the results in order of the cases."""


@attrs.define
class LocalRuns:
    """Runs of trials in this process, one after the other. `progress` receives the finished runs and the total."""

    progress: Callable[[int, int], None] = lambda *_: None
    usage: CoreUsage = attrs.field(factory=CoreUsage)

    def run(self, cases: Sequence[TuneTrial]) -> list[RunMeasures]:
        """Return the results in order of the cases."""
        found = []
        cpu_s, wall_s = time.process_time(), time.monotonic()
        for case in cases:
            found.append(run(case))
            self.progress(len(found), len(cases))
        self.usage.runs += len(cases)
        self.usage.cpu_s += time.process_time() - cpu_s
        self.usage.wall_s += time.monotonic() - wall_s
        return found


@attrs.frozen
class Placement:
    """A placement with its score by formula, relative to the file, its simulated score, and its runs. Less is better."""

    place: Place
    predicted: float
    score: Score
    runs: tuple[RunMeasures, ...]
    is_even: bool = False

    def clearly_beats(self, other: Placement) -> bool:
        """Return whether the simulated score relative to the other placement is below 1 by more than its error."""
        return self.score.value < math.inf and compared(self.score.candidate, self.runs, other.runs).is_clearly_better


@attrs.frozen
class PlaceResult:
    """Result of a search: the file, the simulated placements with the best score first, and how the search went."""

    file: Score
    placements: tuple[Placement, ...]
    tried: int
    method: str

    @property
    def best(self) -> Placement:
        """Return the choice: the best placement by formula, unless simulations show that another one is clearly better."""
        first = min(self.placements, key=lambda one: one.predicted)
        return next((one for one in self.placements if one.clearly_beats(first)), first)

    @property
    def even(self) -> Placement:
        """Return the even spread."""
        return next(one for one in self.placements if one.is_even)


@attrs.define
class PlaceSearch:
    """Search by formulas over `candidates`, the segments that may have one more repairer. `say` gets the progress."""

    topology: Topology
    conditions: Conditions
    candidates: Sequence[str]
    say: Callable[[str], None] = lambda _: None
    _known: dict[Place, RunMeasures] = attrs.field(factory=dict)

    def measures(self, place: Place) -> RunMeasures:
        """Return the predicted measures of a placement, over all feeds."""
        if place not in self._known:
            tree = applied(self.topology, Candidate(repairers_on=place))
            found = [predict_feed(tree, feed, self.conditions) for feed in feeds_of(tree)]
            self._known[place] = _measures(found)
        return self._known[place]

    def value(self, place: Place) -> float:
        """Return the score of a placement by formula, relative to the file."""
        return value_of(self.measures(place), self.measures(()))

    def with_timers(self, timers: Candidate) -> PlaceSearch:
        """Return a search of the same tree with other timers."""
        return PlaceSearch(applied(self.topology, timers), self.conditions, self.candidates, self.say)

    def ranked(self, number: int) -> tuple[list[Place], str]:
        """Return the placements of `number` repairers that were computed, the best first, and the method.

        Raises `UsageError` if there are fewer segments.
        """
        self.require(number)
        combinations = math.comb(len(self.candidates), number)
        if combinations <= MOST_EXHAUSTIVE:
            for place in itertools.combinations(self.candidates, number):
                self._value_said(place, combinations)
            method = "exhaustively"
        else:
            self._exchanged(self._greedy(number))
            method = "greedily, with exchanges"
        found = [place for place in self._known if len(place) == number]
        return sorted(found, key=lambda place: (self.value(place), place)), method

    def require(self, number: int) -> None:
        """Check that there are enough segments. Raises `UsageError`."""
        if number > len(self.candidates):
            listed = ", ".join(self.candidates) or "none"
            raise UsageError(
                f"--place {number}: only {len(self.candidates)} segments have receivers and no repairer beside them ({listed})",
                remedy=f"give --place {len(self.candidates)} at most"
                if self.candidates
                else "remove a repairer from the file, to place it anew",
            )

    def _value_said(self, place: Place, total: int) -> float:
        value = self.value(place)
        self.say(f"placements by formula: {len(self._known) - 1:,} of {total:,}")
        return value

    def _greedy(self, number: int) -> Place:
        place: Place = ()
        total = number * len(self.candidates)
        for _ in range(number):
            further = [self._with(place, segment) for segment in self.candidates if segment not in place]
            place = min(further, key=lambda one: (self._value_said(one, total), one))
        return place

    def _exchanged(self, place: Place) -> Place:
        while True:
            others = [
                self._with(tuple(one for one in place if one != gone), segment)
                for gone in place
                for segment in self.candidates
                if segment not in place
            ]
            total = len(self._known) + len(others)
            best = min([place, *others], key=lambda one: (self._value_said(one, total), one))
            if best == place:
                return place
            place = best

    def _with(self, place: Place, segment: str) -> Place:
        return tuple(one for one in self.candidates if one in place or one == segment)


def _measures(found: Sequence[FeedPrediction]) -> RunMeasures:
    """Return the predicted measures of all feeds, as those of a simulation."""
    waits = [attrs.evolve(one, weight=one.weight * feed.pace.per_s) for feed in found for one in feed.all_waits]
    missed = max(1e-12, sum(one.weight for one in waits))
    return RunMeasures(
        mean_ms=max(_LEAST_WAIT_MS, mean_ns(waits) / MILLISECOND),
        p99_ms=max(_LEAST_WAIT_MS, quantile_ns(waits, 0.99) / MILLISECOND),
        worst_ms=0.0,
        traffic=sum(feed.repairs * feed.pace.per_s for feed in found) / missed,
        source_naks=sum(feed.source_naks * feed.pace.per_s for feed in found) / missed,
        lost=0,
        missed=round(missed),
    )


def even_spread(candidates: Sequence[str], number: int) -> Place:
    """Return the segments at even distances in the order of the file."""
    step = len(candidates) / number
    return tuple(candidates[int((index + 0.5) * step)] for index in range(number))


def proved(
    search: PlaceSearch,
    number: int,
    setting: TrialSetting,
    runs: Runs,
    seeds: int,
    seed: int,
    timers: Candidate = _AS_IT_IS,
) -> PlaceResult:
    """Search placements by formulas, simulate the best ones beside an even spread and the file, and return the result.

    The placements have `timers`, which must be those of the search. The file has its own.
    """
    ranked, method = search.ranked(number)
    even = even_spread(search.candidates, number)
    places = list(dict.fromkeys([*ranked[:_PROVED], even]))
    candidates = [attrs.evolve(timers, repairers_on=place) for place in places]
    of_file, *of_places = _simulated(setting, [_AS_IT_IS, *candidates], runs, seeds, seed)
    found = []
    for place, candidate, outcomes in zip(places, candidates, of_places, strict=True):
        score = compared(candidate, outcomes, of_file)
        found.append(Placement(place, search.value(place), score, tuple(outcomes), place == even))
    found.sort(key=lambda one: (one.score.value, one.predicted))
    return PlaceResult(compared(_AS_IT_IS, of_file, of_file), tuple(found), len(ranked), method)


def _simulated(
    setting: TrialSetting, candidates: Sequence[Candidate], runs: Runs, seeds: int, seed: int
) -> list[list[RunMeasures]]:
    """Return the results of each candidate, over the same seeds."""
    rng = random.Random(f"{seed}:place")
    drawn = [rng.getrandbits(31) for _ in range(seeds)]
    results = runs.run([TuneTrial(setting, candidate, one) for candidate in candidates for one in drawn])
    return [results[at : at + seeds] for at in range(0, len(results), seeds)]
