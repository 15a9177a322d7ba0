"""Explanation of one packet: the answer of `pgm explain`."""

from __future__ import annotations

import attrs

from pgm.errors import UsageError
from pgm.flight.verdicts.clocks import HostClock
from pgm.flight.verdicts.life import PacketLife, PacketState, Presence
from pgm.flight.verdicts.loss_place import LossPlace, place_of_loss
from pgm.flight.verdicts.repair_story import RepairVerdict, Step, story_of_repair, verdict_on_repair
from pgm.flight.verdicts.view import FlightEvent, FlightView, NodeFlight
from pgm.wire.formats import Tsi
from pgm.wire.sequence_numbers import MASK


@attrs.frozen
class Explanation:
    """Life of one packet. `target` is the node whose loss is explained; None if no node missed the packet."""

    stream: str
    tsi: Tsi
    sqn: int
    target: PacketState | None
    loss: LossPlace
    repair: RepairVerdict
    steps: list[Step]
    states: list[PacketState]
    events: list[FlightEvent]  # of all nodes, in the order of time
    clocks: list[HostClock]

    @property
    def source(self) -> PacketState | None:
        """The state of the source, if its recorder was reached."""
        return next((state for state in self.states if state.node.role == "source"), None)


def explain(view: FlightView, stream: str, sqn: int, at: str | None = None, tsi: Tsi | None = None) -> Explanation:
    """Explain the life of a packet of a stream, as a node saw it, or the node that it went worst for.

    `sqn` may have any upper half. Raises `UsageError` for a stream or node that no recorder knows, and if no recorder
    has anything of the packet.
    """
    tsis = {tsi} if tsi is not None else view.sessions_of(stream)
    lives = [PacketLife(view, one, sqn & MASK) for one in tsis]
    life = max(lives, key=_evidence)
    if not any(life.events(node) for node in view.nodes.values()):
        raise UsageError(
            f"no recorder has packet {sqn} of stream {stream!r}",
            remedy="its records may have been overwritten (flight_bytes), or it was not sent yet; pgm explain --worst shows what there is",
        )
    if at is not None and at not in view.nodes:
        raise UsageError(
            f"no recorder of a node {at!r} was reached",
            remedy=f"choose one of {', '.join(sorted(view.nodes)[:20])}",
        )
    states = life.states()
    target = view.nodes[at] if at is not None else _worst(states)
    events = sorted((event for node in view.nodes.values() for event in life.events(node)), key=lambda one: one.time_ns)
    clocks = sorted(view.clocks.values(), key=lambda clock: (not clock.is_reference, clock.host))
    if target is None:
        text = "no node that was reached has missed it"
        return Explanation(
            stream,
            life.tsi,
            sqn,
            None,
            LossPlace("none", text),
            RepairVerdict("none", "no repair was needed"),
            [],
            states,
            events,
            clocks,
        )
    state = life.state(target)
    steps = story_of_repair(life, target) if state.presence is Presence.MISSED else []
    return Explanation(
        stream,
        life.tsi,
        sqn,
        state,
        place_of_loss(life, target),
        verdict_on_repair(state, steps),
        steps,
        states,
        events,
        clocks,
    )


def _evidence(life: PacketLife) -> tuple[int, int]:
    """Return how much the recorders have of a packet, and how new it is: a source that restarted has several sessions."""
    events = [event for node in life.view.nodes.values() for event in life.events(node)]
    return max((event.time_ns for event in events), default=0), len(events)


def _worst(states: list[PacketState]) -> NodeFlight | None:
    """Return the node that lost the packet, or waited longest for it; receivers first."""
    hurt = [state for state in states if state.presence is Presence.MISSED or state.outcome == "lost"]
    if not hurt:
        return None
    return max(
        hurt,
        key=lambda state: (state.is_lost, state.node.role == "receiver", state.outcome == "pending", state.took_ns),
    ).node
