"""Source that offers states of its application to joiners (`pgm.core.late_join.states`).

The application gives a state when `SnapshotWanted` asks for it. There is at most one state in `snapshot_ivl`, for all
joiners that have asked. States take `join_share` of the source's rate. That share counts as repairs.
"""

from __future__ import annotations

import random

import attrs

from pgm.core.effects import NOTHING, Effect, Effects, Notice, Send, SnapshotWanted
from pgm.core.late_join.states import StateKind, StateMessage, sender_parameters, state_port, state_tsi
from pgm.core.segment import Channel
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.core.source_names import NamedTsi, node_of
from pgm.core.status import SessionEdges, SessionStatus
from pgm.core.window.transmit_window import Payload
from pgm.parameters import Parameters
from pgm.units import NEVER, format_octets
from pgm.wire.control_packets import Spmr
from pgm.wire.formats import Nla, Tsi, tsi_text
from pgm.wire.options import StateOffer, find
from pgm.wire.sequence_numbers import unwrap, wrap
from pgm.wire.train import Train

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


class SnapshotSource(SourceCore):
    """A `SourceCore` that also sends states of its application, in a session of their own."""

    def __init__(
        self, setup: SourceSetup, parameters: Parameters, now_ns: int, rng: random.Random | None = None
    ) -> None:
        super().__init__(setup, parameters, now_ns, rng)
        states = attrs.evolve(
            setup,
            tsi=NamedTsi.of(state_tsi(setup.tsi), node_of(setup.tsi)),
            data_port=state_port(setup.data_port),
            first_sqn=0,
            flow="rate",
            join_back_ivl=NEVER,
        )
        self._states = SourceCore(states, sender_parameters(parameters), now_ns, counters=self.counters)
        self._schedule = _StateSchedule(parameters)
        self.announce((StateOffer(),))

    @property
    def tsis(self) -> tuple[Tsi, ...]:
        """TSIs of the stream and of its states."""
        return self.setup.tsi, self._states.setup.tsi

    # The application

    def put_state(self, payload: Payload, now_ns: int) -> Effects:
        """Send a state that covers all accepted messages. One above `snapshot_bytes` is refused by a notice."""
        window, most = self._states.window, self.parameters.snapshot_bytes
        octets, position = len(payload), self.window.end
        is_too_large = octets > most
        kind = StateKind.TOO_LARGE if is_too_large else StateKind.WHOLE
        message = StateMessage(kind, position, octets, memoryview(b"" if is_too_large else payload))
        self._schedule.begin(position)
        self._states.announce((StateOffer(sqn=wrap(position)),))
        # These SPMs precede the state. A joiner that misses all of them requests the whole state by NAKs.
        effects = [*self._states.close_window(now_ns), *(self._states.spm(now_ns) for _ in range(_REPEATS))]
        self._states.submit((message.encode(),))
        self._invalidate_deadline()
        assert window.has_unsent
        return [*effects, self._too_large(octets, most)] if is_too_large else effects

    def _too_large(self, octets: int, most: int) -> Notice:
        return Notice(
            "snapshot-too-large",
            f"session {tsi_text(self.setup.tsi)}: a state of {format_octets(octets)} exceeds snapshot_bytes = "
            f"{format_octets(most)}, so joiners get none",
        )

    def set_rate(self, rate: int, now_ns: int) -> None:
        """Set the rate of stream and states."""
        super().set_rate(rate, now_ns)
        self._states.set_rate(max(1, round(rate * self.parameters.join_share)), now_ns)

    def close(self) -> None:
        """Close stream and states."""
        super().close()
        self._states.close()

    def abort(self, now_ns: int, *, error: int = 0, no_naks: bool = False) -> Effects:
        """Abort stream and states."""
        states = self._states.abort(now_ns, error=error, no_naks=no_naks)
        return [*super().abort(now_ns, error=error, no_naks=no_naks), *states]

    def is_finished(self, now_ns: int) -> bool:
        """Return whether a closed source may exit: no NAKs come for the stream or for a state."""
        return super().is_finished(now_ns) and self._states.is_finished(now_ns)

    # The network

    def receive(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        """Take requests for states and their repairs; everything else is for the stream."""
        items, rejects = train.parse_scattered_untrusted()
        effects: list[Effect] = []
        states, rest = [], []
        for item in items:
            if item.tsi == self._states.setup.tsi:
                states.append(item)
            elif (
                isinstance(item, Spmr)
                and item.tsi == self.setup.tsi
                and (wanted := find(item.options, StateOffer)) is not None
            ):
                codes = self.control_codes
                if not channel.is_group and not (
                    codes.has_any and codes.checked(item, channel.segment, peer, now_ns) is None
                ):
                    effects += self._on_request(wanted, now_ns)
                effects += codes.take_effects()
            else:
                rest.append(item)
        if len(rest) == len(items):
            return super().receive(train, channel, peer, now_ns)
        self._invalidate_deadline()
        if states:
            effects += self._states.receive(train.part(states, []), channel, peer, now_ns)
        if rest or rejects:
            effects += super().receive(train.part(rest, rejects), channel, peer, now_ns)
        return effects

    def _on_request(self, wanted: StateOffer, now_ns: int) -> Effects:
        """Want a state, or repeat where the newest one is: the joiner may have missed the SPM before it."""
        self.counters.spmr_packets_in += 1
        if self._closing.is_closed:
            return NOTHING
        sqn = min(unwrap(wanted.sqn, self.window.lead), self.window.end + 1)
        is_answered = self._schedule.want(sqn) and self._naks.limits.admit_spmr(now_ns)
        return (self._states.spm(now_ns),) if is_answered else NOTHING

    # Time

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(super().deadline_ns, self._states.deadline_ns, self._schedule.deadline_ns)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Send what is due of the states, then of the stream; ask the application for a state."""
        effects: list[Effect] = []
        schedule, states = self._schedule, self._states
        if schedule.expire(now_ns):
            states.advance_trail(states.window.lead + 1)
        if schedule.take(now_ns) and not self._closing.is_closed:
            effects.append(SnapshotWanted(self.setup.tsi))
        if states.deadline_ns <= now_ns:
            effects += states.handle_deadline(now_ns)
            if not states.window.has_unsent:
                schedule.sent(now_ns)
            last = effects[-1] if effects else None
            if isinstance(last, Send) and last.is_data:
                octets = len(last.octets)
                self._sending.pacer.repair_sent(octets, now_ns, octets // last.stride)
                self._invalidate_deadline()
                return effects  # one train of data in a call
        return [*effects, *super().handle_deadline(now_ns)]

    def status(self, now_ns: int) -> list[SessionStatus]:
        """Return the rows of stream and states. The counts of both are those of the stream's row."""
        states = [attrs.evolve(row, counts={}) for row in self._states.status(now_ns)]
        return [*super().status(now_ns), *states]

    def edges(self) -> list[SessionEdges]:
        """Return how far each session has come."""
        return [*super().edges(), *self._states.edges()]
