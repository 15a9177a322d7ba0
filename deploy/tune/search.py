"""How `pgm tune` looks for settings: many candidates with few runs, neighbours of the good ones, the best with many runs.

Every candidate of a round meets the same seeds, hence the same losses, and so does the file as it is. The whole search is
decided by one seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import attrs

from deploy.tune.space import TunableParameter, child_of, draw, rounded, sound
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, TuneTrial
from pgm.parameters import ROWS
from pgm.spark.jobs.parallel_runs import Sweep
from pgm.topology.model import Topology
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND

# Of the runs; the rest is for the finalists.
_FIRST_SHARE, _SECOND_SHARE, _SHAPE_SHARE, _CACHE_SHARE = 0.4, 0.27, 0.08, 0.08
_FIRST_SEEDS, _SECOND_SEEDS, _LEAST_SEEDS = 2, 4, 4
_PARENTS = 12
_FINALISTS = 6
# What counts how much: repairs that come soon first, then what they cost, and last what the source hears of them.
_LATENCY, _TRAFFIC, _SOURCE = 1.0, 0.5, 0.25
_WORST_TRAFFIC = 1.25  # times that of the file: more is no price to pay
_CACHES = (4, 2, 1, 1 / 2, 1 / 4, 1 / 8)  # to be tried, in parts of the longest that any repair took
_AS_GOOD = 1.02  # the score up to which a smaller cache is no worse


@attrs.frozen
class Score:
    """A candidate's mean outcome over the seeds of a round, and its score: 1 is the file as it is, less is better."""

    candidate: Candidate
    outcome: RunMeasures
    value: float
    runs: int


@attrs.define
class SearchResult:
    """What a search came to. `tried` is everything of the first rounds, `finals` are comparable among themselves.

    `caches` are scored against the best with the caches of the file, the largest first. `known` are those of the finals that were
    to be among them, whatever they came to.
    """

    file: Score
    best: Score
    finals: list[Score]
    tried: list[Score]
    shapes: list[tuple[str, Score]]
    caches: list[Score]
    known: list[Score] = attrs.field(factory=list)

    @property
    def least_cache(self) -> int:
        """The shortest time, in ns, that repairers may keep packets and repair as well; 0 if none of those that were tried."""
        enough = 0
        for one in self.caches:
            if one.value > _AS_GOOD:
                break
            enough = one.candidate.cache_secs
        return enough


def mean(outcomes: Sequence[RunMeasures]) -> RunMeasures:
    """One outcome of many; of losses the sum, of the worst wait the worst."""
    count, missed = len(outcomes), max(1, sum(one.missed for one in outcomes))

    def of_missed(name: str) -> float:
        return float(sum(getattr(one, name) * one.missed for one in outcomes) / missed)

    return RunMeasures(
        mean_ms=of_missed("mean_ms"),
        p99_ms=sum(one.p99_ms for one in outcomes) / count,
        worst_ms=max(one.worst_ms for one in outcomes),
        traffic=of_missed("traffic"),
        source_naks=of_missed("source_naks"),
        lost=sum(one.lost for one in outcomes),
        missed=sum(one.missed for one in outcomes),
    )


def value_of(one: RunMeasures, file: RunMeasures) -> float:
    """How good, against the file: a weighted geometric mean of ratios. Infinite for what loses more or costs far more."""
    if one.lost > file.lost or one.traffic > _WORST_TRAFFIC * file.traffic:
        return math.inf

    def ratio(ours: float, theirs: float) -> float:
        return math.log(max(ours, 1e-3) / max(theirs, 1e-3))

    latency = (ratio(one.mean_ms, file.mean_ms) + ratio(one.p99_ms, file.p99_ms)) / 2
    traffic, source = ratio(one.traffic, file.traffic), ratio(one.source_naks, file.source_naks)
    weights = _LATENCY + _TRAFFIC + _SOURCE
    return math.exp((_LATENCY * latency + _TRAFFIC * traffic + _SOURCE * source) / weights)


@attrs.define
class TimerSearch:
    """A search of about `runs` simulations. `say` is told what it is about."""

    sweep: Sweep
    place: TrialSetting
    knobs: list[TunableParameter]
    topology: Topology
    seed: int
    runs: int
    say: Callable[[str], None] = lambda _: None

    def go(self, shapes: Sequence[str], known: Sequence[Candidate] = ()) -> SearchResult:
        """Look for the best timers, then for where one more repairer, on one of the segments `shapes`, would help most.

        `known` are candidates that must be among the first and among the last.
        """
        rng = random.Random(self.seed)
        first = max(_PARENTS, int(self.runs * _FIRST_SHARE / _FIRST_SEEDS))
        self.say("any settings")
        drawn = [
            Candidate(),
            *known,
            *(self._sound(lambda: draw(rng, self.knobs)) for _ in range(first - 1 - len(known))),
        ]
        tried = self._round(drawn, _FIRST_SEEDS, 1)
        parents = [one.candidate for one in sorted(tried, key=lambda one: one.value)[:_PARENTS]]
        self.say("neighbours of the best")
        second = max(_PARENTS, int(self.runs * _SECOND_SHARE / _SECOND_SEEDS))
        children = [self._child(rng, parents[index % len(parents)]) for index in range(second - len(parents) - 1)]
        better = self._round([Candidate(), *parents, *children], _SECOND_SEEDS, 2)
        ranked = sorted(better, key=lambda one: one.value)
        finalists = list(dict.fromkeys(one.candidate for one in ranked[:_FINALISTS]))
        self.say("the finalists")
        has_caches = any(node.role is Role.REPAIRER for node in self.topology.nodes.values())
        apart = (_SHAPE_SHARE if shapes else 0) + (_CACHE_SHARE if has_caches else 0)
        left = self.runs * (1 - _FIRST_SHARE - _SECOND_SHARE - apart)
        compared = list(dict.fromkeys([Candidate(), *known, *finalists]))
        finals = self._round(compared, max(_LEAST_SEEDS, int(left / len(compared))), 3)
        best = min(finals, key=lambda one: one.value)
        beside = [one for one in finals if one.candidate in known]
        caches = self._caches(best) if has_caches else []
        return SearchResult(
            finals[0], best, finals, [*tried, *better], self._shapes(shapes, best.candidate), caches, beside
        )

    def _sound(self, make: Callable[[], Candidate]) -> Candidate:
        return sound(make, self.topology)

    def _child(self, rng: random.Random, parent: Candidate) -> Candidate:
        return self._sound(lambda: child_of(rng, parent, self.knobs))

    def _shapes(self, shapes: Sequence[str], best: Candidate) -> list[tuple[str, Score]]:
        """The tree with the best timers and one more repairer, scored against that without; best first."""
        if not shapes:
            return []
        self.say("one more repairer")
        candidates = [best, *(attrs.evolve(best, repairer_on=segment) for segment in shapes)]
        scores = self._round(candidates, self._seeds(_SHAPE_SHARE, candidates), 4)
        return sorted(zip(shapes, scores[1:], strict=True), key=lambda pair: pair[1].value)

    def _caches(self, best: Score) -> list[Score]:
        """The best timers with smaller and smaller caches, scored against the caches of the file."""
        self.say("caches")
        least, worst = int(ROWS["cache_secs"].low), best.outcome.worst_ms * MILLISECOND
        sizes = [max(least, rounded(worst * part)) for part in _CACHES]
        candidates = [best.candidate, *(attrs.evolve(best.candidate, cache_secs=size) for size in sizes)]
        return self._round(candidates, self._seeds(_CACHE_SHARE, candidates), 5)[1:]

    def _seeds(self, share: float, candidates: Sequence[Candidate]) -> int:
        return max(_LEAST_SEEDS, int(self.runs * share / len(candidates)))

    def _round(self, candidates: Sequence[Candidate], seeds: int, number: int) -> list[Score]:
        """Run all of them over the same seeds; the first is what the others are measured against."""
        wanted = list(dict.fromkeys(candidates))
        rng = random.Random(f"{self.seed}:{number}")
        drawn = [rng.getrandbits(31) for _ in range(seeds)]
        trials = [TuneTrial(self.place, candidate, seed) for candidate in wanted for seed in drawn]
        # Neighbouring trials are alike; spread over the tasks, none of them has only the slow ones.
        order = list(range(len(trials)))
        rng.shuffle(order)
        results: list[RunMeasures | None] = [None] * len(trials)
        for index, outcome in zip(order, self.sweep.run([trials[index] for index in order]), strict=True):
            results[index] = outcome
        means = []
        for index in range(len(wanted)):
            some = [one for one in results[index * seeds : (index + 1) * seeds] if one is not None]
            means.append(mean(some))
        return [
            Score(candidate, outcome, value_of(outcome, means[0]), seeds)
            for candidate, outcome in zip(wanted, means, strict=True)
        ]


def front(scores: Sequence[Score]) -> list[Score]:
    """Those that none beats in both p99 and traffic, by p99: the Pareto front."""
    best: list[Score] = []
    for one in sorted(
        (one for one in scores if one.value < math.inf), key=lambda one: (one.outcome.p99_ms, one.outcome.traffic)
    ):
        if not best or one.outcome.traffic < best[-1].outcome.traffic:
            best.append(one)
    return best
