"""The source core answers: NCFs at once, repairs within their share, and nothing for what is not its own."""

from __future__ import annotations

import attrs
import pytest

from pgm.units import NEVER, SECOND
from pgm.wire.formats import PacketType
from pgm.wire.options import HeldHistory
from tests.reference import DATA_PORT, OTHER_TSI
from tests.unit.core.makers import (
    BY_GROUP,
    BY_UNICAST,
    GROUP,
    MS,
    OWN,
    PEER,
    data_train,
    nak_packet,
    ncf_packet,
    parameters,
    payload_of,
    sent_control,
    sent_items,
    sent_sqns,
    spm_packet,
    train_of,
)
from tests.unit.core.source.sources import QUIET, START, all_effects, nak, octets_of, receive, run, source, with_data

T = PacketType


@pytest.mark.rfc("SRC-05", "SRC-40", "SRC-42")
def test_a_nak_is_confirmed_at_once_and_repaired_afterwards():
    """The NCF comes in the same call, also when the data is ready."""
    core = with_data()
    now = START + 2 * SECOND
    effects = receive(core, nak(5), now)
    assert [item.type for item in sent_items(effects)] == [T.NCF]
    [ncf] = sent_control(effects, T.NCF)
    assert (ncf.sqns, ncf.source_nla, ncf.group_nla, effects[0].to) == ((5,), OWN, GROUP, None)
    assert core.deadline_ns == now + MS
    log = run(core, now + SECOND)
    assert sent_sqns(all_effects(log), T.RDATA) == [5]
    assert (core.counters.nak_packets_in, core.counters.nak_sqns_in, core.counters.rdata_packets) == (1, 1, 1)


def test_repairs_leave_the_data_of_a_late_driver_their_share():
    """A driver that serves a deadline every 20 ms sends a packet each time; data and repairs wait all the time."""
    core = source(**QUIET, rdata_hold_ivl=MS, txw_max_rte=250_000, rdata_share=0.25)
    core.submit([bytes(1000)] * 60)
    run(core, START + SECOND)
    receive(core, nak(*range(60)), START + SECOND)
    core.submit([bytes(1000)] * 60)
    log = [(at, core.handle_deadline(at)) for at in range(START + SECOND, START + 2 * SECOND, 20 * MS)]
    repairs, data = (len(sent_sqns(all_effects(log), kind)) for kind in (T.RDATA, T.ODATA))
    assert repairs + data >= 50
    assert 0.2 < repairs / (repairs + data) < 0.3


@pytest.mark.rfc("SRC-43")
@pytest.mark.parametrize("hold", [MS, 3 * MS])
def test_repairs_due_in_a_moment_are_sent_with_data(hold):
    """A wake-up of their own would cost more than what the rest of the hold could still collect."""
    core = with_data(rdata_hold_ivl=hold)
    now = START + 2 * SECOND
    run(core, now)
    receive(core, nak(5), now)
    log = []
    for at in (now, now + hold - MS):
        core.submit([payload_of(0)])
        while core.deadline_ns <= at:
            log += [(at - now, item.type) for item in sent_items(core.handle_deadline(at)) if item.type != T.SPM]
    with_data_at = hold - MS
    first = [(0, T.ODATA)] if with_data_at else []
    assert log == [*first, (with_data_at, T.RDATA), *[(with_data_at, T.ODATA)] * (2 - len(first))]


@pytest.mark.rfc("SRC-44", "W-33")
def test_a_nak_list_gets_one_ncf_and_every_repair():
    core = with_data(100)
    now = START + 2 * SECOND
    sqns = (70, *range(1, 63))
    effects = receive(core, nak(*sqns), now)
    assert [ncf.sqns for ncf in sent_control(effects, T.NCF)] == [sqns]
    assert sent_sqns(all_effects(run(core, now + SECOND)), T.RDATA) == sorted(sqns)


@pytest.mark.rfc("W-31", "SRC-07")
def test_repairs_are_what_was_sent():
    core = with_data()
    receive(core, nak(5, 6), START + 2 * SECOND)
    [data] = [item for item in sent_items(all_effects(run(core, START + 3 * SECOND))) if item.type is T.RDATA]
    assert [row.tobytes() for row in data.run(5).payloads] == [payload_of(5), payload_of(6)]


@pytest.mark.rfc("SRC-42")
def test_nak_for_packets_outside_window_is_confirmed_only():
    """NCF yes, RDATA no."""
    core = with_data(txw_adv_mode="application")
    core.advance_trail(10)
    effects = receive(core, nak(8, 9, 10), START + 2 * SECOND)
    assert [ncf.sqns for ncf in sent_control(effects, T.NCF)] == [(8, 9, 10)]
    assert sent_sqns(all_effects(run(core, START + 3 * SECOND)), T.RDATA) == [10]


@pytest.mark.rfc("SRC-42", "SRC-02")
def test_a_repair_that_has_left_the_window_meanwhile_costs_nothing():
    core = with_data(txw_adv_mode="application")
    now = START + 2 * SECOND
    receive(core, nak(5), now)
    core.advance_trail(10)
    core.submit([payload_of(20)])
    log = run(core, now + SECOND)
    assert sent_sqns(all_effects(log), T.RDATA) == []
    assert sent_sqns(all_effects(log), T.ODATA) == [20]
    assert core.counters.rdata_packets == 0


def test_status_is_one_row():
    core = with_data(txw_adv_mode="application")
    core.advance_trail(10)
    receive(core, nak(12), START + 2 * SECOND)
    [row] = core.status(START + 2 * SECOND)
    assert (row.state, row.trail, row.lead, row.next_sqn, row.pending_sqns) == ("open", 10, 19, 20, 1)
    core.close()
    assert core.status(START + 2 * SECOND)[0].state == "closing"
    assert core.max_tpdu == parameters().max_tpdu


@pytest.mark.rfc("SRC-45")
@pytest.mark.parametrize(
    "packet",
    [
        nak(5, tsi=OTHER_TSI),
        nak(5, data_port=DATA_PORT + 1),
        nak_packet(5, source_nla="10.9.9.9", group_nla=GROUP),
        nak_packet(5, source_nla=OWN, group_nla="239.9.9.9"),
        nak(20),
        nak(20, 25),
        nak(5, parity=True),
        ncf_packet(5, source_nla=OWN, group_nla=GROUP),
        spm_packet(5, 0, 3),
    ],
    ids=["tsi", "data port", "source", "group", "never sent", "list never sent", "parity", "ncf", "spm"],
)
def test_foreign_naks_are_counted_and_ignored(packet):
    core = with_data()
    deadline = core.deadline_ns
    assert list(receive(core, packet, START + 2 * SECOND)) == []
    assert core.counters.foreign_packets + core.counters.nak_packets_foreign == 1
    assert core.deadline_ns == deadline


@pytest.mark.rfc("RCV-45", "NE-06")
def test_multicast_naks_are_for_other_receivers():
    """The extra copy of a NAK must not be confirmed."""
    core = with_data()
    assert list(receive(core, nak(5), START + 2 * SECOND, BY_GROUP)) == []


@pytest.mark.rfc("SRC-46")
def test_a_null_nak_is_only_counted():
    core = with_data()
    assert list(receive(core, nak(5, kind=T.NNAK), START + 2 * SECOND)) == []
    assert core.counters.nnak_packets_in == 1
    assert core.window.lead == 19
    assert run(core, START + 3 * SECOND) == []


def test_data_of_others_is_counted_by_packets():
    core = with_data()
    core.receive(data_train(range(5), tsi=OTHER_TSI), BY_GROUP, PEER, START + 2 * SECOND)
    assert core.counters.foreign_packets == 5


@pytest.mark.rfc("SEC-06")
def test_junk_is_a_counter():
    core = with_data()
    train = train_of(nak(5))
    damaged = bytearray(next(iter(train.packets())))
    damaged[20] ^= 1
    assert list(core.receive(type(train).of(bytes(damaged)), BY_UNICAST, PEER, START)) == []
    assert core.counters.rejects == {"checksum": 1}


@pytest.mark.rfc("SRC-02")
def test_ncfs_are_never_delayed_by_the_rate():
    core = with_data(100, txw_max_rte=10_000, txw_burst_ivl=5 * MS)
    now = core.deadline_ns if core.deadline_ns != NEVER else START
    core.submit([bytes(1000)] * 10)
    now = START + 100 * SECOND
    core.handle_deadline(now)
    assert core.deadline_ns > now  # the bucket is empty
    for sqn in range(50):
        assert len(sent_control(receive(core, nak(sqn), now), T.NCF)) == 1


@pytest.mark.rfc("SRC-05", "SRC-41")
def test_damped_ncfs_leave_before_spms_and_data():
    now = START + 2 * SECOND
    spm_at = {"ambient_spm_ivl": now + 4 * MS - START}
    core = with_data(ncf_ivl=5 * MS, rdata_hold_ivl=0, rdata_ignore_ivl=0, **spm_at)
    assert sent_control(receive(core, nak(5), now), T.NCF)
    run(core, now + MS)
    assert list(receive(core, nak(5), now + 2 * MS)) == []
    core.submit([payload_of(20)])
    effects = core.handle_deadline(now + 5 * MS)
    assert [item.type for item in sent_items(effects)][:2] == [T.NCF, T.SPM]
    assert sent_sqns([*effects, *all_effects(run(core, now + 6 * MS))], T.ODATA) == [20]


@pytest.mark.rfc("SRC-05")
def test_repairs_keep_to_their_share_and_data_goes_on():
    """Neither late joiners nor repairs stop the stream."""
    rate = 1_000_000
    core = with_data(
        600, txw_max_rte=rate, rdata_share=0.25, rdata_hold_ivl=0, rdata_ignore_ivl=0, ncf_ivl=0, txw_burst_ivl=10 * MS
    )
    begun = now = START + 10 * SECOND
    core.submit([bytes(976)] * 3000)
    repairs = data = 0
    while now < begun + SECOND:
        receive(core, nak(*range(60)), now)
        now = max(now, core.deadline_ns)
        for effect in core.handle_deadline(now):
            if effect.is_data:
                [item] = sent_items([effect])
                if item.type is T.RDATA:
                    repairs += octets_of(effect)
                else:
                    data += octets_of(effect)
    assert repairs <= 0.25 * rate + rate / 100 + 1500
    assert repairs > 0.2 * rate
    assert data > 0.7 * rate
    assert repairs + data <= rate + rate / 100 + 1500


@pytest.mark.rfc("SRC-41", "SEC-09")
def test_storms_are_braked():
    core = with_data(child_nak_rte=10, brake_burst_ivl=SECOND)
    now = START + 2 * SECOND
    answers = sum(len(receive(core, nak(sqn % 20), now)) for sqn in range(100))
    assert answers == 10
    assert core.counters.nak_packets_braked == 90


@pytest.mark.parametrize("rate", [2_500_000, 10_000_000, 40_000_000])
def test_history_takes_its_share_of_a_changed_rate(rate: int) -> None:
    """The share of repairs would allow five times as much."""
    core = source(**QUIET, txw_max_rte=10_000_000, rdata_share=0.5, join_share=0.1)
    core.submit([payload_of(sqn, 1000) for sqn in range(3000)])
    run(core, START + SECOND)
    now = START + 2 * SECOND
    core.set_rate(rate, now)
    for first in range(0, 3000, 50):
        request = nak(*range(first, first + 50))
        receive(core, attrs.evolve(request, options=(*request.options, HeldHistory(amount=0))), now)
    effects = all_effects(run(core, now + SECOND // 2))
    sent = sum(octets_of(effect) for effect in effects if sent_sqns([effect], T.RDATA))
    assert sent == pytest.approx(rate * 0.1 / 2, rel=0.25)
