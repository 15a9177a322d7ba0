"""Questions about history that go up: merged, bounded, answered whatever becomes of those above."""

from __future__ import annotations

import pytest

from pgm.core.late_join.history_server import HistoryServer, held_packet
from pgm.core.late_join.upstream_history import UpstreamHistory, begins_at
from pgm.core.recovery.nak_packets import OF_HISTORY
from pgm.core.repair.cache import RepairCache
from pgm.core.repair.nak_limits import NakLimits
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Spmr, decode_control_untrusted
from pgm.wire.formats import PacketType
from pgm.wire.options import HeldHistory, find
from pgm.wire.sequence_numbers import wrap
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, SEGMENT, data_train, parameters, sent_control, session_context

ONE, OTHER = "10.0.0.3", "10.0.0.4"
LEAD, NOW = 5000, 1_000_000 * MS
EVERYTHING = HeldHistory(amount=0)


def state() -> SessionState:
    made = SessionState(session_context())
    made.begin_at(LEAD, LEAD - 100)
    return made


def above(*keepers: str) -> UpstreamHistory:
    return UpstreamHistory(session_context(parameters(open_hold_ivl=200 * MS)), state(), keepers, lambda _: SEGMENT)


def said(first: int | None, number: int = 0) -> HeldHistory:
    return HeldHistory(wrap(first or 0), number, answers=True, by_time=bool(number), nothing=first is None)


def asked(effects) -> list[tuple[str, HeldHistory]]:
    return [
        (send.to, find(packet.options, HeldHistory))
        for send in effects
        for packet in sent_control([send], PacketType.SPMR)
    ]


def child(number: int) -> str:
    return f"10.0.1.{number}"


def test_history_requests_of_many_children_share_one_question():
    history = above(ONE)
    sent = []
    wishes = [EVERYTHING, HeldHistory(amount=10, by_count=True), HeldHistory(amount=4000, by_sqn=True)]
    for number, wish in enumerate(wishes):
        effects, answered = history.ask(wish, SEGMENT, child(number), NOW)
        sent += asked(effects)
        assert not answered
    assert sent == [(ONE, EVERYTHING)]
    answered = history.on_answer(said(4500), ONE, NOW + MS)
    assert [(one.peer, one.held, one.first) for one in answered] == [
        (child(number), wish, 4500) for number, wish in enumerate(wishes)
    ]
    assert [begins_at(one.held, one.first, LEAD) for one in answered] == [4500, LEAD + 1 - 10, 4500]
    # Who comes a moment later is answered by what was just said.
    assert history.ask(EVERYTHING, SEGMENT, child(9), NOW + 2 * MS)[1][0].first == 4500
    assert (history.keeper, history.first) == (ONE, 4500)


def test_times_are_questions_of_their_own_and_few():
    history = above(ONE)
    for seconds in range(1, 100):
        effects, _ = history.ask(HeldHistory(amount=seconds * 1000, by_time=True), SEGMENT, child(seconds), NOW)
        assert asked(effects) == ([(ONE, HeldHistory(amount=seconds * 1000, by_time=True))] if seconds <= 16 else [])
    assert [one.peer for one in history.on_answer(said(4000, 3000), ONE, NOW)] == [child(3)]


def test_upstream_history_with_silent_keeper_uses_longest_history():
    history = above(ONE, OTHER)
    assert {to for to, _ in asked(history.ask(EVERYTHING, SEGMENT, child(1), NOW)[0])} == {ONE, OTHER}
    assert not history.on_answer(said(4800), ONE, NOW + MS)
    [answer] = history.on_answer(said(4700), OTHER, NOW + 2 * MS)
    assert (answer.first, history.keeper) == (4700, OTHER)

    history = above(ONE, OTHER)
    history.ask(EVERYTHING, SEGMENT, child(1), NOW)
    history.on_answer(said(4800), OTHER, NOW + MS)
    answered = []
    while not answered:
        at = history.deadline_ns
        effects, answered = history.handle_deadline(at)
        assert {to for to, _ in asked(effects)} <= {ONE}
    assert at <= NOW + 2 * MS + parameters().nak_rpt_ivl
    assert (answered[0].first, history.keeper) == (4800, OTHER)
    assert history.deadline_ns == NEVER


def test_nobody_answers():
    history = above(ONE)
    history.ask(EVERYTHING, SEGMENT, child(1), NOW)
    at, questions = NOW, 0
    while True:
        at = history.deadline_ns
        effects, answered = history.handle_deadline(at)
        questions += len(effects)
        if answered:
            break
    assert at == NOW + 100 * MS, "half of what the one below waits for"
    assert answered[0].first == NEVER
    assert questions >= 1
    assert not history.seek(at + MS)
    assert history.seek(at + 300 * MS)


@pytest.mark.parametrize("peer", [OTHER, child(1)])
def test_strangers_answer_nothing(peer: str):
    history = above(ONE)
    history.ask(EVERYTHING, SEGMENT, child(1), NOW)
    assert not history.on_answer(said(10), peer, NOW)
    assert history.keeper == ""


def made(**changes: object) -> HistoryServer:
    settings = parameters(**changes)
    return HistoryServer(state(), settings, NakLimits(session_context(settings)))


def nak(*, is_marked: bool = False) -> Nak:
    return Nak(
        tsi=TSI,
        data_port=DATA_PORT,
        kind=PacketType.NAK,
        sqn=7,
        source_nla="10.0.0.1",
        group_nla="239.192.0.1",
        options=OF_HISTORY if is_marked else (),
    )


def test_one_joiner_is_served_alone_and_several_together():
    history_server = made(open_hold_ivl=200 * MS)
    other = Segment(7, "other", "10.0.7.1", "239.192.0.7", upstream=False, downstream=True)
    history_server.tell(EVERYTHING, 4000, SEGMENT, child(1), NOW)
    assert history_server.is_history(nak(), SEGMENT, child(1), LEAD + 1, NOW)
    assert not history_server.is_history(nak(), SEGMENT, child(1), LEAD + 2, NOW)
    assert history_server.alone(SEGMENT) == child(1)
    history_server.tell(EVERYTHING, NEVER, SEGMENT, child(2), NOW)
    assert history_server.alone(SEGMENT) == child(1), "who gets nothing is no company"
    assert history_server.is_history(nak(is_marked=True), SEGMENT, child(3), LEAD + 99, NOW), "it says so itself"
    assert history_server.alone(SEGMENT) is None
    history_server.tell(EVERYTHING, 4000, other, child(4), NOW)
    assert history_server.alone(other) == child(4)
    history_server.is_history(nak(), SEGMENT, child(1), 4500, NOW + 201 * MS)
    assert history_server.alone(SEGMENT) == child(1), "the others have not asked for long"


def test_history_gone_sends_one_packet_per_span():
    history_server = made(session_ncf_rte=1000)
    history_server.tell(EVERYTHING, 4000, SEGMENT, child(1), NOW)
    told = history_server.gone([(4000, 4010), (4020, 4021)], SEGMENT, NOW)
    assert asked(told) == [
        (child(1), HeldHistory(4000, 10, answers=True, by_sqn=True, nothing=True)),
        (child(1), HeldHistory(4020, 1, answers=True, by_sqn=True, nothing=True)),
    ]
    many = [(sqn, sqn + 1) for sqn in range(0, 100_000, 2)]
    assert len(history_server.gone(many, SEGMENT, NOW)) < 2_000, "who asks for what is gone gets no storm"
    packet = decode_control_untrusted(held_packet(state(), EVERYTHING))
    assert isinstance(packet, Spmr)


def test_promised_history_stays_cached_for_a_while():
    settings = parameters(cache_secs=640 * MS)
    cache = RepairCache(settings.cache_bytes, settings.cache_secs)
    kept = cache.open_session()

    def keep(sqn: int, now_ns: int) -> None:
        [item], _ = data_train([sqn]).parse_untrusted()
        kept.add(item.run(sqn), now_ns)

    for number in range(64):
        keep(number, NOW + number * 10 * MS)
    kept.promise(30, NOW + 630 * MS)
    for number in range(64, 120):
        keep(number, NOW + number * 10 * MS)
    assert kept.store.oldest is not None
    assert 20 <= kept.store.oldest.first <= 31
    keep(120, NOW + 1300 * MS)
    assert kept.store.oldest.first >= 60
