"""Breadth-first search of a tree's states, in levels: each level is cut in shares, which tasks expand.

The driver keeps the hash of each state it has seen: two states with the same 61 bits would count as one, which among
10^7 states happens by a chance of some 10^-5. A share is a plain value, so tasks may run in other processes: it has the
octets of the cores and packets that its states name. Each process keeps what it has computed for the next share.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import attrs
import numpy as np
import numpy.typing as npt

from tests.explore.endings import Endings, Endless
from tests.explore.nodes import Kept, Packet
from tests.explore.setups import Bounds
from tests.explore.tree import PropertyBroken, State, Step, Tree

SHARE_STATES = 2000  # of one task: some 100 ms of work


@attrs.frozen
class Share:
    """States of one level, and what a process needs to expand them."""

    setup: str
    bounds: Bounds
    states: tuple[State, ...]
    cores: dict[int, Kept]
    packets: dict[int, Packet]
    ending_share: int  # one in so many states is run to its end


@attrs.frozen
class Fault:
    """A broken property, and how it was reached: the place of the state in its level, and the steps from there."""

    place: int
    steps: tuple[Step, ...]
    text: str


@attrs.frozen
class Expansion:
    """New states behind a share, each with the place of the state before it."""

    states: list[State]
    before: list[int]
    steps: int
    endings: int  # states run to their end
    calls: int  # of production cores
    compared: int  # of these that were taken from two cores of one state
    faults: tuple[Fault, ...]
    cores: dict[int, Kept]
    packets: dict[int, Packet]


RunShares = Callable[[Iterable[Share]], Iterator[Expansion]]


@functools.lru_cache(maxsize=4)
def _tree_of(setup: str, bounds: Bounds) -> tuple[Tree, Endings]:
    tree = Tree(setup, bounds)
    tree.begin()  # every process has the first states of the cores
    return tree, Endings(tree)


def forget_trees() -> None:
    """Forget what this process has computed, because the cores have changed."""
    _tree_of.cache_clear()


def expand(share: Share) -> Expansion:
    """Return all states behind those of a share, each once."""
    tree, endings = _tree_of(share.setup, share.bounds)
    tree.learn(share.cores, share.packets)
    calls, compared = tree.nodes.calls, tree.nodes.compared
    known, known_packets = len(tree.nodes.states), len(tree.nodes.packets)
    found: dict[int, tuple[State, int]] = {}
    faults: list[Fault] = []
    taken = ended = 0
    for place, state in enumerate(share.states):
        if hash(state) % share.ending_share == 0:
            ended += 1
            try:
                endings.run(state)
            except Endless as error:
                faults.append(Fault(place, (), error.message))  # the replay goes on to the end itself
        for step in tree.steps(state):
            try:
                for _, behind in tree.behind_each(state, step):
                    taken += 1
                    found.setdefault(hash(behind), (behind, place))
            except PropertyBroken as error:
                faults.append(Fault(place, (step,), error.message))
    return Expansion(
        [state for state, _ in found.values()],
        [place for _, place in found.values()],
        taken,
        ended,
        tree.nodes.calls - calls,
        tree.nodes.compared - compared,
        tuple(faults),
        tree.nodes.newest(known),
        tree.nodes.newest_packets(known_packets),
    )


def run_here(shares: Iterable[Share]) -> Iterator[Expansion]:
    """Expand shares in this process."""
    return map(expand, shares)


@attrs.define
class Level:
    """States at one distance from the first: their hashes, and the place of the state before each."""

    hashes: npt.NDArray[np.int64]
    before: npt.NDArray[np.int32]


@attrs.define
class Account:
    """What a search has seen so far."""

    states: int = 1
    steps: int = 0
    depth: int = 0
    endings: int = 0
    calls: int = 0
    compared: int = 0
    cores: int = 0
    is_complete: bool = False  # all states within the bounds were seen
    faults: list[tuple[Fault, int]] = attrs.field(factory=list)  # each with the depth of its state


class Search:
    """Search of one set-up within bounds."""

    def __init__(self, setup: str, bounds: Bounds, *, ending_share: int = 16) -> None:
        self.tree = Tree(setup, bounds)
        self.account = Account()
        self._ending_share = ending_share
        self._first = self.tree.begin()
        self._frontier: list[State] = [self._first]
        self._seen = {hash(self._first)}
        self._levels = [Level(np.array([hash(self._first)], np.int64), np.zeros(1, np.int32))]

    def run(self, most_states: int, run_shares: RunShares = run_here, *, tell: Callable[[Account], None]) -> Account:
        """Expand level after level, until all is seen, some property is broken, or `most_states` are seen."""
        account = self.account
        while self._frontier and not account.faults and account.states < most_states:
            self._expand_level(run_shares, most_states)
            tell(account)
        account.is_complete = not self._frontier and not account.faults
        return account

    def _expand_level(self, run_shares: RunShares, most_states: int) -> None:
        account, nodes, seen = self.account, self.tree.nodes, self._seen
        states: list[State] = []
        before: list[int] = []
        starts = range(0, len(self._frontier), SHARE_STATES)
        for start, expansion in zip(starts, run_shares(map(self._share, starts)), strict=False):
            self.tree.learn(expansion.cores, expansion.packets)
            account.steps += expansion.steps
            account.endings += expansion.endings
            account.calls += expansion.calls
            account.compared += expansion.compared
            account.faults += [(attrs.evolve(one, place=start + one.place), account.depth) for one in expansion.faults]
            for state, place in zip(expansion.states, expansion.before, strict=True):
                number = hash(state)
                if number not in seen:
                    seen.add(number)
                    states.append(state)
                    before.append(start + place)
            if account.faults or len(seen) >= most_states:
                break
        self._frontier = states
        self._levels.append(Level(np.array([hash(one) for one in states], np.int64), np.array(before, np.int32)))
        account.states, account.cores = len(seen), len(nodes.states)
        account.depth += 1

    def _share(self, start: int) -> Share:
        tree, states = self.tree, tuple(self._frontier[start : start + SHARE_STATES])
        cores = {core for state in states for core in state[0]}
        packets = {packet for state in states for packet in state[4]}
        return Share(
            tree.setup,
            tree.bounds,
            states,
            {core: tree.nodes.states[core] for core in cores},
            {packet: tree.nodes.packets[packet] for packet in packets},
            self._ending_share,
        )

    def path(self, fault: Fault, depth: int) -> list[Step]:
        """Return the steps from the first state to a fault; there is no shorter way to the state before it."""
        wanted: list[int] = []
        place = fault.place
        for level in reversed(self._levels[: depth + 1]):
            wanted.append(int(level.hashes[place]))
            place = int(level.before[place])
        state, steps = self._first, []
        for number in reversed(wanted[:-1]):
            step, state = self._step_to(state, number)
            steps.append(step)
        return [*steps, *fault.steps]

    def _step_to(self, state: State, number: int) -> tuple[Step, State]:
        for step in self.tree.steps(state):
            try:
                for chosen, behind in self.tree.behind_each(state, step):
                    if hash(behind) == number:
                        return chosen, behind
            except PropertyBroken:
                continue
        raise AssertionError("a state of the search has no way back")
