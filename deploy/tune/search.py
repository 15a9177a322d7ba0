"""Search of `pgm tune`: many candidates with few runs, then neighbours of the good ones, then the best with many runs.

All candidates of a round, and the original file, run with the same seeds and thus the same losses. New seeds prove the choice:
a candidate that is the best of several by the same seeds looks better than it is. One seed determines the whole search.
"""

from __future__ import annotations

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
_PARENTS = 12
_FINALISTS = 6
_PROOF_PART = 1 / 2  # of the runs of the finalists, for the proof of the best one
_MOST_PROOFS = 3  # finalists that are tried until one is clearly better than the file
_CACHES = (4, 2, 1, 1 / 2, 1 / 4, 1 / 8)  # cache times to try, as multiples of the longest repair
_AS_GOOD = 1.02  # largest score of a cache that counts as sufficient


@attrs.define
class SearchResult:
    """Result of a search. `tried` has all candidates of the first rounds; `finals` ran over the same seeds.

    `file`, `best` and `known`, the candidates that the caller required, ran over the seeds of the proof. `caches` are scored relative
    to the best candidate with the caches of the file, the largest first.
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
        first = max(_PARENTS, int(self.runs * _FIRST_SHARE / _FIRST_SEEDS))
        self.say("random settings")
        drawn = [
            Candidate(),
            *known,
            *(self._sound(lambda: draw(rng, self.parameters)) for _ in range(first - 1 - len(known))),
        ]
        tried = self._round(drawn, _FIRST_SEEDS, 1)
        parents = [score.candidate for score in sorted(tried, key=lambda score: score.value)[:_PARENTS]]
        self.say("neighbours of the best")
        second = max(_PARENTS, int(self.runs * _SECOND_SHARE / _SECOND_SEEDS))
        children = [self._child(rng, parents[index % len(parents)]) for index in range(second - len(parents) - 1)]
        better = self._round([Candidate(), *parents, *children], _SECOND_SEEDS, 2)
        ranked = sorted(better, key=lambda score: score.value)
        finalists = list(dict.fromkeys(score.candidate for score in ranked[:_FINALISTS]))
        self.say("finalists")
        has_caches = any(node.role is Role.REPAIRER for node in self.topology.nodes.values())
        reserved = (_SHAPE_SHARE if shapes else 0) + (_CACHE_SHARE if has_caches else 0)
        remaining = self.runs * (1 - _FIRST_SHARE - _SECOND_SHARE - reserved)
        finals_of = list(dict.fromkeys([Candidate(), *known, *finalists]))
        seeds = max(_LEAST_SEEDS, int(remaining * (1 - _PROOF_PART) / len(finals_of)))
        finals = self._round(finals_of, seeds, 3)
        file, best, required = self._proved(finals, known, int(remaining * _PROOF_PART))
        caches = self._caches(best) if has_caches else []
        return SearchResult(
            file, best, finals, [*tried, *better], self._shapes(shapes, best.candidate), caches, required
        )

    def _proved(
        self, finals: Sequence[Score], known: Sequence[Candidate], runs: int
    ) -> tuple[Score, Score, list[Score]]:
        """Return the scores of the file, the choice and the required candidates, over seeds that no choice depends on.

        The choice is the best finalist that is clearly better than the file, else the file.
        """
        self.say("proof of the choice")
        required = list(dict.fromkeys([Candidate(), *known]))
        seeds = max(_LEAST_PROOF_SEEDS, runs // (len(required) + 1))
        ranked = sorted((score for score in finals[1:] if score.value < 1), key=lambda score: score.value)
        for tried in [*ranked[:_MOST_PROOFS], finals[0]]:
            scores = self._round([*required, tried.candidate], seeds, 6)
            best = next(score for score in scores if score.candidate == tried.candidate)
            if best.is_clearly_better:
                break
        return scores[0], best, scores[1 : len(required)]

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


def front(scores: Sequence[Score]) -> list[Score]:
    """Return the Pareto front of p99 and traffic, sorted by p99."""
    best: list[Score] = []
    usable = (score for score in scores if score.value < math.inf)
    for score in sorted(usable, key=lambda score: (score.outcome.p99_ms, score.outcome.traffic)):
        if not best or score.outcome.traffic < best[-1].outcome.traffic:
            best.append(score)
    return best
