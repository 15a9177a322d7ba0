"""The source core: data in order within the rate, SPMs, and a graceful end."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.effects import Send
from pgm.errors import PayloadTooLarge, SourceClosed
from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import Epoch, Fin, Join, Rst, find
from pgm.wire.sequence_numbers import unwrap, wrap
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import (
    BY_GROUP,
    MS,
    OWN,
    SEGMENT,
    parameters,
    payload_of,
    sent_control,
    sent_items,
    sent_sqns,
    spmr_packet,
)
from tests.unit.core.source.sources import (
    QUIET,
    START,
    all_effects,
    drain,
    nak,
    octets_of,
    receive,
    run,
    source,
    with_data,
)

T = PacketType


# Data


@pytest.mark.rfc("SRC-01", "SRC-02", "SRC-03", "SRC-05", "W-17")
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    first=st.sampled_from([0, 1000, (1 << 32) - 10, (3 << 32) - 2]),
    late=st.sampled_from([0, MS, 7 * MS]),
    seed=st.integers(0, 1 << 30),
)
def test_data_leaves_in_order_and_within_the_rate(sizes, first, late, seed):
    """With SPMs in between, and served late."""
    rng = random.Random(seed)
    rate, burst = 200_000, 20 * MS
    core = source(first, txw_max_rte=rate, txw_burst_ivl=burst, ambient_spm_ivl=30 * MS, ihb_min=10 * MS)
    messages = [rng.randbytes(size) for size in sizes]
    log, now = [], START
    for message in messages:
        core.submit([message])
        for _ in range(rng.randint(0, 3)):
            now = max(now, core.deadline_ns) + rng.randint(0, late)
            log.append((now, core.handle_deadline(now)))
    while core.window.has_unsent:
        now = max(now, core.deadline_ns) + rng.randint(0, late)
        log.append((now, core.handle_deadline(now)))
    at = first
    for item in sent_items(all_effects(log)):
        if item.type is T.ODATA:
            assert item.wire_sqn == wrap(at)
            at += item.count
    assert at == core.window.end == core.window.lead + 1
    sent = [(then, octets_of(effect)) for then, effects in log for effect in effects]
    spm_octets = 36 + 4 + 8 + 16
    for index, (begun, _) in enumerate(sent):
        total = 0
        for then, octets in sent[index:]:
            total += octets
            # An SPM does not wait for the bucket; what it overdraws is paid by the data after it.
            spms = 2 + (then - begun) // (10 * MS)
            assert total <= rate * (burst + then - begun) // SECOND + spm_octets * spms
    assert all(sum(effect.is_data for effect in effects) <= 1 for _, effects in log)


def test_data_goes_to_the_group_as_full_trains():
    """Covers design section 3: data is pulled."""
    core = source(txw_max_rte=1_000_000_000, **QUIET)
    core.submit([payload_of(sqn) for sqn in range(700)])
    trains = [effect for _, effects in drain(core) for effect in effects if effect.is_data]
    assert [octets_of(train) // 36 for train in trains] == [512, 188], "whole trains, and with the last what is left"
    assert {(train.segment, train.to, train.stride) for train in trains} == {(SEGMENT, None, 36)}
    assert (core.counters.odata_packets, core.counters.odata_octets) == (700, 700 * 36)


def test_rows_are_messages_too():
    core = source(**QUIET)
    core.submit_rows(np.frombuffer(b"".join(payload_of(sqn) for sqn in range(5)), np.uint8).reshape(5, 12))
    assert sent_sqns(all_effects(drain(core)), T.ODATA) == list(range(5))


@pytest.mark.rfc("SRC-03")
def test_a_slow_line_sends_packet_by_packet():
    """64 KB at 1 Mbit/s would be half a second of line."""
    core = source(txw_max_rte=125_000, txw_burst_ivl=5 * MS, **QUIET)
    core.submit([bytes(1448)] * 10)
    log = [(now, effect) for now, effects in drain(core) for effect in effects if effect.is_data]
    assert [octets_of(effect) for _, effect in log] == [1472] * 10
    assert log[-1][0] - log[0][0] >= 8 * 1472 * SECOND // 125_000


def test_message_that_does_not_fit_is_refused():
    core = source(max_apdu=1000)
    with pytest.raises(PayloadTooLarge):
        core.submit([bytes(1001)])
    assert core.deadline_ns == START
    assert core.room_octets == parameters().txw_unsent_bytes


def test_room_shrinks_with_what_is_not_sent_yet():
    core = source(**QUIET)
    room = core.room_octets
    core.submit([bytes(100)] * 10)
    assert core.room_octets == room - 1240
    drain(core)
    assert core.room_octets == room


@pytest.mark.parametrize(("rate", "room"), [(12_500, 12_500), (25_000_000, 4 << 20)])
def test_room_is_a_second_of_the_rate_at_most(rate: int, room: int):
    core = source(txw_max_rte=rate, **QUIET)
    assert core.room_octets == room
    core.set_rate(rate // 2, START)
    assert core.room_octets == min(room, rate // 2)


def test_room_at_another_time_of_the_rate():
    assert source(txw_max_rte=12_500, txw_unsent_secs=4 * SECOND, **QUIET).room_octets == 50_000


# SPMs


@pytest.mark.rfc("SRC-06", "SRC-20", "SRC-21", "W-19")
def test_first_spm_goes_at_once_and_describes_the_empty_window():
    """SPM_SQN 0, trail 0, lead -1, the own address."""
    core = source()
    assert core.deadline_ns == START
    effects = core.handle_deadline(START)
    [spm] = sent_control(effects, T.SPM)
    assert (spm.spm_sqn, spm.trail, spm.lead, spm.path_nla) == (0, 0, 0xFFFFFFFF, OWN)
    assert (spm.tsi, spm.data_port) == (TSI, DATA_PORT)
    assert find(spm.options, Join) == Join(0)
    assert find(spm.options, Epoch) == Epoch(0, 1_700_000_000, 7)
    assert (effects[0].to, effects[0].hops, effects[0].is_data) == (None, None, False)


@pytest.mark.rfc("SRC-06", "SRC-20")
def test_spms_count_up_and_tell_what_was_sent():
    """The lead is the last sent, not the last accepted."""
    core = source(ambient_spm_ivl=10 * MS, txw_max_rte=100_000)
    core.submit([bytes(976)] * 20)
    lead, spm_sqn = -1, 0
    for _, effects in run(core, START + 200 * MS):
        for item in sent_items(effects):
            if item.type is T.SPM:
                assert item.spm_sqn == spm_sqn
                assert item.lead == wrap(lead)
                spm_sqn += 1
            else:
                lead += item.count
    assert spm_sqn > 10
    assert lead == 19


@pytest.mark.rfc("SRC-05")
def test_spms_come_before_data():
    core = source()
    core.submit([payload_of(0)])
    items = sent_items(all_effects(run(core, START + MS)))
    assert [item.type for item in items] == [T.SPM, T.ODATA]


def test_private_options_can_be_left_out():
    core = source(private_options=False)
    [spm] = sent_control(core.handle_deadline(START), T.SPM)
    assert find(spm.options, Epoch) is None


@pytest.mark.parametrize("first", [0, (1 << 32) - 3, 5 << 32])
def test_epoch_names_the_upper_half_of_the_next_sqn(first):
    """Covers design section 3."""
    core = source(first, ambient_spm_ivl=10 * MS)
    core.submit([payload_of(0)] * 10)
    for _, effects in run(core, START + 100 * MS):
        for spm in sent_control(effects, T.SPM):
            epoch = find(spm.options, Epoch)
            following = (epoch.next_upper << 32) + wrap(spm.lead + 1)
            assert following in (first, first + 10)


@pytest.mark.rfc("SRC-31", "RCV-03")
def test_late_joiners_are_told_where_they_come_in():
    """Within JOIN_IVL of the start the first sqn, later the next one."""
    core = source(join_ivl=SECOND, ambient_spm_ivl=250 * MS, ihb_min=3600 * SECOND, ihb_max=3600 * SECOND)
    core.submit([payload_of(sqn) for sqn in range(5)])
    joins = {}
    for now, effects in run(core, START + 2 * SECOND):
        for spm in sent_control(effects, T.SPM):
            joins[(now - START) // MS] = find(spm.options, Join).min_sqn
    assert joins[250] == joins[750] == 0
    assert joins[1000] == joins[2000] == 5


@pytest.mark.rfc("SRC-22", "SRC-23")
def test_heartbeats_follow_odata_and_rdata():
    core = source(ambient_spm_ivl=3600 * SECOND, ihb_min=100 * MS, ihb_max=800 * MS, rdata_hold_ivl=0)
    core.handle_deadline(START)
    core.submit([payload_of(0)])
    sent_at = core.deadline_ns
    core.handle_deadline(sent_at)
    spms = [(now - sent_at) // MS for now, effects in run(core, sent_at + 2400 * MS) if sent_control(effects, T.SPM)]
    assert spms == [100, 300, 700, 1500, 2300]
    asked_at = sent_at + 2500 * MS
    receive(core, nak(0), asked_at)
    spms = [(now - asked_at) // MS for now, effects in run(core, asked_at + 800 * MS) if sent_control(effects, T.SPM)]
    assert spms == [100, 300, 700]


@pytest.mark.rfc("SRC-26")
def test_spmrs_are_answered_at_once_and_not_too_often():
    core = source(**QUIET | {"ihb_min": 50 * MS})
    core.handle_deadline(START)
    now, answered = START + SECOND, []
    for step in range(200):
        if sent_control(receive(core, spmr_packet(), now + step * MS, BY_GROUP), T.SPM):
            answered.append(step)
    assert answered == [0, 50, 100, 150]
    assert (core.counters.spmr_packets_in, core.counters.spmr_packets_braked) == (200, 196)


# A full window


@pytest.mark.rfc("SRC-11", "SRC-12")
def test_a_window_held_by_naks_sends_nothing_until_it_may():
    """And the deadline says when to look again."""
    core = source(
        **QUIET, txw_adv_mode="data", txw_sqns=20, txw_adv_ivl=100 * MS, txw_adv_secs=SECOND, rdata_hold_ivl=0
    )
    core.submit([payload_of(sqn) for sqn in range(20)])
    run(core, START + SECOND)
    now = START + 2 * SECOND
    receive(core, nak(0), now)
    core.submit([payload_of(20)])
    log = run(core, now + SECOND)
    sent = {sqn: then for then, effects in log for sqn in sent_sqns(effects, T.ODATA)}
    assert sent == {20: now + 100 * MS}
    assert len(log) < 10


@pytest.mark.rfc("SRC-14")
def test_application_control_lets_the_window_go_on():
    core = source(**QUIET, txw_adv_mode="application", txw_sqns=10)
    core.submit([payload_of(sqn) for sqn in range(15)])
    log = run(core, START + SECOND)
    assert sent_sqns(all_effects(log), T.ODATA) == list(range(10))
    assert core.deadline_ns > START + 1000 * SECOND
    core.advance_trail(5)
    assert core.deadline_ns <= START + SECOND
    assert sent_sqns(all_effects(run(core, START + 2 * SECOND)), T.ODATA) == list(range(10, 15))


@pytest.mark.rfc("SRC-15", "W-19")
def test_the_application_may_close_the_window():
    """An SPM says so at once, and what is asked for afterwards is confirmed and not repaired."""
    core = with_data(txw_adv_mode="application")
    now = START + 2 * SECOND
    [spm] = sent_control(core.close_window(now), T.SPM)
    assert (spm.trail, spm.lead) == (20, 19)
    assert [ncf.sqns for ncf in sent_control(receive(core, nak(19), now), T.NCF)] == [(19,)]
    assert sent_sqns(all_effects(run(core, now + SECOND)), T.RDATA) == []
    core.submit([payload_of(20)])
    assert sent_sqns(all_effects(run(core, now + 2 * SECOND)), T.ODATA) == [20]


@pytest.mark.rfc("SRC-12", "SRC-31")
def test_join_interval_with_data_driven_window_runs_by_data():
    """Whoever joins before JOIN_IVL's worth of data was sent is not late, hours later."""
    settings = {"txw_adv_mode": "data", "txw_max_rte": 3600, "join_ivl": SECOND, "ihb_min": 60 * SECOND}
    core = source(**settings, ihb_max=60 * SECOND)
    joins = []
    for hour in range(1, 301):
        core.submit([payload_of(0)])
        for spm in sent_control(all_effects(run(core, START + hour * 3600 * SECOND)), T.SPM):
            joins.append((core.window.lead + 1, find(spm.options, Join).min_sqn))
    assert {sent for sent, join in joins if join == 0} == set(range(1, 100))
    assert all(join == sent for sent, join in joins if join)


# The end


@pytest.mark.rfc("SRC-27", "SRC-28")
def test_closing_sends_the_rest_and_then_says_fin_at_once():
    """FIN only behind the last data, SPM_LEAD its sqn."""
    core = source(txw_max_rte=100_000, ambient_spm_ivl=20 * MS, ihb_min=10 * MS, fin_quiet_ivl=500 * MS)
    core.submit([bytes(976)] * 30)
    core.handle_deadline(START)
    core.close()
    with pytest.raises(SourceClosed) as caught:
        core.submit([b"more"])
    assert caught.value.remedy
    with pytest.raises(SourceClosed):
        core.submit_rows(np.zeros((1, 4), np.uint8))
    lead, fins = core.window.lead, []
    last_data_at = START
    for now, effects in run(core, START + 600 * MS):
        for item in sent_items(effects):
            if item.type is T.ODATA:
                lead, last_data_at = lead + item.count, now
            elif item.type is T.SPM:
                has_fin = find(item.options, Fin) is not None
                assert has_fin == (lead == 29)
                if has_fin:
                    assert unwrap(item.lead, lead) == lead == 29
                    fins.append(now)
    assert lead == 29
    assert fins[0] == last_data_at
    assert len(fins) > 5
    assert not core.is_finished(fins[0] + 500 * MS - 1)
    assert core.is_finished(fins[0] + 500 * MS)


def test_a_source_that_may_leave_sleeps_if_it_is_left_standing():
    """Covers the contract of `pgm.core.interface`: a deadline in the past that leads nowhere is a busy loop."""
    core = with_data(fin_quiet_ivl=2 * SECOND)
    core.close()
    closed_at = START + 3 * SECOND
    core.handle_deadline(closed_at)
    log = run(core, closed_at + 20 * SECOND)
    assert closed_at + 2 * SECOND in [now for now, _ in log]
    assert len(log) < 10
    receive(core, nak(19), closed_at + 20 * SECOND)
    assert core.deadline_ns <= closed_at + 22 * SECOND


@pytest.mark.rfc("SRC-27")
def test_a_closing_source_serves_naks_and_leaves_when_nobody_asks():
    core = with_data(fin_quiet_ivl=2 * SECOND, txw_secs=10 * SECOND)
    now = START + 3 * SECOND
    core.close()
    assert core.deadline_ns <= now
    core.handle_deadline(now)
    asked_at = now + 1500 * MS
    assert sent_control(receive(core, nak(19), asked_at), T.NCF)
    assert sent_sqns(all_effects(run(core, asked_at + SECOND)), T.RDATA) == [19]
    assert not core.is_finished(now + 2 * SECOND)
    assert not core.is_finished(asked_at + 2 * SECOND - 1)
    assert core.is_finished(asked_at + 2 * SECOND)


@pytest.mark.rfc("SRC-27")
def test_a_closing_source_leaves_after_txw_secs_at_the_latest():
    core = with_data(fin_quiet_ivl=2 * SECOND, txw_secs=5 * SECOND)
    closed_at = now = START + 3 * SECOND
    core.close()
    core.handle_deadline(now)
    while not core.is_finished(now):
        receive(core, nak(19), now)
        now += 100 * MS
    assert now == closed_at + 5 * SECOND


def test_an_open_source_never_finishes():
    assert not with_data().is_finished(NEVER - 1)


@pytest.mark.rfc("SRC-30")
def test_abort_says_reset():
    """In SPMs, the first at once."""
    core = with_data()
    spms = sent_control(core.abort(START + 2 * SECOND), T.SPM)
    assert len(spms) == 3
    assert [spm.spm_sqn for spm in spms] == [spms[0].spm_sqn + step for step in range(3)]
    assert all(find(spm.options, Rst) == Rst() and find(spm.options, Fin) is None for spm in spms)
    with pytest.raises(SourceClosed):
        core.submit([b"more"])


# Time


def test_calling_early_does_nothing():
    """Covers the contract of `pgm.core.interface`."""
    core = source(ambient_spm_ivl=SECOND, ihb_min=400 * MS)
    core.submit([bytes(1000)] * 100)
    now = START
    for _ in range(2000):
        if core.deadline_ns > now:
            deadline = core.deadline_ns
            assert core.handle_deadline(now) == []
            assert core.deadline_ns == deadline
            now += 97_003
        else:
            core.handle_deadline(now)


def test_an_idle_source_sleeps():
    """Nothing but SPMs and the closing of the window wakes it."""
    core = with_data(ambient_spm_ivl=SECOND, ihb_min=SECOND, ihb_max=SECOND)
    log = run(core, START + 100 * SECOND)
    assert len(log) < 200


@pytest.mark.rfc("W-17", "W-18", "SRC-20")
@pytest.mark.parametrize("first", [(1 << 32) - 25, (1 << 32) - 1, 1 << 32, (7 << 32) - 30])
def test_a_session_across_the_wrap_is_like_one_at_1000(first):
    """Send, lose, NAK lists, repair, trail, SPMs."""

    def session(start):
        core = source(start, txw_secs=2 * SECOND, txw_adv_secs=200 * MS, ambient_spm_ivl=150 * MS, rdata_hold_ivl=MS)
        rng, log, now, lead = random.Random(3), [], START, -1
        for step in range(400):
            now += 7 * MS
            if step < 300 and step % 5 == 0:
                core.submit([payload_of(step)])
                lead += 1
            if lead > 5 and step % 11 == 0:
                wanted = sorted({rng.randint(max(0, lead - 20), lead - 1) for _ in range(5)})
                log += [(now, effect) for effect in receive(core, nak(*[start + sqn for sqn in wanted]), now)]
            while core.deadline_ns <= now:
                log += [(now, effect) for effect in core.handle_deadline(now)]
        return [(then, *told(effect, start)) for then, effect in log], attrs.asdict(core.counters)

    def told(effect, start):
        assert isinstance(effect, Send)
        for item in sent_items([effect]):
            if item.type is T.SPM:
                edges = [unwrap(edge, start) - start for edge in (item.trail, item.lead)]
                yield (item.type, item.spm_sqn, *edges)
            elif item.type is T.NCF:
                yield (item.type, *[unwrap(sqn, start) - start for sqn in item.sqns])
            else:
                sqn, trail = (unwrap(edge, start) - start for edge in (item.wire_sqn, item.wire_trail))
                yield (item.type, sqn, item.count, trail, item.run(0).payloads.tobytes())

    assert session(first) == session(1000)
