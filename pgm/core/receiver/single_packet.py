"""Fast path of a receiver for single plain packets, which dominate round trips.

`SingleReceiveLane.begin` takes a packet whose payload the application takes at once. `commit` notes the packet later, and
predicts the next packet. Both together have the effect of `ReceiverSession.on_data` in a fraction of its calls.
"""

from __future__ import annotations

import attrs

from pgm.core.receiver.phase import SessionPhase
from pgm.core.receiver.session import ReceiverSession
from pgm.core.session.source_filter import SourceFilter
from pgm.core.session.table import SessionTable
from pgm.wire.formats import DATA_HEADER_OCTETS, Nla, Tsi
from pgm.wire.sequence_numbers import HALF, MASK
from pgm.wire.single_odata import (
    NEXT_HEAD,
    NEXT_HEADS,
    header_as_int,
    is_plain_untrusted,
    plain_front,
    read_plain_untrusted,
)

_OPEN = SessionPhase.OPEN


@attrs.define  # not frozen: one object is made per packet, and making a frozen object takes three times as long
class PredictedPacket:
    """A plain ODATA that may be delivered at once: its header and its bookkeeping."""

    session: ReceiverSession
    packet: tuple[Tsi, int]  # and its sqn
    trail: int
    octets: int  # with its header
    head: int  # the packet's `header_as_int`


def predict(session: ReceiverSession, wire_sqn: int, wire_trail: int, octets: int) -> PredictedPacket | None:
    """Predict a plain ODATA (`octets` with header). Return None if not next, or if it causes more than delivery."""
    state = session.state
    sqn, trail_distance = state.lead + 1, (wire_sqn - wire_trail) & MASK
    if sqn & MASK != wire_sqn or trail_distance >= HALF or not _may_pass(session, sqn, octets):
        return None
    front = plain_front(state.tsi, state.data_port)
    head = header_as_int(front, state.tsi[:6], octets - DATA_HEADER_OCTETS, wire_sqn, wire_trail)
    return PredictedPacket(session, (state.tsi, sqn), sqn - trail_distance, octets, head)


def _may_pass(session: ReceiverSession, sqn: int, octets: int) -> bool:
    """Return whether a plain packet is next, may be delivered at once, and causes nothing else."""
    return (
        session.window.may_pass(sqn, octets)
        and not session.state.end.is_claimed
        and session.state.spm is not None  # which says that the stream has no acks
        and session.delivery.phase is _OPEN
        and not session.feedback.is_wanted
    )


class SingleReceiveLane:
    """Fast path for single packets of all sessions of a receiver."""

    def __init__(self, sessions: SessionTable[ReceiverSession], sources: SourceFilter, *, is_open: bool) -> None:
        """`is_open` is False for a receiver with several lines: the lane then takes nothing."""
        self._sessions = sessions
        self._sources = sources
        self._is_open = is_open
        self._passed: PredictedPacket | None = None  # the packet of the last `begin`, not yet noted
        self._passed_octets = b""
        self._passed_peer: Nla = ""
        self._passed_at_ns = 0
        self._predicted: PredictedPacket | None = None

    def begin(self, packet: bytes, peer: Nla, now_ns: int) -> tuple[Tsi, int] | None:
        """Take a single packet. Return its TSI and sqn.

        The packet must be plain data and next in order, and the application must take its payload at once. Return None
        and take nothing for any other packet; `ReceiverCore.receive` takes these.
        """
        if self._passed is not None:
            self.commit()
        predicted = self._predicted
        if predicted is None or not is_plain_untrusted(packet, predicted.head, predicted.octets):
            predicted = self._predict_untrusted(packet)
            if predicted is None:
                return None
        if self._sources.is_active and not self._sources.permits(predicted.session.state.data_port, peer):
            return None
        self._predicted, self._passed, self._passed_peer, self._passed_at_ns = None, predicted, peer, now_ns
        self._passed_octets = packet
        return predicted.packet

    def _predict_untrusted(self, packet: bytes) -> PredictedPacket | None:
        plain = read_plain_untrusted(packet)
        if plain is None or not self._is_open:
            return None
        front, gsi, wire_sqn, wire_trail = plain
        self._predicted = None
        tsi = gsi + front[:2]
        session = self._sessions.turn
        if session is None or session.state.tsi != tsi:
            session = self._sessions.get(tsi)
        if session is None or front != plain_front(tsi, session.state.data_port):
            return None
        return predict(session, wire_sqn, wire_trail, len(packet))

    def commit(self) -> None:
        """Note the packet of the last `begin`, and predict the next packet.

        The application already has the packet at this time. The prediction equals the last packet except for its sqn.
        """
        passed, self._passed = self._passed, None
        if passed is None:
            return
        session, octets, trail = passed.session, passed.octets, passed.trail
        state = session.state
        session.window.note_passed(octets, self._passed_octets)
        state.heard_at_ns = self._passed_at_ns
        session.parents.heard(self._passed_peer)
        state.saw_next(trail)
        sqn = state.lead + 1
        if not sqn % NEXT_HEADS or sqn - trail >= HALF:
            self._predicted = predict(session, sqn & MASK, trail & MASK, octets)
        elif _may_pass(session, sqn, octets):
            passed.packet = state.tsi, sqn
            passed.head += NEXT_HEAD
            self._predicted = passed

    def close(self) -> None:
        """Take no more packets."""
        self.reset()
        self._is_open = False

    def reset(self) -> None:
        """Note the last packet and drop the prediction, before the sessions are read or changed."""
        self.commit()
        self._predicted = None

    def forget_prediction(self) -> None:
        """Drop the prediction, because the application may have no room for it."""
        self._predicted = None
