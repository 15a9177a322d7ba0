"""Search of `pgm tune`: many candidates with few runs, then neighbours of the good ones, then the best with many runs.

All candidates of a round, and the original file, run with the same seeds and thus the same losses. New seeds prove the choice:
a candidate that is the best of several by the same seeds looks better than it is. One seed determines the whole search.

The candidates form two halves: parents and children are of the same half. The better half gives the choice. The difference to the best
of the other half tells how much the luck of a search matters.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

import attrs

from deploy.tune.place import Runs
from deploy.tune.score import Score, compared
from deploy.tune.space import TunableParameter, child_of, draw, rounded, sound
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, TuneTrial
from pgm.parameters import ROWS
from pgm.topology.model import Topology
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND

# Shares of the runs; the finalists get the rest.
_FIRST_SHARE, _SECOND_SHARE, _SHAPE_SHARE, _CACHE_SHARE = 0.4, 0.27, 0.08, 0.08
_FIRST_SEEDS, _SECOND_SEEDS, _LEAST_SEEDS, _LEAST_PROOF_SEEDS = 2, 4, 4, 8
_PARENTS = 12  # at most; half of the second round are their children, or more
_FINALISTS = 6
_PROOF_PART = 1 / 2  # of the runs of the finalists, for the proof of the best one
_MOST_PROOFS = 3  # finalists that are tried until one is clearly better than the file
_CACHES = (4, 2, 1, 1 / 2, 1 / 4, 1 / 8)  # cache times to try, as multiples of the longest repair
_AS_GOOD = 1.02  # largest score of a cache that counts as sufficient


@attrs.define
class SearchResult:
    """Result of a search. `tried` has all candidates of the first rounds; `finals` ran over the same seeds.

    `file`, `best`, `other` and `known` ran over the seeds of the proof: the choice, the best of the half of the search that the choice is
    not from, and the candidates that the caller required. `caches` are scored relative to the best candidate with the caches of
    the file, the largest first.
    """

    file: Score
    best: Score
    other: Score
    finals: list[Score]
    tried: list[Score]
    shapes: list[tuple[str, Score]]
    caches: list[Score]
    known: list[Score] = attrs.field(factory=list)

    @property
    def spread(self) -> float:
        """Return the difference between the scores of the two halves; that to the file if the other half is worse than the file."""
        return abs(min(1.0, self.other.value) - self.best.value)

    @property
    def least_cache(self) -> int:
        """Return the shortest tried cache time in ns that repairs as well as the file's caches; 0 if there is none."""
        sufficient = 0
        for score in self.caches:
            if score.value > _AS_GOOD:
                break
            sufficient = score.candidate.cache_secs
        return sufficient


@attrs.define
class TimerSearch:
    """Search with about `runs` simulations. `say` gets the name of each step."""

    sweep: Runs
    setting: TrialSetting
    parameters: list[TunableParameter]
    topology: Topology
    seed: int
    runs: int
    say: Callable[[str], None] = lambda _: None

    def go(self, shapes: Sequence[str], known: Sequence[Candidate] = ()) -> SearchResult:
        """Search the best timers, then the best of the segments `shapes` for one more repairer, and return the result.

        `known` are candidates that must be in the first round and among the finals.
        """
        rng = random.Random(self.seed)
        base = list(dict.fromkeys([Candidate(), *known]))
        self.say("random settings")
        first = max(_PARENTS, int(self.runs * _FIRST_SHARE / _FIRST_SEEDS)) // 2
        halves = [[self._sound(lambda: draw(rng, self.parameters)) for _ in range(first)] for _ in range(2)]
        tried = self._round([*base, *itertools.chain(*halves)], _FIRST_SEEDS, 1)
        self.say("neighbours of the best")
        second = max(_PARENTS, int(self.runs * _SECOND_SHARE / _SECOND_SEEDS)) // 2
        parents = [_best(tried, [*base, *half], min(_PARENTS, second) // 2) for half in halves]
        halves = [[*half, *self._children(rng, half, second - len(half))] for half in parents]
        better = self._round([*base, *itertools.chain(*halves)], _SECOND_SEEDS, 2)
        self.say("finalists")
        has_caches = any(node.role is Role.REPAIRER for node in self.topology.nodes.values())
        reserved = (_SHAPE_SHARE if shapes else 0) + (_CACHE_SHARE if has_caches else 0)
        remaining = self.runs * (1 - _FIRST_SHARE - _SECOND_SHARE - reserved)
        finalists = [_best(better, half, _FINALISTS // 2) for half in halves]
        last = list(dict.fromkeys([*base, *itertools.chain(*finalists)]))
        finals = self._round(last, max(_LEAST_SEEDS, int(remaining * (1 - _PROOF_PART) / len(last))), 3)
        file, best, other, *required = self._proved(base, finals, finalists, int(remaining * _PROOF_PART))
        caches = self._caches(best) if has_caches else []
        of_shapes = self._shapes(shapes, best.candidate)
        return SearchResult(file, best, other, finals, [*tried, *better], of_shapes, caches, required)

    def _proved(
        self, base: Sequence[Candidate], finals: Sequence[Score], halves: Sequence[Sequence[Candidate]], runs: int
    ) -> list[Score]:
        """Return the scores of the file, the choice, the best of the other half, and the further candidates of `base`.

        Their seeds are new. The choice is the best finalist that is clearly better than the file there, else the file.
        """
        self.say("proof of the choice")
        seeds = max(_LEAST_PROOF_SEEDS, runs // (len(base) + 2))
        ranked = [score.candidate for score in sorted(finals, key=lambda score: score.value) if score.value < 1]
        for choice in [*ranked[:_MOST_PROOFS], base[0]]:
            others = [half for half in halves if choice not in half]
            other = _best(finals, others[0], 1)[0] if others else choice
            found = {score.candidate: score for score in self._round([*base, choice, other], seeds, 6)}
            if found[choice].is_clearly_better:
                break
        return [found[one] for one in (base[0], choice, other, *base[1:])]

    def _children(self, rng: random.Random, parents: Sequence[Candidate], number: int) -> list[Candidate]:
        return [self._child(rng, parents[index % len(parents)]) for index in range(number)]

    def _sound(self, make: Callable[[], Candidate]) -> Candidate:
        return sound(make, self.topology)

    def _child(self, rng: random.Random, parent: Candidate) -> Candidate:
        return self._sound(lambda: child_of(rng, parent, self.parameters))

    def _shapes(self, shapes: Sequence[str], best: Candidate) -> list[tuple[str, Score]]:
        """Score the best timers with one more repairer on each segment, relative to the tree without; best first."""
        if not shapes:
            return []
        self.say("one more repairer")
        candidates = [best, *(attrs.evolve(best, repairers_on=(*best.repairers_on, segment)) for segment in shapes)]
        scores = self._round(candidates, self._seeds(_SHAPE_SHARE, candidates), 4)
        return sorted(zip(shapes, scores[1:], strict=True), key=lambda pair: pair[1].value)

    def _caches(self, best: Score) -> list[Score]:
        """Score the best timers with decreasing cache times, relative to the caches of the file."""
        self.say("caches")
        least, worst = int(ROWS["cache_secs"].low), best.outcome.worst_ms * MILLISECOND
        sizes = [max(least, rounded(worst * part)) for part in _CACHES]
        candidates = [best.candidate, *(attrs.evolve(best.candidate, cache_secs=size) for size in sizes)]
        return self._round(candidates, self._seeds(_CACHE_SHARE, candidates), 5)[1:]

    def _seeds(self, share: float, candidates: Sequence[Candidate]) -> int:
        return max(_LEAST_SEEDS, int(self.runs * share / len(candidates)))

    def _round(self, candidates: Sequence[Candidate], seeds: int, number: int) -> list[Score]:
        """Run all candidates over the same seeds, and score each relative to the first."""
        unique = list(dict.fromkeys(candidates))
        rng = random.Random(f"{self.seed}:{number}")
        drawn = [rng.getrandbits(31) for _ in range(seeds)]
        trials = [TuneTrial(self.setting, candidate, seed) for candidate in unique for seed in drawn]
        # Neighbouring trials take similar times. A random order avoids tasks with slow trials alone.
        order = list(range(len(trials)))
        rng.shuffle(order)
        results: list[RunMeasures | None] = [None] * len(trials)
        for index, outcome in zip(order, self.sweep.run([trials[index] for index in order]), strict=True):
            results[index] = outcome
        runs = [
            [outcome for outcome in results[at : at + seeds] if outcome is not None]
            for at in range(0, len(results), seeds)
        ]
        return [compared(candidate, ours, runs[0]) for candidate, ours in zip(unique, runs, strict=True)]


def _best(scores: Sequence[Score], candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """Return the candidates of the best scores, the best first."""
    ranked = sorted((score for score in scores if score.candidate in set(candidates)), key=lambda score: score.value)
    return [score.candidate for score in ranked[:number]]


def front(scores: Sequence[Score]) -> list[Score]:
    """Return the Pareto front of p99 and traffic, sorted by p99."""
    best: list[Score] = []
    usable = (score for score in scores if score.value < math.inf)
    for score in sorted(usable, key=lambda score: (score.outcome.p99_ms, score.outcome.traffic)):
        if not best or score.outcome.traffic < best[-1].outcome.traffic:
            best.append(score)
    return best
