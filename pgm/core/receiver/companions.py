"""Receiver with companions: further sessions of the sources of its streams, such as proofs, key records and states."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects
from pgm.core.in_place import Neighbours
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Channel
from pgm.core.session.state import SessionState
from pgm.core.window.proved_window import Trial
from pgm.parameters import Parameters
from pgm.wire.control_packets import Packet
from pgm.wire.formats import Nla, Tsi
from pgm.wire.train import Data, DataWithGaps

Received = Sequence[Data | DataWithGaps | Packet]


class Companions(Protocol):
    """Further sessions of one kind, of all sources."""

    ports: frozenset[int]  # data ports of the sessions

    def trials(self, state: SessionState, parents: Parents) -> Iterator[Trial]:
        """Yield the trial of a session of a stream if its packets need one."""

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of one of the sessions; None if it is unknown."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""

    def change(self, neighbours: Neighbours, now_ns: int) -> None:
        """Take other neighbours. The parameters stay."""

    def note(self, peer: Nla, now_ns: int) -> None:
        """Note that packets of a peer are taken, or that a deadline is handled ("")."""

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take packets of the sessions."""

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due."""

    def checked(self, effects: Effects) -> Effects:
        """Return effects of the streams, with what the companions add."""

    def forget_ended(self) -> None:
        """Forget sessions whose streams are forgotten."""


NewCompanions = Callable[[ReceiverCore, random.Random], Companions]  # of a receiver


class CompanionReceiver(ReceiverCore):
    """A `ReceiverCore` with companions."""

    def __init__(
        self,
        setup: ReceiverSetup,
        parameters: Parameters,
        rng: random.Random,
        companions: Sequence[NewCompanions],
        counters: Counters | None = None,
    ) -> None:
        super().__init__(attrs.evolve(setup, new_trial=self._trial_of), parameters, rng, counters)
        self._companions = tuple(new(self, rng) for new in companions)
        self._by_port = {port: one for one in self._companions for port in one.ports}

    def _trial_of(self, state: SessionState, parents: Parents) -> Trial | None:
        return next((trial for one in self._companions for trial in one.trials(state, parents)), None)

    def change(self, neighbours: Neighbours, parameters: Parameters, now_ns: int) -> None:
        """Take other neighbours and parameters in place, with all companions."""
        super().change(neighbours, parameters, now_ns)
        for one in self._companions:
            one.change(neighbours, now_ns)

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a session of a stream or of a companion."""
        found = super().state_of(tsi)
        for one in self._companions:
            found = found or one.state_of(tsi)
        return found

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(super().deadline_ns, *(one.deadline_ns for one in self._companions))

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read, of streams and companions."""
        for one in self._companions:
            one.note(peer, now_ns)
        ports = self._by_port
        if all(item.data_port not in ports for item in items):
            return self._checked(super().take(items, channel, peer, now_ns))
        self.single.reset()
        effects: list[Effect] = []
        if rest := [item for item in items if item.data_port not in ports]:
            effects += self._checked(super().take(rest, channel, peer, now_ns))
        for one in self._companions:
            if own := [item for item in items if ports.get(item.data_port) is one]:
                effects += one.take(own, channel, peer, now_ns)
        return effects

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due, of the streams and of the companions."""
        for one in self._companions:
            one.note("", now_ns)
        effects = [*self._checked(super().handle_deadline(now_ns))]
        for one in self._companions:
            effects += one.handle_deadline(now_ns)
        return effects

    def _checked(self, effects: Effects) -> Effects:
        for one in self._companions:
            effects = one.checked(effects)
        return effects

    def forget(self, tsi: Tsi) -> None:
        """Forget a session, and the companions of its stream."""
        super().forget(tsi)
        for one in self._companions:
            one.forget_ended()


def packets_of(item: Data | DataWithGaps | Packet) -> int:
    """Return the number of packets of an item."""
    return item.count if isinstance(item, (Data, DataWithGaps)) else item.packets
