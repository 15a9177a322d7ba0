"""Receiver that begins each session with a state of the source's application (`pgm.core.late_join.states`)."""

from __future__ import annotations

import random

import attrs

from pgm.core.acked.ack_bound import AT_ONCE
from pgm.core.effects import NOTHING, Deliver, Effect, Effects, Lost, NoSnapshotCause, Notice, Opened, Send
from pgm.core.late_join.states import StateKind, StateMessage, joiner_parameters, most_octets, state_tsi
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.session import ReceiverSession
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.receiver.snapshot_start import SnapshotStart
from pgm.core.segment import Channel
from pgm.core.session.start_positions import BY_PARAMETERS
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import Nla, Tsi
from pgm.wire.options import StateOffer, find
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, DataWithGaps, Run, Train, fragment_of


@attrs.define(eq=False)
class _Wait:
    """Wait of one session for the end of a state."""

    start: SnapshotStart
    live: ReceiverSession
    assembly: Reassembler
    announced: int  # position of the newest state that its SPMs have announced


class SnapshotReceiver(ReceiverCore):
    """A `ReceiverCore` for streams of which every session begins with a state."""

    def __init__(self, setup: ReceiverSetup, parameters: Parameters, rng: random.Random) -> None:
        super().__init__(setup, parameters, rng)
        own = attrs.evolve(
            setup,
            data_ports=setup.state_ports,
            state_ports=frozenset(),
            asks_below_trail=False,
            ack_bound=AT_ONCE,
            starts=BY_PARAMETERS,
        )
        self._states = ReceiverCore(own, joiner_parameters(parameters), rng, self._counters)
        self._waits: dict[Tsi, _Wait] = {}  # by TSI of the states

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(super().deadline_ns, self._states.deadline_ns if self._waits else NEVER)

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take the packets of one read."""
        items, rejects = train.parse_scattered_untrusted()
        states = [item for item in items if item.data_port in self.setup.state_ports]
        if not states:
            return self._checked(super().receive(train, channel, peer, now_ns))
        self.single.reset()
        effects: list[Effect] = []
        rest = [item for item in items if item.data_port not in self.setup.state_ports]
        if rest or rejects:
            effects += self._checked(super().receive(train.part(rest, rejects), channel, peer, now_ns))
        wanted = [item for item in states if self._is_wanted(item, now_ns)]
        self._counters.foreign_packets += sum(_packets_of(item) for item in states) - sum(map(_packets_of, wanted))
        if wanted:
            effects += self._assembled(self._states.receive(train.part(wanted, []), channel, peer, now_ns))
        return effects

    def handle_deadline(self, now_ns: int) -> Effects:
        """Run what is due, of the streams and of the states."""
        effects = self._checked(super().handle_deadline(now_ns))
        if not self._waits:
            return effects
        return [*effects, *self._assembled(self._states.handle_deadline(now_ns))]

    def _checked(self, effects: Effects) -> Effects:
        """Return effects of the streams. A session that ended before its state came has got none."""
        for tsi in [tsi for tsi, wait in self._waits.items() if not wait.start.is_wanted]:
            self._end(tsi)
        if not any(isinstance(effect, Opened) for effect in effects):
            return effects
        checked: list[Effect] = []
        for effect in effects:
            checked.append(effect)
            if isinstance(effect, Opened) and (session := self._sessions.get(effect.tsi)) is not None:
                start = session.start.late_join
                if isinstance(start, SnapshotStart) and start.is_wanted:
                    checked += start.give_up(NoSnapshotCause.SILENT)
        return checked

    def _is_wanted(self, item: Data | DataWithGaps | Packet, now_ns: int) -> bool:
        """Return whether a packet of states is for a session that waits for one."""
        tsi = item.tsi
        wait = self._waits.get(tsi)
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
        live = self._sessions.get(state_tsi(spm.tsi))
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
        self._states.sessions.forget(lambda session: session.state.tsi == tsi)


def _packets_of(item: Data | DataWithGaps | Packet) -> int:
    return item.count if isinstance(item, (Data, DataWithGaps)) else item.packets


def _is_beyond(run: Run, most: int) -> bool:
    """Return whether packets are part of a message above `most` octets."""
    fragment = fragment_of(run)
    return fragment is not None and fragment.apdu_length > most


def _rows_of(messages: WholeMessages) -> list[bytes]:
    return [row.tobytes() for row in messages.payloads]
