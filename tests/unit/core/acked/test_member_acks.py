"""Acks of one receiver: bounded by its application, and read once in an interval while packets wait."""

from __future__ import annotations

import attrs

from pgm.core.acked.ack_bound import AckBound
from pgm.core.acked.ack_sender import AckSender
from pgm.core.acked.ack_terms import AckTerms
from pgm.core.acked.member_acks import MemberAcks
from pgm.core.effects import Effects, Send
from pgm.core.recovery.parents import Parents
from pgm.core.session.state import SessionState
from pgm.units import MILLISECOND, NEVER, SECOND
from pgm.wire.control_packets import Ack, decode_control_untrusted
from pgm.wire.formats import Tsi
from pgm.wire.options import Members, find
from tests.unit.core.makers import PARENT, SEGMENT, parameters, session_context

IVL = 10 * MILLISECOND
BEGIN = SECOND + IVL  # from then on acks follow the application alone
TERMS = AckTerms(window=100, every=25, ivl=IVL, expiry=SECOND, stall=10 * SECOND)


@attrs.define
class Application(AckBound):
    """Application that takes packets when the test says so."""

    taken: int = -1
    is_last: bool = True

    def acked(self, tsi: Tsi, begin: int, delivered: int) -> int:
        return max(begin, min(delivered, self.taken))

    def leave(self, tsi: Tsi) -> bool:
        return self.is_last


def member(application: Application) -> MemberAcks:
    """Return a member whose first ack was sent and confirmed."""
    context = session_context(parameters())
    state = SessionState(context)
    parents = Parents(context, (PARENT,))
    acks = MemberAcks(context.tsi, AckSender(context, state, parents, SEGMENT), application)
    state.heard_at_ns = SECOND
    acks.open(0)
    acks.follow(TERMS, SECOND)
    acks.reached(-1, SECOND)
    assert said(acks.handle_deadline(SECOND)) == (-1, False)
    acks.on_confirmation(PARENT, SECOND, is_for_us=True)
    assert said(acks.handle_deadline(BEGIN)) == (-1, False)  # the parent might not have confirmed
    return acks


def said(effects: Effects) -> tuple[int, bool] | None:
    """Return the sqn of an ack, and whether it is a goodbye; None without an ack."""
    if not effects:
        return None
    [effect] = effects
    assert isinstance(effect, Send)
    ack = decode_control_untrusted(bytes(effect.octets))
    assert isinstance(ack, Ack)
    members = find(ack.options, Members)
    assert members is not None
    sqn = ack.rx_max
    return (-1 if sqn == 0xFFFFFFFF else sqn), members.leaves


def test_delivered_packets_are_not_acked_before_they_are_taken() -> None:
    application = Application()
    acks = member(application)
    acks.reached(50, BEGIN)
    assert acks.status is not None
    assert (acks.status.stable, acks.status.untaken) == (-1, 51)
    now_ns = acks.deadline_ns
    assert now_ns <= BEGIN + IVL
    assert said(acks.handle_deadline(now_ns)) is None
    application.taken = 5
    now_ns = acks.deadline_ns
    assert said(acks.handle_deadline(now_ns)) == (5, False)


def test_many_taken_packets_are_acked_at_once() -> None:
    application = Application()
    acks = member(application)
    acks.reached(50, BEGIN)
    application.taken = 24
    assert said(acks.taken(BEGIN + 1)) == (24, False)
    application.taken = 26
    assert said(acks.taken(BEGIN + 2)) is None


def test_position_is_not_read_while_nothing_waits() -> None:
    application = Application(taken=NEVER)
    acks = member(application)
    acks.reached(5, BEGIN)
    assert said(acks.handle_deadline(acks.deadline_ns)) == (5, False)
    assert acks.deadline_ns >= BEGIN + TERMS.keepalive


def test_member_of_a_closed_session_leaves_when_all_is_taken() -> None:
    application = Application()
    acks = member(application)
    acks.reached(5, BEGIN)
    acks.end(BEGIN)
    assert said(acks.handle_deadline(acks.deadline_ns)) is None
    application.taken = 5
    assert said(acks.taken(BEGIN + IVL)) == (5, True)


def test_one_of_several_members_of_a_node_leaves_silently() -> None:
    application = Application(taken=5, is_last=False)
    acks = member(application)
    acks.reached(5, BEGIN)
    assert said(acks.leave(BEGIN)) is None
    acks.reached(6, BEGIN)
    assert acks.deadline_ns == NEVER
