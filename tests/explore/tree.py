"""States of a whole tree, the steps between them, and the properties that hold in each.

A state has the cores of all nodes, the packets in flight, the position of each receiver's application, and what is left of
the bounds. Clocks of different nodes are independent: a core's clock advances to its next deadline when the search wakes
that core, and stands still while packets arrive. Every order of timers of different nodes is thus tried, and those of one
node come in their order. Packets in flight arrive in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pgm.errors import PgmError
from pgm.topology.node_plan import Role
from tests.explore.nodes import WAKE, Kept, Nodes, Outcome, Packet
from tests.explore.setups import RECEIVERS, Bounds, plans_of

# Cores; sqns that each receiver has delivered or reported; NAKs of each node for each sqn that some receiver lacks, and for
# each receiver the sqns that have arrived ahead of its position; messages sent, losses, copies and heartbeats so far;
# packets in flight.
State = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, int, int, int], tuple[int, ...]]
_SOURCE = 0
_WARM_UP_STEPS = 50


class PropertyBroken(PgmError):
    """A step led to a state in which a property does not hold."""

    code = "PROPERTY-BROKEN"


@attrs.frozen
class Step:
    """One event: a message is sent, a timer runs, a packet arrives, is lost, or arrives and stays in flight too.

    `choice` is the number of the outcome among those of the random draws.
    """

    event: str  # send, wake, arrive, lose, copy
    node: int
    packet: int = 0
    choice: int = 0


class Tree:
    """Tree of production cores within bounds."""

    def __init__(self, setup: str, bounds: Bounds) -> None:
        self.setup = setup
        self.bounds = bounds
        plans = plans_of(setup)
        self.nodes = Nodes(dict(plans))
        self.receivers = tuple(index for index, name in enumerate(plans) if name in RECEIVERS)
        self._place = {index: place for place, index in enumerate(self.receivers)}
        parameters = plans[RECEIVERS[0]].parameters
        # One NAK, and one after each wait for a confirmation or for the data; a sibling or a local repairer may be asked
        # twice before.
        self.most_naks = 3 + parameters.nak_ncf_retries + parameters.nak_data_retries
        self._elements = tuple(
            index for index, plan in enumerate(plans.values()) if plan.role in (Role.AGGREGATOR, Role.REPAIRER)
        )
        aggregator = plans["element"].parameters
        repeats = aggregator.ne_nak_rpt_ivl * aggregator.ne_nak_rpt_rte // 10**9 + 1
        self.most_element_naks = (self.most_naks + repeats) * (len(self.receivers) + 1)

    # The first state

    def begin(self) -> State:
        """Return the state in which all nodes have heard the source's first SPM, and the messages before the search."""
        cores = []
        for index in range(len(self.nodes.names)):
            cores.append(self.nodes.begin(index).core)
        none = ((),) * (len(cores) + len(self.receivers))
        state: State = (tuple(cores), (0,) * len(self.receivers), none, (0, 0, 0, 0), ())
        for event in ("wake", *("send",) * self.bounds.before):
            state = self._all_arrived(self.take(state, Step(event, _SOURCE)))
        return state[0], state[1], state[2], (state[3][0], 0, 0, 0), state[4]

    def _all_arrived(self, state: State) -> State:
        for _ in range(_WARM_UP_STEPS):
            if not state[4]:
                break
            state = self.take(state, Step("arrive", self.nodes.packets[state[4][0]].to, state[4][0]))
        return state

    def wait_ns(self, state: State, node: int) -> int:
        """Return how long a node's next timer still runs."""
        return self.nodes.states[state[0][node]].wait_ns

    def is_quiet(self, state: State) -> bool:
        """Return whether nothing is in flight, and both receivers have all that was sent or know it as lost."""
        return not state[4] and all(position == state[3][0] for position in state[1])

    # Steps

    def steps(self, state: State) -> Iterator[Step]:
        """Yield all steps from a state within the bounds, without those of random choices."""
        _cores, _, _, (sent, losses, copies, heartbeats), flights = state
        bounds = self.bounds
        for place, packet in enumerate(flights):
            if place and flights[place - 1] == packet:
                continue
            to = self.nodes.packets[packet].to
            yield Step("arrive", to, packet)
            if losses < bounds.losses:
                yield Step("lose", to, packet)
            if copies < bounds.copies:
                yield Step("copy", to, packet)
        if len(flights) > bounds.flights:
            return
        if sent < bounds.messages:
            yield Step("send", _SOURCE)
        for node in range(len(self.nodes.names)):
            if self.wait_ns(state, node) <= bounds.horizon_ns and not (
                node == _SOURCE and heartbeats >= bounds.heartbeats and self._is_heartbeat(state)
            ):
                yield Step("wake", node)

    def _is_heartbeat(self, state: State) -> bool:
        """Return whether the source's next timer sends an SPM."""
        return any(outcome.has_spm for outcome in self.nodes.outcomes(_SOURCE, state[0][_SOURCE], WAKE))

    def behind_each(self, state: State, step: Step) -> Iterator[tuple[Step, State]]:
        """Yield the state behind a step for each random choice. Raises `PropertyBroken`."""
        if step.event == "lose":
            yield step, self.take(state, step)
            return
        for choice, outcome in enumerate(self._outcomes(state, step)):
            chosen = attrs.evolve(step, choice=choice) if choice else step
            yield chosen, self._behind(state, chosen, outcome)

    def learn(self, cores: dict[int, Kept], packets: dict[int, Packet]) -> None:
        """Take cores and packets that another process has found."""
        for core, kept in cores.items():
            self.nodes.states.setdefault(core, kept)
        for number, packet in packets.items():
            self.nodes.packets.setdefault(number, packet)

    def choices(self, state: State, step: Step) -> int:
        """Return how many outcomes a step has, by the random draws of its core."""
        return len(self._outcomes(state, step))

    def _outcomes(self, state: State, step: Step) -> tuple[Outcome, ...]:
        what = -1 - state[3][0] if step.event == "send" else step.packet or WAKE
        return self.nodes.outcomes(step.node, state[0][step.node], what)

    def take(self, state: State, step: Step) -> State:
        """Return the state behind a step. Raises `PropertyBroken`."""
        if step.event == "lose":
            cores, positions, naks, (sent, losses, copies, heartbeats), flights = state
            return cores, positions, naks, (sent, losses + 1, copies, heartbeats), _without(flights, step.packet)
        return self._behind(state, step, self._outcomes(state, step)[step.choice])

    def _behind(self, state: State, step: Step, outcome: Outcome) -> State:
        cores, positions, naks, (sent, losses, copies, heartbeats), flights = state
        node = step.node
        if outcome.broken:
            raise PropertyBroken(outcome.broken)
        cores = (*cores[:node], outcome.core, *cores[node + 1 :])
        if step.event == "arrive":
            flights = _without(flights, step.packet)
        elif step.event == "copy":
            copies += 1
        elif step.event == "send":
            sent += 1
        elif node == _SOURCE:
            heartbeats = min(self.bounds.heartbeats, heartbeats + outcome.has_spm)
        if outcome.packets:
            flights = tuple(sorted((*flights, *outcome.packets)))
        if node in self._place:
            if step.packet and (sqn := self.nodes.packets[step.packet].sqn) >= positions[self._place[node]]:
                naks = self._with_arrival(naks, node, sqn)
            if outcome.lost:
                self._check_losses(naks, cores, node, outcome)
            if outcome.spans:
                positions = self._positions(positions, node, outcome)
                if any(naks):
                    naks = self._without_settled(naks, positions)
        if outcome.naks:
            naks = self._with_naks(naks, node, outcome, positions)
        return cores, positions, naks, (sent, losses, copies, heartbeats), flights

    def _with_arrival(self, naks: tuple[tuple[int, ...], ...], node: int, sqn: int) -> tuple[tuple[int, ...], ...]:
        at = len(self.nodes.names) + self._place[node]
        return (*naks[:at], tuple(sorted({*naks[at], sqn})), *naks[at + 1 :])

    def _without_settled(
        self, naks: tuple[tuple[int, ...], ...], positions: tuple[int, ...]
    ) -> tuple[tuple[int, ...], ...]:
        """Return NAKs and arrivals without sqns that all receivers, or that receiver, have behind them."""
        least, nodes = min(positions), len(self.nodes.names)
        bounds = (*(least,) * nodes, *positions)
        return tuple(tuple(one for one in own if one >= bound) for own, bound in zip(naks, bounds, strict=True))

    def _check_losses(
        self, naks: tuple[tuple[int, ...], ...], cores: tuple[int, ...], node: int, outcome: Outcome
    ) -> None:
        """Check that lost packets did not arrive, and have left the source's window if the report says so."""
        name, arrived = self.nodes.names[node], naks[len(self.nodes.names) + self._place[node]]
        trail = self.nodes.states[cores[_SOURCE]].trail
        for first, end, is_expired in outcome.lost:
            if is_expired and end > trail:
                raise PropertyBroken(f"{name} reports sqn {end - 1} as gone, and the source has it")
            if found := [sqn for sqn in arrived if first <= sqn < end]:
                raise PropertyBroken(f"{name} reports sqn {found[0]} as lost, which has arrived")

    def _positions(self, positions: tuple[int, ...], node: int, outcome: Outcome) -> tuple[int, ...]:
        """Return the positions after the spans of an outcome, which must join each other and the position before."""
        place = self._place[node]
        position = positions[place]
        for first, end in outcome.spans:
            if first != position:
                kind = "without a report" if first > position else "a second time"
                raise PropertyBroken(f"{self.nodes.names[node]} goes on at sqn {first} instead of {position}, {kind}")
            position = end
        return (*positions[:place], position, *positions[place + 1 :])

    def _with_naks(
        self, naks: tuple[tuple[int, ...], ...], node: int, outcome: Outcome, positions: tuple[int, ...]
    ) -> tuple[tuple[int, ...], ...]:
        """Return the NAKs of all nodes, with those of an outcome."""
        name, most = self.nodes.names[node], self.most_element_naks
        if node in self._place:
            position, arrived = positions[self._place[node]], naks[len(self.nodes.names) + self._place[node]]
            most = self.most_naks
            for sqn in outcome.naks:
                if sqn < position or sqn in arrived:
                    raise PropertyBroken(f"{name} requests sqn {sqn}, which it has")
        own = tuple(sorted((*naks[node], *outcome.naks)))
        for sqn in outcome.naks:
            if own.count(sqn) > most:
                raise PropertyBroken(f"{name} sends {own.count(sqn)} NAKs for sqn {sqn}, not {most}")
        return (*naks[:node], own, *naks[node + 1 :])


def _without(flights: tuple[int, ...], packet: int) -> tuple[int, ...]:
    """Return flights without one copy of a packet."""
    at = flights.index(packet)
    return (*flights[:at], *flights[at + 1 :])
