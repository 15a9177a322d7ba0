"""Repairs: held for a moment, sent once, not sent again for the echoes."""

from __future__ import annotations

import itertools

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.counters import Counters
from pgm.core.repair.responder import Responder
from pgm.core.structures.run_store import RunStore
from pgm.units import NEVER, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS, PacketType
from pgm.wire.train import MAX_CONVOY_PACKETS, packets_a_train
from tests.memory import kept_by
from tests.unit.core.makers import (
    MS,
    SEGMENT,
    chunk_of_runs,
    parameters,
    payload_of,
    run_of,
    sent_items,
    sent_sqns,
    session_context,
)

HOLD, IGNORE = MS, 20 * MS
SETTINGS = parameters(rdata_hold_ivl=HOLD, rdata_ignore_ivl=IGNORE)
ANY = 65_400


def responder(*runs, **changes):
    store = RunStore()
    for run in runs:
        store.add(run)
    counters = Counters()
    context = session_context(attrs.evolve(SETTINGS, **changes), counters=counters)
    return Responder(context, store, SEGMENT), store, counters


def sqns(send):
    return [] if send is None else sent_sqns([send], PacketType.RDATA)


@pytest.mark.rfc("SRC-42", "SRC-43")
def test_a_repair_is_held_to_collect_naks_and_then_sent():
    made, _, counters = responder(run_of(10, 10))
    assert made.deadline_ns == NEVER
    assert made.request([(12, 14)], SECOND) == []
    assert made.deadline_ns == SECOND + HOLD
    assert made.next_train(ANY, 0, SECOND + HOLD - 1) is None
    made.request([(13, 15), (18, 19)], SECOND + HOLD // 2)
    assert made.pending_sqns == 4
    send = made.next_train(ANY, 0, SECOND + HOLD + HOLD // 2)
    assert sqns(send) == [12, 13, 14, 18]
    assert (send.segment, send.to, send.is_data) == (SEGMENT, None, True)
    assert made.deadline_ns == NEVER
    assert made.pending_sqns == 0
    assert (counters.rdata_packets, counters.rdata_octets) == (4, 4 * 36)


def test_responder_repair_not_due_waits_for_its_deadline():
    made, _, _ = responder(run_of(10, 10))
    made.request([(12, 14)], SECOND)
    made.request([(15, 16)], SECOND + HOLD // 2)
    assert sqns(made.next_train(ANY, 0, SECOND + HOLD)) == [12, 13]
    assert made.deadline_ns == SECOND + HOLD + HOLD // 2
    assert made.next_train(ANY, 0, SECOND + HOLD) is None
    assert sqns(made.next_train(ANY, 0, made.deadline_ns)) == [15]


@pytest.mark.parametrize("requests", [[[(12, 14), (16, 17)]], [[(12, 13), (16, 17)], [(11, 14)]]])
@pytest.mark.parametrize(
    ("room", "lately", "changes", "is_sent"),
    [
        ((ANY, 9), [], {}, True),
        ((0, 0), [], {}, False),
        ((3 * 36 - 1, 9), [], {}, False),
        ((ANY, 2), [], {}, False),
        ((ANY, 9), [(16, 17)], {}, False),
        ((ANY, 9), [], {"rdata_hold_ivl": 2 * MS}, False),
    ],
)
def test_answer_without_room_owes_what_it_would_have_sent(requests, room, lately, changes, is_sent):
    made, _, _ = responder(run_of(10, 10), **changes)
    if lately:
        made.heard_repair(*lately[0], SECOND)
    wanted = sorted({sqn for spans in requests for first, end in spans for sqn in range(first, end)})
    send = made.answer(requests, room, 10, SECOND, "10.0.0.9")
    assert sqns(send) == (wanted if is_sent else [])
    rest = [sqn for sqn in wanted if not any(first <= sqn < end for first, end in lately)]
    assert made.pending_sqns == (0 if is_sent else len(rest))
    if not is_sent:
        assert sqns(made.next_train(ANY, 10, made.deadline_ns)) == rest


def test_hold_can_be_chosen():
    made, _, _ = responder(run_of(10, 10))
    made.request([(12, 14)], SECOND, 0)
    assert sqns(made.next_train(ANY, 0, SECOND)) == [12, 13]


def test_others_do_not_wait_behind_who_asks_for_more_than_its_share():
    """Whoever asks for little comes first; who asks for much has one train of four; what both want is everybody's."""
    made, _, _ = responder(run_of(0, 100), txw_max_rte=1_000_000, rdata_share=0.25)
    much, little = "10.0.0.8", "10.0.0.9"
    share = 250_000 // SETTINGS.max_tpdu  # packets of a second, of who is alone
    made.request([(0, 50)], SECOND, 0, much)
    made.request([(50, 60)], SECOND, 0, little)
    assert sqns(made.next_train(36, 0, SECOND)) == [0]  # so much is within the share
    for _ in range(share // 50):
        made.request([(0, 50)], SECOND + IGNORE, 0, much)
    made.request([(60, 100)], SECOND + IGNORE, 0, much)
    made.request([(70, 72)], SECOND + IGNORE, 0, little)
    assert made.pending_sqns == 100
    order = [sqn for _ in range(100) for sqn in sqns(made.next_train(36, 0, SECOND + IGNORE))]
    assert sorted(order) == list(range(100))
    assert order[3::4][:10] == [0, 60, 61, 62, 63, 64, 65, 66, 67, 68]
    assert max(order.index(sqn) for sqn in (*range(1, 60), 70, 71)) < 4 / 3 * 61 + 4
    assert made.deadline_ns == NEVER


def test_repairs_beyond_a_share_wait_no_longer_than_an_interval():
    """A flood of requests leaves no more repairs behind than the share carries in a second: the oldest."""
    made, _, counters = responder(run_of(0, 1000, 100), txw_max_rte=40_000, rdata_share=0.25)
    stride = 100 + DATA_HEADER_OCTETS
    for first in range(900, 0, -100):
        made.request([(first, first + 90)], SECOND, asker="10.0.0.9")
    made.request([(5, 6)], SECOND, asker="10.0.0.8")
    assert made.pending_sqns == 10_000 // stride + 1
    assert counters.repairs_braked == 9 * 90 - 10_000 // stride
    assert sqns(made.next_train(ANY, 0, 2 * SECOND)) == [5]
    assert sqns(made.next_train(ANY, 0, 2 * SECOND)) == list(range(100, 100 + 10_000 // stride))


def test_responder_full_train_is_not_held_by_default():
    full = packets_a_train(36)
    made, _, _ = responder(run_of(10, 2 * full))
    made.request([(10, 10 + full - 1)], SECOND)
    assert made.deadline_ns == SECOND + HOLD
    made.request([(10 + full, 10 + 2 * full)], SECOND)
    assert made.deadline_ns == SECOND
    assert sqns(made.next_train(ANY, 0, SECOND)) == list(range(10 + full, 10 + 2 * full))
    assert made.deadline_ns == SECOND + HOLD
    other, _, _ = responder(run_of(10, full))
    other.request([(10, 10 + full)], SECOND, 2 * HOLD)
    assert other.deadline_ns == SECOND + 2 * HOLD


def test_many_leave_in_whole_trains():
    full = packets_a_train(36)
    made, _, _ = responder(run_of(0, 3 * full))
    made.request([(0, 3 * full)], SECOND)
    room = (2 * full + full // 2) * 36
    assert sqns(made.next_train(room, 0, SECOND)) == list(range(2 * full))
    assert sqns(made.next_train(36 * 3, 0, SECOND)) == list(range(2 * full, 2 * full + 3))
    assert sqns(made.next_train(room, 0, SECOND)) == list(range(2 * full + 3, 3 * full))


def test_responder_shorter_hold_makes_repair_due_earlier():
    made, _, _ = responder(run_of(10, 10))
    made.request([(12, 16)], SECOND)
    made.request([(13, 15)], SECOND, 0)
    assert made.deadline_ns == SECOND
    assert sqns(made.next_train(ANY, 0, SECOND)) == [13, 14]
    made.request([(15, 16)], SECOND, 2 * HOLD)
    assert made.deadline_ns == SECOND + HOLD
    assert sqns(made.next_train(ANY, 0, SECOND + HOLD)) == [12, 15]


@pytest.mark.rfc("W-31", "SRC-07")
def test_repairs_carry_the_present_trail_and_the_payload_as_it_was():
    made, _, _ = responder(run_of(10, 10))
    made.request([(12, 14)], SECOND, 0)
    [data] = sent_items([made.next_train(ANY, 11, SECOND)])
    assert (data.type, data.wire_sqn, data.count, data.wire_trail) == (PacketType.RDATA, 12, 2, 11)
    assert [row.tobytes() for row in data.run(12).payloads] == [payload_of(12), payload_of(13)]


@pytest.mark.rfc("SRC-43")
def test_echoes_are_ignored_for_a_while():
    """NAKs that crossed the repair are not served twice."""
    made, _, counters = responder(run_of(10, 10))
    made.request([(12, 14)], SECOND, 0)
    made.next_train(ANY, 0, SECOND)
    assert made.request([(11, 16)], SECOND + IGNORE - 1, 0) == []
    assert counters.repairs_ignored == 2
    assert sqns(made.next_train(ANY, 0, SECOND + IGNORE - 1)) == [11, 14, 15]
    made.request([(12, 14)], SECOND + IGNORE, 0)
    assert sqns(made.next_train(ANY, 0, SECOND + IGNORE)) == [12, 13]


def test_a_later_repair_ignores_for_longer():
    made, _, _ = responder(run_of(10, 10))
    made.heard_repair(12, 16, SECOND)
    made.heard_repair(14, 15, SECOND + IGNORE // 2)
    made.request([(12, 16)], SECOND + IGNORE, 0)
    assert sqns(made.next_train(ANY, 0, SECOND + IGNORE)) == [12, 13, 15]


def test_a_repair_that_somebody_else_sent_is_not_sent():
    made, _, counters = responder(run_of(10, 10))
    made.request([(11, 16)], SECOND)
    made.heard_repair(12, 14, SECOND)
    assert counters.repairs_cancelled == 2
    assert sqns(made.next_train(ANY, 0, SECOND + HOLD)) == [11, 14, 15]
    made.request([(12, 14)], SECOND + HOLD)
    assert made.deadline_ns == NEVER


def test_cancelling_everything_leaves_no_deadline():
    made, _, _ = responder(run_of(10, 10))
    made.request([(11, 16)], SECOND)
    made.heard_repair(0, 100, SECOND)
    assert made.deadline_ns == NEVER
    assert made.next_octets() == 0


def test_responder_request_returns_sqns_that_store_lacks():
    made, _, _ = responder(run_of(10, 5), run_of(20, 5))
    assert made.request([(8, 12), (13, 22), (24, 30)], SECOND) == [(8, 10), (15, 20), (25, 30)]
    assert sqns(made.next_train(ANY, 0, SECOND + HOLD)) == [10, 11, 13, 14, 20, 21, 24]
    assert made.request([(100, 101)], SECOND + HOLD) == [(100, 101)]
    assert made.deadline_ns == NEVER


def test_a_train_has_one_size_of_packets():
    """Covers the wire's own rule: what is cut every so many octets must be that long."""
    made, _, _ = responder(run_of(10, 3, 12), run_of(13, 3, 20), run_of(16, 3, 12))
    made.request([(10, 19)], SECOND, 0)
    trains = [made.next_train(ANY, 0, SECOND) for _ in range(3)]
    assert [(send.stride, sqns(send)) for send in trains] == [
        (36, [10, 11, 12]),
        (44, [13, 14, 15]),
        (36, [16, 17, 18]),
    ]
    assert made.next_train(ANY, 0, SECOND) is None


@pytest.mark.rfc("SRC-43")
def test_runs_of_one_size_share_a_train_oldest_first():
    """A request may span many kept trains, and the oldest sqns leave first."""
    made, _, _ = responder(run_of(10, 5), run_of(15, 5), run_of(20, 5), run_of(30, 5))
    made.request([(11, 24), (31, 33)], SECOND, 0)
    assert sqns(made.next_train(ANY, 0, SECOND)) == [*range(11, 24), 31, 32]
    made.request([(30, 35)], SECOND + IGNORE, 0)
    made.request([(10, 20)], SECOND + IGNORE, 0)
    assert sqns(made.next_train(10 * 36, 0, SECOND + IGNORE)) == [*range(10, 20)]


@pytest.mark.parametrize(
    ("octets", "packets"), [(1, 1), (36, 1), (71, 1), (72, 2), (359, 9), (ANY, MAX_CONVOY_PACKETS)]
)
def test_responder_train_has_pacer_length_and_at_least_one_packet(octets, packets):
    made, _, _ = responder(run_of(0, 600))
    made.request([(0, 600)], SECOND, 0)
    assert made.next_octets() == MAX_CONVOY_PACKETS * 36
    assert sqns(made.next_train(octets, 0, SECOND)) == list(range(packets))
    assert made.deadline_ns == SECOND


@pytest.mark.rfc("SRC-42")
def test_responder_packets_gone_from_store_are_not_owed():
    """The window may move between the NAK and the repair."""
    made, store, _ = responder(run_of(10, 10))
    made.request([(10, 20)], SECOND)
    store.drop_before(15)
    assert made.next_octets() == 10 * 36
    assert sqns(made.next_train(ANY, 15, SECOND + HOLD)) == [15, 16, 17, 18, 19]
    made.request([(15, 18)], SECOND + SECOND)
    store.drop_before(100)
    assert made.next_train(ANY, 100, 3 * SECOND) is None
    assert made.deadline_ns == NEVER
    assert made.pending_sqns == 0


@pytest.mark.rfc("SRC-03")
def test_size_of_the_next_train_is_guessed_from_what_is_held():
    """A guess of nothing would let a whole train past the bucket."""
    made, store, _ = responder(run_of(10, 5), run_of(20, 5))
    made.request([(10, 15)], SECOND)
    made.request([(20, 25)], SECOND)
    store.drop_before(20)
    assert made.next_octets() >= 5 * 36


def test_memory_of_repairs_fades():
    """A repairer hears the others' repairs all day and may never be asked itself."""
    made, _, _ = responder(run_of(10, 10))
    before = len(kept_by(made))
    for count in range(5000):
        made.heard_repair(count, count + 1, SECOND + count * MS)
    assert len(kept_by(made)) < before + 500


@pytest.mark.rfc("SRC-42", "SRC-43", "SRC-44")
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["ask", "ask", "ask much", "heard", "send"]),
            st.integers(0, 30),
            st.integers(1, 10),
            st.sampled_from([0, MS // 2, MS, IGNORE]),
            st.integers(1, 12),
        ),
        max_size=40,
    )
)
def test_every_sqn_asked_for_is_sent_once_and_not_for_its_echoes(steps):
    """Against a dictionary by sqn. What somebody asks for beyond its share comes behind what others ask for, three trains at most."""
    made, _, _ = responder(*chunk_of_runs(0, [10, 10]), run_of(25, 10), txw_max_rte=1000)
    held = [*range(20), *range(25, 35)]
    now, owed, served, late, in_a_row = SECOND, {}, {}, set(), 0
    for what, first, count, wait, packets in steps:
        now += wait
        wanted = range(first, first + count)
        if what.startswith("ask"):
            asker = "10.0.0.9" if what == "ask much" else None
            lacking = made.request([(first, first + count)], now, asker=asker)
            assert [sqn for low, high in lacking for sqn in range(low, high)] == [s for s in wanted if s not in held]
            for sqn in wanted:
                if sqn in held and served.get(sqn, 0) <= now:
                    if asker is None:
                        late.discard(sqn)
                    elif sqn not in owed:
                        late.add(sqn)
                    owed.setdefault(sqn, now + HOLD)
            for sqn in sorted(late)[250 // 36 :]:  # the octets of all shares in a second
                late.discard(sqn)
                del owed[sqn]
        elif what == "heard":
            made.heard_repair(first, first + count, now)
            for sqn in wanted:
                owed.pop(sqn, None)
                late.discard(sqn)
                served[sqn] = now + IGNORE
        else:
            sent = sqns(made.next_train(packets * 36, 0, now))
            due = sorted(sqn for sqn, at in owed.items() if at <= now and sqn not in late)
            waiting = sorted(sqn for sqn, at in owed.items() if at <= now and sqn in late)
            is_turn = waiting and (not due or in_a_row == 3)
            in_a_row = 0 if is_turn or not late or not due else in_a_row + 1
            assert sent == (waiting if is_turn else due)[:packets]
            late -= set(sent)
            for sqn in sent:
                del owed[sqn]
                served[sqn] = now + IGNORE
        assert made.pending_sqns == len(owed)
        assert (made.deadline_ns <= now) == any(at <= now for at in owed.values())
        assert made.deadline_ns <= min(owed.values(), default=NEVER) or made.deadline_ns <= now


class AnyStore(RunStore):
    """A store of which it is not known whether all that is asked for is there and of one size."""

    def stride_of(self, first, end):
        return 0


@pytest.mark.rfc("SRC-42", "SRC-43", "SRC-44")
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["ask", "ask", "ask much", "ask now", "heard", "drop", "send", "send"]),
            st.lists(st.integers(0, 60), min_size=2, max_size=12, unique=True).map(sorted),
            st.sampled_from([0, MS // 2, MS, IGNORE]),
            st.integers(1, 12),
        ),
        max_size=40,
    )
)
def test_responder_uniform_packets_same_as_other_packets(steps):
    """Scattered packets of one size go together through the tables; one by one they would fare the same."""
    counters = (Counters(), Counters())
    stores = (RunStore(), AnyStore())
    settings = attrs.evolve(SETTINGS, txw_max_rte=10_000)
    ways = [
        Responder(session_context(settings, counters=counted), store, SEGMENT)
        for store, counted in zip(stores, counters, strict=True)
    ]
    for store in stores:
        for run in (*chunk_of_runs(0, [10, 10]), run_of(20, 10), run_of(30, 8, 20), run_of(40, 20)):
            store.add(run)
    now = SECOND
    for what, edges, wait, packets in steps:
        now += wait
        spans = list(zip(edges[::2], edges[1::2], strict=False))
        if what.startswith("ask"):
            asker, hold = "10.0.0.9" if what == "ask much" else None, 0 if what == "ask now" else None
            lacking = [one.request(spans, now, hold, asker) for one in ways]
            assert lacking[0] == lacking[1]
        elif what == "heard":
            for one in ways:
                one.heard_repair(*spans[0], now)
        elif what == "drop":
            for store in stores:
                store.drop_before(edges[0] // 4)
        else:
            one, other = (way.next_train(packets * 36, 7, now) for way in ways)
            assert (one is None) == (other is None)
            assert one is None or (one.octets.tobytes(), one.stride) == (other.octets.tobytes(), other.stride)
        assert ways[0].pending_sqns == ways[1].pending_sqns
        assert (ways[0].deadline_ns <= now) == (ways[1].deadline_ns <= now)
        assert ways[0].deadline_ns == ways[1].deadline_ns or ways[0].deadline_ns <= now
        assert counters[0] == counters[1]


@pytest.mark.parametrize("count", [1, 12])
def test_responder_sqns_below_zero_are_repaired(count):
    """A node that was first told of a session just behind 2^32 counts from there on, and may have or get what came before."""
    made, _, _ = responder(run_of(-20, count), run_of(-4, 10), run_of(6, 10, 20))
    made.request([(-20, -20 + count), (-2, 2), (7, 8)], SECOND)
    assert made.owes(-20, -19)
    taken = [sqns(made.next_train(ANY, 0, SECOND + HOLD)) for _ in range(3)]
    assert [*itertools.chain(*taken)] == [sqn & 0xFFFFFFFF for sqn in (*range(-20, -20 + count), *range(-2, 2), 7)]
    assert made.deadline_ns == NEVER
