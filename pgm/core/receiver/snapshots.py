"""Receiver that begins each session with a state of the source's application (`pgm.core.late_join.states`)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs

from pgm.core.acked.ack_bound import AT_ONCE
from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Deliver, Effect, Effects, Lost, NoSnapshotCause, Notice, Opened, Send
from pgm.core.in_place import Neighbours
from pgm.core.late_join.states import StateKind, StateMessage, joiner_parameters, most_octets, state_port, state_tsi
from pgm.core.receiver.companions import CompanionReceiver, NewCompanions, Received, packets_of
from pgm.core.receiver.proved import ProofSessions
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.session import ReceiverSession
from pgm.core.receiver.setup import ReceiverSetup, no_trial
from pgm.core.receiver.snapshot_start import SnapshotStart
from pgm.core.recovery.parents import Parents
from pgm.core.segment import Channel
from pgm.core.session.key_records import key_port, key_tsi
from pgm.core.session.proofs import proof_port, proof_tsi
from pgm.core.session.start_positions import BY_PARAMETERS
from pgm.core.session.state import SessionState
from pgm.core.window.proved_window import Trial
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import StateOffer, find
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, DataWithGaps, Run, fragment_of


@attrs.define(eq=False)
class _Wait:
    """Wait of one session for the end of a state."""

    start: SnapshotStart
    live: ReceiverSession
    assembly: Reassembler
    announced: int  # position of the newest state that its SPMs have announced


class StateSessions:
    """Companions of streams of which every session begins with a state. They are proved and sealed as their streams are."""

    def __init__(self, stream: ReceiverCore, rng: random.Random) -> None:
        setup, signers = stream.setup, stream.setup.signers
        self._stream = stream
        self._counters = stream.counters
        self._parameters = stream.parameters
        own = attrs.evolve(
            setup,
            data_ports=setup.state_ports,
            state_ports=frozenset(),
            late_ports=frozenset(),
            asks_below_trail=False,
            ack_bound=AT_ONCE,
            starts=BY_PARAMETERS,
            new_trial=no_trial,
            signers=attrs.evolve(
                signers,
                proofs={state_port(port): check for port, check in signers.proofs.items()},
                sealed=frozenset(map(state_port, signers.sealed)),
            ),
        )
        self._states = companion_receiver(own, joiner_parameters(stream.parameters), rng, stream.counters)
        self._waits: dict[Tsi, _Wait] = {}  # by TSI of the states
        self.ports = setup.state_ports | own.companion_ports
        # TSI of the states from that of their proofs or key records.
        self._tsi_of = {proof_port(port): proof_tsi for port in own.signers.proofs}
        self._tsi_of.update((key_port(port), key_tsi) for port in own.signers.sealed)

    def change(self, neighbours: Neighbours, now_ns: int) -> None:
        """Ask other parents and keepers for states."""
        self._states.change(neighbours, self._states.parameters, now_ns)

    def trials(self, state: SessionState, parents: Parents) -> Iterator[Trial]:
        """Yield nothing: a state proves no packet of its stream."""
        yield from ()

    def state_of(self, tsi: Tsi) -> SessionState | None:
        """Return the state of a session of states."""
        return self._states.state_of(tsi)

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return self._states.deadline_ns if self._waits else NEVER

    def note(self, peer: Nla, now_ns: int) -> None:
        """Do nothing: states compare no packets of their stream."""

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take packets of states, and of their proofs and key records."""
        wanted = [item for item in items if self._is_wanted(item, now_ns)]
        self._counters.foreign_packets += sum(map(packets_of, items)) - sum(map(packets_of, wanted))
        return self._assembled(self._states.take(wanted, channel, peer, now_ns)) if wanted else NOTHING

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due of the states."""
        return self._assembled(self._states.handle_deadline(now_ns)) if self._waits else NOTHING

    def checked(self, effects: Effects) -> Effects:
        """Return effects of the streams. A session that ended before its state came has got none."""
        self.forget_ended()
        if not any(isinstance(effect, Opened) for effect in effects):
            return effects
        checked: list[Effect] = []
        for effect in effects:
            checked.append(effect)
            if isinstance(effect, Opened) and (session := self._stream.sessions.get(effect.tsi)) is not None:
                start = session.start.late_join
                if isinstance(start, SnapshotStart) and start.is_wanted:
                    checked += start.give_up(NoSnapshotCause.SILENT)
        return checked

    def forget_ended(self) -> None:
        """Forget the states of sessions that want none any more."""
        for tsi in [tsi for tsi, wait in self._waits.items() if not wait.start.is_wanted]:
            self._end(tsi)

    def _is_wanted(self, item: Data | DataWithGaps | Packet, now_ns: int) -> bool:
        """Return whether a packet of states is for a session that waits for one."""
        of_proofs = self._tsi_of.get(item.data_port)
        if of_proofs is not None:
            return of_proofs(item.tsi) in self._waits
        wait = self._waits.get(item.tsi)
        if wait is None:
            wait = self._begin(item) if isinstance(item, Spm) else None
        if wait is None or not wait.start.is_wanted:
            return False
        if isinstance(item, Spm):
            wait.announced = max(wait.announced, self._position_of(item, wait.live))
        elif isinstance(item, (Data, DataWithGaps)):
            wait.start.on_progress(now_ns)
        return True

    def _begin(self, spm: Spm) -> _Wait | None:
        """Begin to take states, with the announcement of one that helps."""
        live = self._stream.sessions.get(state_tsi(spm.tsi))
        start = None if live is None else live.start.late_join
        if (
            live is None
            or not isinstance(start, SnapshotStart)
            or not start.is_wanted
            or not live.window.gap_detector.has_begun
        ):
            return None
        position = self._position_of(spm, live)
        if position < start.least_position:
            return None
        assembly = Reassembler(spm.tsi, most_octets(self._parameters))
        wait = self._waits[spm.tsi] = _Wait(start, live, assembly, position)
        return wait

    @staticmethod
    def _position_of(spm: Spm, live: ReceiverSession) -> int:
        offer = find(spm.options, StateOffer)
        return -1 if offer is None else unwrap(offer.sqn, live.state.lead)

    def _assembled(self, effects: Effects) -> list[Effect]:
        """Return effects of the states' sessions for the driver, and states that are complete for the application."""
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, (Send, Notice)):
                out.append(effect)
            elif isinstance(effect, (Deliver, Lost)) and (wait := self._waits.get(effect.tsi)) is not None:
                if wait.start.is_wanted:
                    out += self._take(effect, wait)
                if not wait.start.is_wanted:
                    self._end(effect.tsi)
        return out

    def _take(self, effect: Deliver | Lost, wait: _Wait) -> Effects:
        if isinstance(effect, Lost):
            list(wait.assembly.add_lost(effect))
            state = self._states.sessions.state_of(effect.tsi)
            if state is None or effect.first + effect.count > state.trail:  # else a newer state has taken its place
                return wait.start.on_loss(wait.announced)
            return NOTHING
        if _is_beyond(effect.run, most_octets(self._parameters)):
            return wait.start.fail(NoSnapshotCause.TOO_LARGE)
        effects: list[Effect] = []
        for part in wait.assembly.add(effect.run):
            if isinstance(part, Lost):
                continue  # the rest of a state of which the first part left the window
            payloads = [part.payload] if isinstance(part, LargeMessage) else _rows_of(part)
            for payload in payloads:
                if wait.start.is_wanted:
                    effects += self._finish(memoryview(payload), wait)
        return effects

    @staticmethod
    def _finish(octets: memoryview, wait: _Wait) -> Effects:
        message = StateMessage.decode_untrusted(octets)
        if message is None:
            return NOTHING
        position = unwrap(message.position, wait.live.state.lead)
        if position < wait.start.least_position or wait.live.state.is_jump(position - 1):
            return NOTHING  # an older state, or a false one
        if message.kind == StateKind.TOO_LARGE:
            return wait.start.fail(NoSnapshotCause.TOO_LARGE)
        return wait.start.complete(message.payload, position)

    def _end(self, tsi: Tsi) -> None:
        """Take no more of the states of a session."""
        del self._waits[tsi]
        self._states.forget(tsi)


def _is_beyond(run: Run, most: int) -> bool:
    """Return whether packets are part of a message above `most` octets."""
    fragment = fragment_of(run)
    return fragment is not None and fragment.apdu_length > most


def _rows_of(messages: WholeMessages) -> list[bytes]:
    return [row.tobytes() for row in messages.payloads]


def companion_receiver(
    setup: ReceiverSetup, parameters: Parameters, rng: random.Random, counters: Counters | None = None
) -> ReceiverCore:
    """Return a receiver with the companions that its streams need: proofs, key records, states."""
    companions: list[NewCompanions] = []
    if setup.signers.proofs:
        companions.append(ProofSessions)
    if setup.state_ports:
        companions.append(StateSessions)
    if not companions:
        return ReceiverCore(setup, parameters, rng, counters)
    return CompanionReceiver(setup, parameters, rng, companions, counters)
