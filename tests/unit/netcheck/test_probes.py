"""The header of probes, the schedule, and counts of what arrives."""

from __future__ import annotations

import os

import attrs
import pytest

from deploy.doctor.readings import igmp_versions_in
from deploy.netcheck.igmp import QuerierWatch
from deploy.netcheck.probes import (
    LEAST_OCTETS,
    MOST_HOSTS,
    MOST_NUMBER,
    Probe,
    ProbeKind,
    SegmentLoad,
    burst_of,
    departures,
    numbered_count,
    probe_of_untrusted,
    segment_id,
)
from deploy.netcheck.reports import opened_untrusted, with_result_untrusted
from deploy.netcheck.tally import Echo, Tally
from pgm.net.sockets.interfaces import Interface
from pgm.units import SECOND
from tests.unit.netcheck.hosts import IGMP, place

ID = b"\x01" * 8
LOAD = SegmentLoad(4, 1472, 12_500_000)


def probe(number: int = 0, kind: ProbeKind = ProbeKind.NUMBERED, sender: int = 1) -> Probe:
    return Probe(ID, kind, 16, sender, segment_id("lan"), number)


def test_probe_survives_the_wire_and_strangers_do_not() -> None:
    one = probe(7, ProbeKind.ASK)
    octets = one.octets(100)
    assert len(octets) == 100
    assert probe_of_untrusted(memoryview(octets), ID) == one
    assert probe_of_untrusted(memoryview(octets), b"\x02" * 8) is None
    assert probe_of_untrusted(memoryview(octets[: LEAST_OCTETS - 1]), ID) is None
    assert probe_of_untrusted(memoryview(b"x" + octets[1:]), ID) is None
    assert probe_of_untrusted(memoryview(probe(sender=MOST_HOSTS).octets()), ID) is None
    assert probe_of_untrusted(memoryview(probe(1 << 16).octets()), ID) is None
    for _ in range(200):  # behind the id, where any octets may stand
        found = probe_of_untrusted(memoryview(octets[:16] + os.urandom(100)), ID)
        assert found is None or (found.sender < MOST_HOSTS and found.number < MOST_NUMBER)


@pytest.mark.parametrize("rate", [10_000, 1_000_000, 1_250_000_000])
@pytest.mark.parametrize("hosts", [2, 100])
def test_departures_leave_room_for_the_streams(rate: int, hosts: int) -> None:
    load = SegmentLoad(4, 1472, rate)
    found = list(departures(load, hosts))
    numbered = [one for one in found if one.kind is ProbeKind.NUMBERED]
    assert len(numbered) == numbered_count(load, hosts) <= 200
    assert found[-1].at_ns <= 2 * SECOND
    sizes = [one.octets for one in found if one.kind is ProbeKind.SIZE]
    assert set(sizes) in ({1472}, set(load.sizes))
    if len(numbered) > 20:  # else the least number counts, for the slowest streams
        assert hosts * 128 * len(numbered) <= 0.05 * rate * 2.01
    if len(sizes) > 3:
        assert hosts * sum(sizes) <= 0.05 * rate * 2.01


def test_sizes_end_with_the_largest_packet_of_the_stream() -> None:
    assert LOAD.sizes == (548, 872, 972, 1172, 1252, 1372, 1392, 1422, 1448, 1464, 1472)
    assert SegmentLoad(6, 1452, 1).sizes == (528, 852, 952, 1152, 1232, 1352, 1372, 1402, 1428, 1444, 1452)


def test_bursts_keep_the_rate_and_the_bounds() -> None:
    burst = burst_of(LOAD, 1500, 1.0)
    assert (burst.octets, burst.rate, burst.count) == (1472, 12_500_000, 3_125_000 // 1472)
    assert burst_of(LOAD, 1500, 0.5).rate == 6_250_000
    assert burst_of(LOAD, 1200, 1.0).octets == 1172
    assert [burst.due(ns) for ns in (0, SECOND // 10, SECOND)] == [8, 857, burst.count]
    slow = burst_of(SegmentLoad(4, 1472, 1), 1500, 0.05)
    assert [slow.due(ns) for ns in (0, 1472 * SECOND, 2944 * SECOND)] == [1, 1, 2]
    assert (burst.interval, slow.interval) == (SECOND // 1000, 1472 * SECOND)
    fast = burst_of(SegmentLoad(4, 1472, 12_500_000_000), 1500, 1.0)
    assert fast.count * fast.octets <= 16 << 20


def test_tally_counts_losses_order_and_duplicates() -> None:
    tally = Tally()
    for number in (0, 2, 1, 2, 5):
        tally.add(probe(number), 100, 15, number)
    (row,) = tally.rows()
    assert (row["count"], row["duplicates"], row["reordered"], row["least_ttl"]) == (4, 1, 1, 15)
    assert (row["octets"], row["sizes"], row["lasted_ns"]) == (400, {"100": 4}, 5)


def test_tally_bounds_the_numbers_of_all_rows() -> None:
    """Each row of a forged sender would else remember 65,536 numbers."""
    tally = Tally()
    for sender in range(600):
        tally.add(probe(MOST_NUMBER - 1, sender=sender), 100, 15, 1)
    assert len(tally.rows()) == (4 << 20) // (MOST_NUMBER // 8) == 512
    for number in (0, 9, 9):
        tally.add(probe(number, sender=7), 100, 15, 2)
    assert [(row["count"], row["duplicates"]) for row in tally.rows() if row["sender"] == 7] == [(3, 1)]


def test_echo_takes_the_shortest_round_trip() -> None:
    echo = Echo()
    late = Probe(ID, ProbeKind.ANSWER, 64, 1, segment_id("lan"), 0, 1000, 9000, 9100)
    echo.add(late, 3100)
    assert (echo.rtt_ns, echo.ahead_ns) == (2000, 7000)
    echo.add(Probe(ID, ProbeKind.ANSWER, 64, 1, segment_id("lan"), 1, 1000, 8000, 8000), 1200)
    assert (echo.count, echo.rtt_ns, echo.ahead_ns) == (2, 200, 6900)


def test_igmp_versions_come_from_the_kernel_table() -> None:
    text = (
        "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n"
        "1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n"
        "2\teth0      :     2      V2\n\t\t\t\t4D00C0EF     1 0:00000000\t\t1\n"
        "3\tenp0s31f6np0: 1      V1\n9\tbroken\n"
    )
    assert igmp_versions_in(text) == {"lo": 3, "eth0": 2, "enp0s31f6np0": 1}


def test_querier_is_known_by_its_interface() -> None:
    watch = QuerierWatch()
    control = [(0, 8, (7).to_bytes(4, "little") + bytes(8))]
    header = bytes([0x46]) + bytes(23)  # with router alert
    watch.on_packet_untrusted(header + b"\x16" + bytes(7), control, "10.0.0.9")  # a report
    watch.on_packet_untrusted(b"", control, "10.0.0.9")
    assert watch.facts_of(Interface("eth0", 7, "10.0.0.1"))["querier"] == ""
    watch.on_packet_untrusted(header + b"\x11" + bytes(7), control, "10.0.0.9")
    assert watch.facts_of(Interface("eth0", 7, "10.0.0.1"))["querier"] == "10.0.0.9"
    assert watch.facts_of(Interface("eth1", 8, "10.0.1.1"))["querier"] == ""


def test_rows_of_a_wrong_agent_are_dropped() -> None:
    rows = [None, 3, {}, {"segment": "lan"}, {"segment": 1, "message": "x", "remedy": "y"}]
    good = {"segment": "lan", "message": "m" * 1000, "remedy": "r"}
    report = opened_untrusted(0, "h", {"places": rows, "problems": [*rows, good], "checks": 7, "silent": "many"})
    assert (report.places, report.silent, report.checks) == ({}, 0, ())
    (problem,) = report.problems
    assert (problem.segment, len(problem.message)) == ("lan", 300)
    row = {**attrs.asdict(place(0)), **attrs.asdict(IGMP)}
    for wrong, kept in (
        ({}, 1),
        ({"network": "x"}, 0),
        ({"address": ""}, 0),
        ({"rate": 1 << 70}, 0),
        ({"sends": 1}, 0),
    ):
        assert len(opened_untrusted(0, "h", {"places": [{**row, **wrong}]}).places) == kept
    told = with_result_untrusted(report, {"sent": rows, "heard": rows, "echoes": "x", "drops": {"a": "b"}})
    assert (told.sent, told.heard, told.echoes, told.drops) == ((), (), (), 0)
