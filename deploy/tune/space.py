"""Search space of `pgm tune`: timers by segment, with bounds and with values around those of the file."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

import attrs

from deploy.tune.trial import Candidate, Choices, applied
from pgm.parameters import ROWS
from pgm.topology.check import check
from pgm.topology.model import NodeTable, Topology
from pgm.topology.node_plan import Role
from pgm.topology.precedence import settings_of, value_of
from pgm.units import MICROSECOND, MILLISECOND

_ASKING = ("nak_bo_ivl", "nak_rpt_ivl", "nak_rdata_ivl")
_ANSWERING = ("rdata_hold_ivl",)
_FACTORS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2)
# Least wait in round trips. A shorter wait would end before the answer can arrive.
_LEAST_TRIPS = {"nak_rpt_ivl": 2.0, "nak_rdata_ivl": 3.0, "nak_bo_ivl": 0.0, "rdata_hold_ivl": 0.0}
_LEAST = {
    "nak_rpt_ivl": 5 * MILLISECOND,
    "nak_rdata_ivl": 10 * MILLISECOND,
    "nak_bo_ivl": MILLISECOND,
    "rdata_hold_ivl": 100 * MICROSECOND,
}
_IGNORE_PART = 4  # rdata_ignore_ivl stays below nak_rdata_ivl by this factor
_MOST_TRIES = 30
_MUTATED = 0.4  # probability that a parameter differs between a good candidate and its child


@attrs.frozen
class TunableParameter:
    """Parameter on a segment, with its value in the file and the values to try, in ns."""

    segment: str
    key: str
    now: int
    values: tuple[int, ...]


def tunable_parameters(topology: Topology, delays: dict[str, int]) -> list[TunableParameter]:
    """Return all tunable parameters. `delays` are in ns from a segment to a node."""
    parameters: dict[tuple[str, str], TunableParameter] = {}
    for node in topology.nodes.values():
        settings = settings_of(topology, node)
        for segment, key in _keys_of(node):
            if (segment, key) in parameters or key in node.parameters:
                continue
            now = value_of(settings, key)
            answer_ns = rounded_up(2 * delays[segment] * _LEAST_TRIPS[key])
            least = max(_LEAST[key], answer_ns, int(ROWS[key].low))
            values = {max(least, rounded(now * factor)) for factor in _FACTORS} | {now}
            parameters[segment, key] = TunableParameter(segment, key, now, tuple(sorted(values)))
    return list(parameters.values())


def _keys_of(node: NodeTable) -> Iterator[tuple[str, str]]:
    """Yield the segments and keys that determine the timers of a node, as in `pgm.topology.precedence`."""
    if node.role in (Role.RECEIVER, Role.REPAIRER) and node.up is not None:
        yield from ((node.up.segment, key) for key in _ASKING)
    if node.role in (Role.SOURCE, Role.REPAIRER):
        yield from ((place.segment, key) for place in node.downs[:1] for key in _ANSWERING)


def rounded(value: float) -> int:
    """Round an interval in ns to two significant digits."""
    step = _step_of(value)
    return max(1, round(value / step)) * step


def rounded_up(value: float) -> int:
    """Round a lower bound in ns up to two significant digits."""
    step = _step_of(value)
    return max(1, math.ceil(value / step)) * step


def _step_of(value: float) -> int:
    step = MICROSECOND
    while step * 100 <= value:
        step *= 10
    return step


def draw(rng: random.Random, parameters: list[TunableParameter]) -> Candidate:
    """Return a candidate with a random value for every parameter."""
    return _candidate({(parameter.segment, parameter.key): rng.choice(parameter.values) for parameter in parameters})


def child_of(rng: random.Random, parent: Candidate, parameters: list[TunableParameter]) -> Candidate:
    """Return a neighbour of a candidate, with some parameters one step up or down."""
    known = {(segment, key): value for segment, values in parent.overrides for key, value in values}
    chosen: dict[tuple[str, str], int] = {}
    for parameter in parameters:
        at = parameter.values.index(known.get((parameter.segment, parameter.key), parameter.now))
        if rng.random() < _MUTATED:
            at = min(len(parameter.values) - 1, max(0, at + rng.choice((-1, 1))))
        chosen[parameter.segment, parameter.key] = parameter.values[at]
    return _candidate(chosen)


def _candidate(chosen: dict[tuple[str, str], int]) -> Candidate:
    by_segment: dict[str, dict[str, int]] = {}
    for (segment, key), value in chosen.items():
        by_segment.setdefault(segment, {})[key] = value
    return Candidate(overrides_of(by_segment))


def overrides_of(by_segment: dict[str, dict[str, int]]) -> Choices:
    """Return the values as sorted choices, with a matching `rdata_ignore_ivl` on every segment.

    The `rdata_ignore_ivl` stays far below every `nak_rdata_ivl`, so that no element of the tree ignores a repeated NAK.
    """
    waits = [values["nak_rdata_ivl"] for values in by_segment.values() if "nak_rdata_ivl" in values]
    ignore = min([int(ROWS["rdata_ignore_ivl"].default), *(wait // _IGNORE_PART for wait in waits)])
    return tuple(
        (segment, tuple(sorted({**values, "rdata_ignore_ivl": ignore}.items())))
        for segment, values in sorted(by_segment.items())
    )


def sound(make: Callable[[], Candidate], topology: Topology) -> Candidate:
    """Return the first candidate of `make` that gives a valid tree; the unchanged tree after `_MOST_TRIES` attempts."""
    for _ in range(_MOST_TRIES):
        candidate = make()
        if not check(applied(topology, candidate)).errors:
            return candidate
    return Candidate()
