"""Check that every run ends: from a state on, without further losses, the tree comes to rest.

The run goes on by one fair schedule: packets in flight arrive first, and then the timer runs that is due first. At rest no
packet is in flight, both receivers have delivered or reported all that was sent, and only the source's heartbeats go on.
"""

from __future__ import annotations

import attrs

from tests.explore.tree import PropertyBroken, State, Step, Tree

_MOST_STEPS = 200  # some eight times as many as the longest run takes
_SOURCE = 0


@attrs.frozen
class _Place:
    """A state, and how much time has passed for each node since the run began."""

    state: State
    elapsed_ns: tuple[int, ...]


class Endings:
    """Runs to the end, each of which is taken once."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._ends: set[int] = set()
        self.steps = 0

    def run(self, state: State) -> None:
        """Go on from a state to rest, or to a state that is known to end. Raises `Endless`."""
        place = _Place(state, (0,) * len(state[0]))
        seen: list[int] = []
        for _ in range(_MOST_STEPS):
            number = hash((place.state[0], place.state[1], place.state[3][0], place.state[4], place.elapsed_ns))
            if number in self._ends:
                break
            seen.append(number)
            step = self._next(place)
            if step is None:
                break
            try:
                place = self._behind(place, step)
            except PropertyBroken as error:
                raise Endless(error.message) from None
            self.steps += 1
        else:
            raise Endless(f"no rest after {_MOST_STEPS} steps without a loss")
        self._ends.update(seen)

    def _next(self, place: _Place) -> Step | None:
        """Return the next step, or None at rest."""
        tree, state = self._tree, place.state
        if state[4]:
            packet = state[4][0]
            return Step("arrive", tree.nodes.packets[packet].to, packet)
        horizon_ns = tree.bounds.horizon_ns
        waits = [tree.wait_ns(state, node) for node in range(len(state[0]))]
        due = [(place.elapsed_ns[node] + wait_ns, node) for node, wait_ns in enumerate(waits) if wait_ns <= horizon_ns]
        if tree.is_quiet(state) and all(node == _SOURCE for _, node in due):
            return None
        if not due:
            raise Endless(f"no timer of any node runs within {horizon_ns} ns")
        return Step("wake", min(due)[1])

    def _behind(self, place: _Place, step: Step) -> _Place:
        tree = self._tree
        elapsed_ns = list(place.elapsed_ns)
        if step.event == "wake":
            elapsed_ns[step.node] += tree.wait_ns(place.state, step.node)
            least = max(min(elapsed_ns), max(elapsed_ns) - tree.bounds.horizon_ns)
            elapsed_ns = [max(0, one - least) for one in elapsed_ns]
        cores, positions, naks, (sent, losses, copies, _), flights = tree.take(place.state, step)
        return _Place((cores, positions, naks, (sent, losses, copies, 0), flights), tuple(elapsed_ns))


class Endless(PropertyBroken):
    """A run without losses that does not come to rest, or breaks a property on its way."""
