"""States of a source's application, which are offered to joiners (`pgm.core.late_join.states`).

The application gives a state when `SnapshotWanted` asks for it. There is at most one state in `snapshot_ivl`, for all
joiners that have asked. States take `join_share` of the source's rate. That share counts as repairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, Notice, SnapshotWanted
from pgm.core.late_join.states import StateKind, StateMessage, sender_parameters, state_port, state_tsi
from pgm.core.segment import Channel
from pgm.core.session.key_records import PayloadSealer
from pgm.core.session.proofs import Prover
from pgm.core.source.companions import CompanionSource, NewCompanion, Received, companion_setup
from pgm.core.source.key_records import proof_companions
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.core.status import SessionStatus
from pgm.core.window.transmit_window import Payload
from pgm.parameters import Parameters
from pgm.units import NEVER, format_octets
from pgm.wire.control_packets import Spmr
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.options import StateOffer, find
from pgm.wire.sequence_numbers import unwrap, wrap
from pgm.wire.train import DataWithGaps, Item

NewStates = Callable[[SourceSetup, Parameters, int, Counters], SourceCore]  # its setup, parameters, the time, counters

_REPEATS = 2  # further SPMs that announce a state


class _StateSchedule:
    """Times of the states: when the next may be taken, and how long the last stays repairable."""

    def __init__(self, parameters: Parameters) -> None:
        self._ivl = parameters.snapshot_ivl
        self._lasts_ns = max(parameters.snapshot_ivl, parameters.txw_secs)
        self._is_wanted = False
        self._is_requested = False  # of the application
        self._is_sending = False
        self._ready_ns = 0
        self.position = -1  # the sqn after the newest state
        self.ends_ns = NEVER  # when the newest state leaves the window

    def want(self, sqn: int) -> bool:
        """Note a request. Return whether the newest state answers it."""
        if sqn <= self.position and self.ends_ns != 0:
            return True
        self._is_wanted = True
        return False

    @property
    def deadline_ns(self) -> int:
        """When to take a state, or to drop the last one."""
        if not self._is_wanted or self._is_requested or self._is_sending:
            return self.ends_ns or NEVER
        return min(self._ready_ns, self.ends_ns or NEVER)

    def take(self, now_ns: int) -> bool:
        """Return whether the application must give a state now."""
        is_due = self._is_wanted and not self._is_requested and not self._is_sending and now_ns >= self._ready_ns
        self._is_requested = self._is_requested or is_due
        return is_due

    def begin(self, position: int) -> None:
        """Note a state that the application gave."""
        self.position, self.ends_ns = position, NEVER
        self._is_wanted = self._is_requested = False
        self._is_sending = True

    def sent(self, now_ns: int) -> None:
        """Note that all of the newest state was sent once."""
        if self._is_sending:
            self._is_sending = False
            self._ready_ns, self.ends_ns = now_ns + self._ivl, now_ns + self._lasts_ns

    def expire(self, now_ns: int) -> bool:
        """Return whether the newest state leaves the window now."""
        if not 0 < self.ends_ns <= now_ns:
            return False
        self.ends_ns = 0
        return True


class StateSession:
    """Companion of a stream: states of its application. `new_core` makes the source of the session."""

    data_deadline_ns = NEVER
    is_repair = True

    def __init__(self, new_core: NewStates, stream: SourceCore, now_ns: int) -> None:
        setup, parameters = stream.setup, stream.parameters
        own = companion_setup(setup, state_tsi(setup.tsi), state_port(setup.data_port), NEVER)
        self.core = new_core(own, sender_parameters(parameters), now_ns, stream.counters)
        self._stream = stream
        self._parameters = parameters
        self._schedule = _StateSchedule(parameters)
        self._has_ended = False
        stream.announce((StateOffer(),))

    # The application

    def put_state(self, payload: Payload, now_ns: int) -> Effects:
        """Send a state that covers all accepted messages. One above `snapshot_bytes` is refused by a notice."""
        window, most, states = self._stream.window, self._parameters.snapshot_bytes, self.core
        octets, position = len(payload), window.end
        is_too_large = octets > most
        kind = StateKind.TOO_LARGE if is_too_large else StateKind.WHOLE
        message = StateMessage(kind, position, octets, memoryview(b"" if is_too_large else payload))
        self._schedule.begin(position)
        states.announce((StateOffer(sqn=wrap(position)),))
        # These SPMs precede the state. A joiner that misses all of them requests the whole state by NAKs.
        effects = [*states.close_window(now_ns)]
        for _ in range(_REPEATS):
            effects += states.all_spms(now_ns)
        states.submit((message.encode(),))
        self._stream.invalidate_deadline()
        assert states.window.has_unsent
        return [*effects, self._too_large(octets, most)] if is_too_large else effects

    def _too_large(self, octets: int, most: int) -> Notice:
        return Notice(
            "snapshot-too-large",
            f"session {tsi_text(self._stream.setup.tsi)}: a state of {format_octets(octets)} exceeds snapshot_bytes = "
            f"{format_octets(most)}, so joiners get none",
        )

    # The network

    def takes(self, item: Item | DataWithGaps) -> bool:
        """Return whether a packet is for the session of states, or requests a state."""
        if item.tsi in self.core.tsis:
            return True
        if not isinstance(item, Spmr) or item.tsi != self._stream.setup.tsi:
            return False
        return find(item.options, StateOffer) is not None

    def take(self, items: Received, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests for states and their repairs."""
        effects: list[Effect] = []
        states = []
        for item in items:
            if item.tsi in self.core.tsis:
                states.append(item)
            elif isinstance(item, Spmr):
                codes, wanted = self._stream.control_codes, find(item.options, StateOffer)
                is_valid = not codes.has_any or codes.checked(item, channel.segment, peer, now_ns) is not None
                if wanted is not None and is_valid and not channel.is_group:
                    effects += self._on_request(wanted, now_ns)
                effects += codes.take_effects()
        return [*effects, *self.core.take(states, channel, peer, now_ns)] if states else effects

    def _on_request(self, wanted: StateOffer, now_ns: int) -> Effects:
        """Want a state, or repeat where the newest one is: the joiner may have missed the SPM before it."""
        stream = self._stream
        stream.counters.spmr_packets_in += 1
        if stream.end.is_closed:
            return NOTHING
        sqn = min(unwrap(wanted.sqn, stream.window.lead), stream.window.end + 1)
        is_answered = self._schedule.want(sqn) and stream.nak_limits.admit_spmr(now_ns)
        return self.core.all_spms(now_ns) if is_answered else NOTHING

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self.core.deadline_ns, self._schedule.deadline_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Ask the application for a state, and send what is due of the states."""
        effects: list[Effect] = []
        schedule, states = self._schedule, self.core
        if schedule.expire(now_ns):
            states.advance_trail(states.window.lead + 1)
        if schedule.take(now_ns) and not self._stream.end.is_closed:
            effects.append(SnapshotWanted(self._stream.setup.tsi))
        if states.deadline_ns <= now_ns:
            effects += states.handle_deadline(now_ns)
            if not states.window.has_unsent:
                schedule.sent(now_ns)
        return effects

    def spms(self, now_ns: int) -> Effects:
        """Return nothing: joiners begin with the states when one is announced."""
        return NOTHING

    def sent(self, first: int, end: int, now_ns: int) -> Effects:
        """Return nothing: a state is for accepted messages."""
        return NOTHING

    def stream_ends(self) -> None:
        """Close the session after the state that is sent."""
        if not self._has_ended:
            self._has_ended = True
            self.core.close()

    def abort(self, now_ns: int, *, error: int, no_naks: bool) -> Effects:
        """Abort the session."""
        self._has_ended = True
        return self.core.abort(now_ns, error=error, no_naks=no_naks)

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Take the share of late joiners of the stream's rate."""
        self.core.set_rate(max(1, round(rate * self._parameters.join_share)), now_ns)

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the rows of the states. Their counts are those of the stream's row."""
        return [attrs.evolve(row, counts={}) for row in self.core.status(now_ns)]


def state_companion(prover: Prover | None, sealer: PayloadSealer | None) -> NewCompanion:
    """Return the companion of a stream that sends states, which are proved or sealed themselves."""

    def new_core(setup: SourceSetup, parameters: Parameters, now_ns: int, counters: Counters) -> SourceCore:
        sealed = attrs.evolve(setup, sealer=sealer)
        return CompanionSource(sealed, parameters, now_ns, proof_companions(prover, sealer), counters=counters)

    return functools.partial(StateSession, new_core)
