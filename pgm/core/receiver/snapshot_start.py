"""Start of one session with a state of the source's application."""

from __future__ import annotations

from pgm.core.effects import NOTHING, Effect, Effects, NoSnapshot, NoSnapshotCause, Snapshot, control
from pgm.core.receiver.delivery import Delivery
from pgm.core.recovery.nak_sender import NakSender
from pgm.core.segment import Segment
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.control_packets import Spmr, encode
from pgm.wire.formats import Nla
from pgm.wire.options import HeldHistory, StateOffer, find
from pgm.wire.sequence_numbers import wrap

_MOST_LOST_STATES = 3


class SnapshotStart:
    """Request of one session for a state. It takes the place of a `LateJoiner`.

    The window holds the stream meanwhile. The session opens with the state, or without one after `snapshot_wait_ivl` in
    which no packet of a state came.
    """

    until_ns = NEVER  # the session does not open by its hold

    def __init__(self, delivery: Delivery, nak_sender: NakSender, segment: Segment, parameters: Parameters) -> None:
        self._delivery = delivery
        self._state = nak_sender.state
        self._segment = segment
        self._ask_ivl = parameters.snapshot_ask_ivl
        self._wait_ivl = parameters.snapshot_wait_ivl
        self.is_wanted = True
        self.deadline_ns = NEVER
        self._gives_up_ns = NEVER
        self._asks_ns = NEVER
        self._wanted_sqn = 0  # the least position of a state that helps
        self._lost_states = 0

    def hold_until(self, until_ns: int, now_ns: int) -> int:
        """Begin to wait for an SPM. Return NEVER: the session opens by this wait, not by its hold."""
        self.on_progress(now_ns)
        self._schedule()
        return NEVER

    def want(self, sqn: int) -> None:
        """Do nothing: a receiver with positions of its own requests no state."""

    def begin(self, now_ns: int) -> None:
        """Request a state, because the path is known now. A request that has begun goes on."""
        if self._asks_ns == NEVER:
            self._asks_ns = now_ns
            self.on_progress(now_ns)
            self._schedule()

    def on_progress(self, now_ns: int) -> None:
        """Note a packet of a state, or the start of the wait."""
        self._gives_up_ns = now_ns + self._wait_ivl

    def on_loss(self, position: int) -> Effects:
        """Note that the state with a position cannot be had: request a later one, or give up."""
        if position >= self._wanted_sqn:
            self._wanted_sqn = position + 1
            self._lost_states += 1
        return self.fail(NoSnapshotCause.LOST) if self._lost_states >= _MOST_LOST_STATES else NOTHING

    def _schedule(self) -> None:
        self.deadline_ns = min(self._asks_ns, self._gives_up_ns)

    @property
    def least_position(self) -> int:
        """Return the least position at which the stream can go on without a gap."""
        return self._delivery.window.next_sqn

    def handle_deadline(self, now_ns: int) -> Effects:
        """Return a request, or the start without a state."""
        if not self.is_wanted or now_ns < self.deadline_ns:
            return NOTHING
        spm = self._state.spm
        if spm is not None and find(spm.options, StateOffer) is None:
            return self.fail(NoSnapshotCause.NOT_OFFERED)
        if now_ns >= self._gives_up_ns:
            return self.fail(NoSnapshotCause.SILENT)
        effects: Effects = NOTHING
        if now_ns >= self._asks_ns:
            self._asks_ns = now_ns + self._ask_ivl
            wanted = StateOffer(sqn=wrap(max(self.least_position, self._wanted_sqn)))
            packet = encode(Spmr(tsi=self._state.tsi, data_port=self._state.data_port, options=(wanted,)))
            effects = (control(self._segment, packet, to=self._state.path_nla),)
        self._schedule()
        return effects

    def on_answer(self, held: HeldHistory, peer: Nla, now_ns: int) -> Effects:
        """Return nothing: history is not requested."""
        return NOTHING

    def on_gone(self, held: HeldHistory, peer: Nla) -> bool:
        """Return False: history is not requested."""
        return False

    def complete(self, payload: memoryview, position: int) -> list[Effect]:
        """Open the session with a state, and go on at its position."""
        self._end()
        self._delivery.window.begin_later(position)
        opened = [*self._delivery.open(), *self._delivery.window.late_opening(position)]
        return [*opened, Snapshot(self._state.tsi, payload, position), *self._delivery.advance()]

    def fail(self, cause: NoSnapshotCause) -> list[Effect]:
        """Open the session without a state."""
        window = self._delivery.window
        opened = [*self._delivery.open(), *window.late_opening(window.next_sqn)]
        return [*opened, *self.give_up(cause), *self._delivery.advance()]

    def give_up(self, cause: NoSnapshotCause) -> list[Effect]:
        """Report that a session, which is open now, has got no state."""
        self._end()
        return [NoSnapshot(self._state.tsi, self._delivery.window.next_sqn, cause)]

    def _end(self) -> None:
        self.is_wanted, self.deadline_ns = False, NEVER
