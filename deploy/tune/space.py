"""What `pgm tune` may change, within which bounds: timers by segment, drawn around what the file says."""

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
# A wait below this many round trips would be over before the answer can be there.
_LEAST_TRIPS = {"nak_rpt_ivl": 2.0, "nak_rdata_ivl": 3.0, "nak_bo_ivl": 0.0, "rdata_hold_ivl": 0.0}
_LEAST = {
    "nak_rpt_ivl": 5 * MILLISECOND,
    "nak_rdata_ivl": 10 * MILLISECOND,
    "nak_bo_ivl": MILLISECOND,
    "rdata_hold_ivl": 100 * MICROSECOND,
}
_IGNORE_PART = 4  # rdata_ignore_ivl stays below nak_rdata_ivl by this factor
_MOST_TRIES = 30
_MUTATED = 0.4  # share of the knobs that differ between a good candidate and its child


@attrs.frozen
class TunableParameter:
    """One parameter on one segment: its value in the file and those to try, in ns."""

    segment: str
    key: str
    now: int
    values: tuple[int, ...]


def knobs(topology: Topology, delays: dict[str, int]) -> list[TunableParameter]:
    """Everything that may be changed. `delays` are in ns from a segment to a node."""
    found: dict[tuple[str, str], TunableParameter] = {}
    for node in topology.nodes.values():
        settings = settings_of(topology, node)
        for segment, key in _said_by(node):
            if (segment, key) in found or key in node.parameters:
                continue
            now = value_of(settings, key)
            answered = rounded_up(2 * delays[segment] * _LEAST_TRIPS[key])
            least = max(_LEAST[key], answered, int(ROWS[key].low))
            values = {max(least, rounded(now * factor)) for factor in _FACTORS} | {now}
            found[segment, key] = TunableParameter(segment, key, now, tuple(sorted(values)))
    return list(found.values())


def _said_by(node: NodeTable) -> Iterator[tuple[str, str]]:
    """The segments and keys that decide about a node, as `pgm.topology.precedence` has it."""
    if node.role in (Role.RECEIVER, Role.REPAIRER) and node.up is not None:
        yield from ((node.up.segment, key) for key in _ASKING)
    if node.role in (Role.SOURCE, Role.REPAIRER):
        yield from ((place.segment, key) for place in node.downs[:1] for key in _ANSWERING)


def rounded(value: float) -> int:
    """Two digits, as people write intervals."""
    step = _step_of(value)
    return max(1, round(value / step)) * step


def rounded_up(value: float) -> int:
    """Two digits and not below `value`, for what is a lower bound."""
    step = _step_of(value)
    return max(1, math.ceil(value / step)) * step


def _step_of(value: float) -> int:
    step = MICROSECOND
    while step * 100 <= value:
        step *= 10
    return step


def draw(rng: random.Random, all_knobs: list[TunableParameter]) -> Candidate:
    """Any value for every knob."""
    return _candidate({(knob.segment, knob.key): rng.choice(knob.values) for knob in all_knobs})


def child_of(rng: random.Random, parent: Candidate, all_knobs: list[TunableParameter]) -> Candidate:
    """A neighbour: some knobs one step up or down."""
    known = {(segment, key): value for segment, values in parent.overrides for key, value in values}
    chosen: dict[tuple[str, str], int] = {}
    for knob in all_knobs:
        at = knob.values.index(known.get((knob.segment, knob.key), knob.now))
        if rng.random() < _MUTATED:
            at = min(len(knob.values) - 1, max(0, at + rng.choice((-1, 1))))
        chosen[knob.segment, knob.key] = knob.values[at]
    return _candidate(chosen)


def _candidate(chosen: dict[tuple[str, str], int]) -> Candidate:
    by_segment: dict[str, dict[str, int]] = {}
    for (segment, key), value in chosen.items():
        by_segment.setdefault(segment, {})[key] = value
    return Candidate(overrides_of(by_segment))


def overrides_of(by_segment: dict[str, dict[str, int]]) -> Choices:
    """Sorted, with what must follow from what was chosen: nobody, however far up, may take a repeat for an echo."""
    waits = [values["nak_rdata_ivl"] for values in by_segment.values() if "nak_rdata_ivl" in values]
    ignore = min([int(ROWS["rdata_ignore_ivl"].default), *(wait // _IGNORE_PART for wait in waits)])
    return tuple(
        (segment, tuple(sorted({**values, "rdata_ignore_ivl": ignore}.items())))
        for segment, values in sorted(by_segment.items())
    )


def sound(make: Callable[[], Candidate], topology: Topology) -> Candidate:
    """What `make` gives, made again until it is a valid tree; the tree as it is when that takes too long."""
    for _ in range(_MOST_TRIES):
        candidate = make()
        if not check(applied(topology, candidate)).errors:
            return candidate
    return Candidate()
