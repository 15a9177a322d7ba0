"""The transmit window: numbering, building, sending in order, and when the trail moves."""

from __future__ import annotations

import array
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.structures.arena import Arena
from pgm.core.structures.run_store import RunStore
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.core.window.transmit_window import TransmitWindow
from pgm.errors import PayloadTooLarge
from pgm.units import KIB, MILLISECOND, NEVER, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Fragment
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import MAX_CONVOY_PACKETS, MAX_TRAIN_PACKETS, Data, Train
from tests.memory import kept_by
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import MS, parameters

ANY = 65_400
STRIDE = 24 + 76  # packets of a round size


def window(first=0, **changes):
    return TransmitWindow(TSI, DATA_PORT, parameters(**{"max_tpdu": 128} | changes), first)


def send(made, most=ANY, now=SECOND):
    """One train, read back."""
    rows = made.next_train(most, now)
    if rows is None:
        return None
    items, rejects = Train.of(rows.reshape(-1), rows.shape[1]).parse_untrusted()
    assert rejects == []
    assert all(isinstance(item, Data) and item.type is PacketType.ODATA for item in items)
    return items


def send_all(made, now=SECOND):
    items = []
    while made.has_unsent:
        found = send(made, now=now)
        if found is None:
            break
        items += found
    return items


def held(made):
    """What can be repaired."""
    return [sqn for part in made.parts(0, 1 << 62) for sqn in range(part.first, part.end)]


# Accepting


@pytest.mark.rfc("SRC-01", "SRC-47", "W-17")
@given(sizes=st.lists(st.integers(0, 300), max_size=30), first=st.sampled_from([0, 7, (1 << 32) - 5, 1 << 40]))
def test_messages_are_numbered_in_order_and_sent_in_order(sizes, first):
    """Every octet, every sqn, fragments and empty messages too."""
    rng = random.Random(len(sizes))
    made = window(first)
    messages = [rng.randbytes(size) for size in sizes]
    half = len(messages) // 2
    made.append(messages[:half])
    made.append(messages[half:])
    unsent, sent = made.unsent_octets, 0
    found, at = [], first
    reassembler = Reassembler(TSI, 1 << 20)
    for item in send_all(made):
        assert item.wire_sqn == wrap(at)
        sent += item.run(at).octets
        for one in reassembler.add(item.run(at)):
            if isinstance(one, WholeMessages):
                found += [row.tobytes() for row in one.payloads]
            else:
                assert isinstance(one, LargeMessage)
                found.append(one.payload)
        at += item.count
    assert found == messages
    assert at == made.end == made.lead + 1
    assert sent == unsent
    assert made.unsent_octets == 0


@pytest.mark.rfc("SRC-47")
def test_fragments_fill_their_packets():
    """Contiguous, in offset order, each with the first sqn and the whole length."""
    made = window(10)
    made.append([bytes(200)])
    items = send_all(made)
    run = [item.run(item.wire_sqn) for item in items]
    assert [(one.first, one.count, one.stride) for one in run] == [(10, 2, 128), (12, 1, 24 + 20 + 32)]
    assert [one.options() for one in run] == [(Fragment(10, 0, 200),), (Fragment(10, 168, 200),)]


def test_the_largest_plain_message_is_one_packet():
    made = window()
    made.append([bytes(104), bytes(105)])
    assert [item.count for item in send_all(made)] == [1, 1, 1]
    assert made.end == 3


def test_rows_of_an_array():
    made = window()
    payloads = np.arange(150 * 8, dtype=np.int64).astype(np.uint8).reshape(150, 8)
    made.append_rows(payloads)
    found = [row.tobytes() for item in send_all(made) for row in item.run(0).payloads]
    assert found == [row.tobytes() for row in payloads]
    wide = np.ones((2, 300), np.uint8)
    made.append_rows(wide)
    assert made.end == 150 + 2 * 4


@pytest.mark.parametrize("count", [1, 2])
def test_a_view_of_items_larger_than_octets_is_refused(count):
    """Its length is not that of what would be sent. A lone message and several of one size are built in two ways."""
    made = window()
    with pytest.raises(ValueError, match="not octets"):
        made.append([b"before", *[memoryview(array.array("I", range(5)))] * count])
    assert not made.has_unsent
    made.append([memoryview(b"view"), memoryview(array.array("I", range(5))).cast("B")])
    assert [one.run(0).payloads.shape[1] for one in send_all(made)] == [4, 20]


def test_nothing_is_taken_of_a_batch_with_a_message_too_large():
    made = window(max_apdu=1000)
    with pytest.raises(PayloadTooLarge) as caught:
        made.append([b"x", bytes(1001)])
    assert caught.value.remedy
    assert made.end == 0
    assert not made.has_unsent
    made = window(txw_bytes=1000)
    with pytest.raises(PayloadTooLarge):
        made.append([bytes(501)])
    made.append([bytes(500)])


# Sending


def test_nothing_to_send():
    made = window()
    assert not made.has_unsent
    assert made.next_octets == 0
    assert made.next_train(ANY, SECOND) is None
    assert (made.trail, made.lead, made.end) == (0, -1, 0)
    assert made.deadline_ns == NEVER


@pytest.mark.rfc("SRC-01", "W-19")
def test_trains_are_of_one_size_and_bounded():
    """The lead is the last sent, not the last accepted."""
    made = window()
    made.append([bytes(76)] * 900 + [bytes(50)] * 3 + [bytes(76)] * 2)
    assert made.next_octets == MAX_CONVOY_PACKETS * STRIDE
    counts = []
    for most in (10 * STRIDE + 99, 1, ANY, 200 * STRIDE, ANY, ANY, ANY):
        [item] = send(made, most)
        counts.append(item.count)
        assert made.lead == item.wire_sqn + item.count - 1
    assert counts == [10, 1, 512, 192, 185, 3, 2]  # beyond one train only full ones, and the end of what waits
    assert made.next_train(ANY, SECOND) is None


@pytest.mark.rfc("SRC-06")
def test_only_what_was_sent_can_be_repaired():
    made = window()
    made.append([bytes(76)] * 10)
    assert held(made) == []
    send(made, 4 * STRIDE)
    assert held(made) == [0, 1, 2, 3]


# Advance with time


def sent_at(made, count, now):
    made.append([bytes(76)] * count)
    while made.has_unsent:
        made.advance(now)
        assert send(made, now=now) is not None


@pytest.mark.rfc("SRC-10", "SRC-13")
def test_time_moves_the_trail_by_increments():
    """Every packet stays for TXW_SECS, an increment longer at most."""
    made = window(txw_secs=10 * SECOND, txw_adv_secs=SECOND)
    sent, history = {}, {}
    for at in range(0, 30_000, 100):
        now = at * MS
        made.advance(now)
        history[at] = made.trail
        first = made.end
        sent_at(made, 3, now)
        sent.update(dict.fromkeys(range(first, made.end), at))
    for at, trail in history.items():
        oldest = min((sqn for sqn, then in sent.items() if then >= at - 10_000), default=0)
        assert trail <= oldest
        too_old = [sqn for sqn, then in sent.items() if then < at - 11_100]
        assert trail > max(too_old, default=-1)
    steps = {later - sooner for sooner, later in itertools.pairwise(history.values())}
    assert steps == {0, 30}  # a second's worth at a time


@pytest.mark.rfc("SRC-09", "SRC-13")
def test_full_rate_keeps_txw_secs():
    """The bound on octets leaves room for what the rate lets out in TXW_SECS."""
    made = window(txw_secs=2 * SECOND, txw_adv_secs=500 * MS, txw_max_rte=100_000, txw_burst_ivl=5 * MS)
    sent = {}
    for at in range(10_000):  # a packet of 100 octets a millisecond, in bursts of five
        now = at * MS
        made.advance(now)
        if at % 5 == 0:
            first = made.end
            sent_at(made, 5, now)
            sent.update(dict.fromkeys(range(first, made.end), at))
            assert sent.get(made.trail, at) >= at - 2600
            assert all(sqn >= made.trail for sqn in range(max(0, first - 1995), first))


@pytest.mark.rfc("SRC-13", "SRC-15", "W-19")
def test_idle_window_closes():
    """The trail reaches LEAD + 1 although nothing is sent."""
    made = window(txw_secs=10 * SECOND, txw_adv_secs=SECOND)
    sent_at(made, 5, SECOND)
    sent_at(made, 5, SECOND + 500 * MS)
    assert made.deadline_ns == 11 * SECOND + 500 * MS
    made.advance(made.deadline_ns - 1)
    assert (made.trail, made.lead) == (0, 9)
    made.advance(made.deadline_ns)
    assert (made.trail, made.lead) == (10, 9)
    assert held(made) == []
    assert made.deadline_ns == NEVER
    sent_at(made, 1, 100 * SECOND)
    assert (made.trail, made.lead) == (10, 10)


@pytest.mark.rfc("SRC-13")
def test_naks_do_not_hold_an_advance_with_time():
    made = window(txw_secs=10 * SECOND, txw_adv_secs=SECOND)
    sent_at(made, 5, SECOND)
    made.note_nak(0, 11 * SECOND)
    made.advance(11 * SECOND)
    assert made.trail == 5


# Bounds


@pytest.mark.rfc("SRC-08", "SRC-09", "W-18")
@given(
    mode=st.sampled_from(["time", "data", "application"]),
    sqns=st.sampled_from([0, 1, 7, 100]),
    octets=st.sampled_from([300, 1000, 5000]),
    seed=st.integers(0, 1 << 30),
)
def test_window_is_never_larger_than_its_bounds(mode, sqns, octets, seed):
    """In octets and in sqns, whatever is sent and however long the trains."""
    rng = random.Random(seed)
    made = window(txw_adv_mode=mode, txw_sqns=sqns, txw_bytes=octets, txw_adv_secs=SECOND, txw_secs=5 * SECOND)
    now, moved = SECOND, 0
    for _ in range(60):
        now += rng.choice([0, MS, 300 * MS])
        made.advance(now)
        if rng.random() < 0.7:
            made.append([bytes(rng.choice([0, 20, 100, 100, 140]))] * rng.randint(1, 9))
        if rng.random() < 0.3:
            made.note_nak(rng.randint(max(0, made.trail - 3), max(0, made.lead)), now)
        trail = made.trail
        unsent = made.unsent_octets
        rows = made.next_train(rng.choice([1, 500, ANY]), now)
        assert mode != "application" or made.trail == trail
        if rows is None and made.has_unsent:
            assert mode != "time" or now < made.retry_at() <= now + (now - SECOND) // 2 + 100 * MS
            if mode == "application":
                made.advance_to(made.trail + rng.randint(1, 5))
        moved += made.trail > trail
        kept = held(made)
        assert kept == list(range(made.trail, made.lead + 1))
        size = sum(part.octets for part in made.parts(made.trail, made.lead + 1))
        assert size <= max(octets, 0 if len(kept) > 1 else 200)
        assert len(kept) <= (sqns or 1 << 31)
        assert made.unsent_octets == unsent - (0 if rows is None else rows.size)


@pytest.mark.rfc("SRC-10")
def test_a_full_window_moves_on_by_increments():
    """The oldest increment goes as a whole."""
    made = window(txw_sqns=40, txw_adv_secs=SECOND, txw_secs=100 * SECOND)
    for at in range(1, 5):
        sent_at(made, 10, at * SECOND)
    assert (made.trail, made.lead) == (0, 39)
    sent_at(made, 1, 5 * SECOND)
    assert (made.trail, made.lead) == (10, 40)


def test_a_single_increment_that_fills_the_window_gives_up_a_part():
    made = window(txw_sqns=40, txw_adv_secs=100 * SECOND, txw_secs=100 * SECOND)
    sent_at(made, 40, SECOND)
    sent_at(made, 1, SECOND)
    assert (made.trail, made.lead) == (5, 40)


def test_recent_packets_with_window_long_increments_stay():
    """Octets bound the window and TXW_ADV_SECS is all that it lasts: the trail never jumps behind all of it."""
    made = window(txw_sqns=40, txw_adv_secs=SECOND, txw_secs=100 * SECOND)
    for at in range(400):
        sent_at(made, 1, SECOND + at * SECOND // 45)
        assert made.lead + 1 - made.trail >= min(at + 1, 30)


@pytest.mark.rfc("W-18")
def test_largest_window_is_half_the_space_less_one():
    assert window().capacity.sqns == (1 << 31) - 1
    assert window(txw_sqns=100).capacity.sqns == 100


# Advance with data


def full_window_with_data(**changes):
    settings = {"txw_adv_mode": "data", "txw_sqns": 40, "txw_adv_secs": SECOND, "txw_adv_ivl": 100 * MS}
    settings["txw_max_rte"] = 10 * STRIDE  # so that ten packets are a second, whenever they are sent
    made = window(**settings | changes)
    for at in range(1, 5):
        sent_at(made, 10, at * SECOND)
    made.append([bytes(76)])
    return made


@pytest.mark.rfc("SRC-12")
def test_data_moves_the_trail_only_when_the_window_is_full():
    """An idle window stays open."""
    made = full_window_with_data()
    made.advance(1000 * SECOND)
    assert made.trail == 0
    assert made.deadline_ns == NEVER
    assert send(made, now=1000 * SECOND) is not None
    assert made.trail == 10


@pytest.mark.rfc("SRC-12")
@pytest.mark.parametrize("ivl", [MS, 100 * SECOND])
def test_increments_of_data_driven_window_are_measured_in_octets(ivl):
    """TXW_ADV_SECS has passed when as much was sent as the rate lets out in it, however long that took."""
    made = window(txw_adv_mode="data", txw_sqns=40, txw_adv_secs=2 * SECOND, txw_max_rte=4 * STRIDE)
    trails = []
    for step in range(1, 201):
        sent_at(made, 1, step * ivl)
        trails.append(made.trail)
    # Eight packets are two seconds: they go together, when the window of forty is full.
    assert trails == [0] * 40 + [8 * (1 + step // 8) for step in range(160)]


@pytest.mark.rfc("SRC-15")
def test_an_idle_window_that_advances_with_data_closes_if_it_shall():
    made = full_window_with_data(txw_idle_ivl=3 * SECOND)
    assert made.deadline_ns == 7 * SECOND
    made.advance(7 * SECOND - 1)
    assert made.trail == 0
    made.advance(7 * SECOND)
    assert (made.trail, made.lead) == (40, 39)
    assert made.deadline_ns == NEVER


@pytest.mark.rfc("SRC-11", "SRC-12")
def test_a_nak_for_the_increment_holds_sending():
    """Until TXW_ADV_IVL has passed without another."""
    made = full_window_with_data()
    now = 10 * SECOND
    made.note_nak(9, now - 50 * MS)
    assert send(made, now=now) is None
    assert made.retry_at() == now + 50 * MS
    assert send(made, now=now + 50 * MS - 1) is None
    assert send(made, now=now + 50 * MS) is not None


@pytest.mark.rfc("SRC-11")
def test_a_nak_for_newer_packets_holds_nothing():
    made = full_window_with_data()
    made.note_nak(10, 10 * SECOND)
    assert send(made, now=10 * SECOND) is not None


@pytest.mark.rfc("SRC-12")
def test_a_nak_below_the_trail_holds_nothing():
    """What is gone cannot be waited for."""
    made = full_window_with_data()
    assert send(made, now=10 * SECOND) is not None
    sent_at(made, 9, 10 * SECOND)
    made.append([bytes(76)])
    made.note_nak(3, 11 * SECOND)
    assert send(made, now=11 * SECOND) is not None


@pytest.mark.rfc("SRC-12")
def test_naks_cannot_hold_sending_for_ever():
    """TXW_ADV_SECS in all, and a new hold begins afresh."""
    made = full_window_with_data()
    begun = now = 10 * SECOND
    while True:
        made.note_nak(made.trail, now)
        if send(made, now=now) is not None:
            break
        now += 10 * MS
    assert now == begun + SECOND
    sent_at(made, 9, now)
    made.append([bytes(76)])
    made.note_nak(made.trail, now)
    assert send(made, now=now) is None


# Application control


@pytest.mark.rfc("SRC-14")
def test_the_application_moves_the_trail():
    made = window(txw_adv_mode="application", txw_sqns=10)
    made.append([bytes(76)] * 15)
    send_all(made)
    assert (made.trail, made.lead) == (0, 9)
    assert made.retry_at() == NEVER
    made.advance(1000 * SECOND)
    assert made.trail == 0
    made.advance_to(4)
    send_all(made)
    assert (made.trail, made.lead) == (4, 13)
    made.advance_to(2)
    assert made.trail == 4
    made.advance_to(1000)
    assert (made.trail, made.lead) == (14, 13)
    send_all(made)
    assert (made.trail, made.lead) == (14, 14)


@pytest.mark.rfc("SRC-14")
def test_the_application_moves_the_trail_by_whole_messages():
    """RFC 16.4: in terms of APDUs. A sqn inside one keeps the whole of it."""
    made = window(txw_adv_mode="application", txw_sqns=100)
    made.append([bytes(76), bytes(1000), bytes(76)])
    send_all(made)
    last = made.lead
    assert last > 5
    for inside in range(1, last):
        made.advance_to(inside)
        assert made.trail == 1
    made.advance_to(last)
    assert made.trail == last


# Memory


def test_memory_of_a_window_is_that_of_its_packets_and_a_little():
    """Covers design section 3: octets live in recycled chunks."""
    made = TransmitWindow(TSI, DATA_PORT, parameters(txw_bytes=8 << 20, txw_secs=3600 * SECOND), 0)
    payload = bytes(1400)
    for number in range(600):
        made.append([payload] * MAX_TRAIN_PACKETS)
        send_all(made, now=number * MILLISECOND)
    assert made.held_octets <= (8 << 20) + 2 * (4 << 20)
    [arena] = [one for one in kept_by(made) if isinstance(one, Arena)]
    assert arena.octets <= (8 << 20) + 3 * (4 << 20)
    [store] = [one for one in kept_by(made) if isinstance(one, RunStore)]
    assert store.octets <= (8 << 20) + 64 * KIB


@pytest.mark.parametrize("size", [70, 1400, 8192, 300_000])
def test_memory_is_held_for_packets_and_little_else(size):
    """Chunks are filled to their ends, whatever the sizes of messages and calls."""
    made = window(max_tpdu=9000, txw_bytes=64 << 20)
    rows = np.zeros((max(1, 250_000 // size), size), np.uint8)
    while made.held_octets <= 24 << 20:
        made.append_rows(rows)
        send_all(made)
    octets = sum(part.octets for part in made.parts(0, 1 << 62))
    # All chunks are full but the last, which has but begun.
    assert octets >= 0.99 * ((24 << 20) - len(rows) * size)
