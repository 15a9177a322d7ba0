"""Verdicts from the numbers of hosts: the place of a fault, and its remedy."""

from __future__ import annotations

import attrs
import pytest

from deploy.doctor.findings import HostFinding, Level
from deploy.netcheck.probes import ProbeKind
from deploy.netcheck.reports import EchoReport, HostReport, SentReport
from deploy.netcheck.verdicts import summaries
from pgm.units import SECOND
from tests.unit.netcheck.hosts import IGMP, changed, deaf_to, heard, placed, sound, wrong


def only(reports: list[HostReport]) -> HostFinding:
    (finding,) = wrong(reports)
    return finding


def test_sound_network_has_no_finding() -> None:
    assert wrong(sound()) == []
    (told,) = summaries(sound())
    assert (told.hosts, told.pairs, told.silent, told.most_loss) == (3, 6, 0, 0.0)
    assert told.text == "lan: hosts 3, directions 6, no loss, round trip at most 1.00 ms"


def test_one_silent_direction_names_both_ends() -> None:
    reports = sound()
    reports[2] = deaf_to(reports[2], 0)
    found = only(reports)
    assert (found.check, found.subject, found.level) == ("multicast", "lan: h0 to h2", Level.FAULT)
    assert found.found == "0 of 200 probes arrive"
    assert "firewall of h2" in found.remedy
    assert "daddr 239.192.0.1 udp dport 9766" in found.remedy


def test_deaf_and_mute_hosts_are_one_finding_each() -> None:
    reports = sound(4)
    reports[3] = deaf_to(deaf_to(deaf_to(reports[3], 0), 1), 2)
    assert (only(reports).subject, only(reports).found) == ("lan: h3", "hears no other host")
    reports = [deaf_to(report, 1) for report in sound(4)]
    assert (only(reports).subject, only(reports).found) == ("lan: h1", "no other host hears it")
    reports = [attrs.evolve(report, heard=()) for report in sound(4)]
    assert (only(reports).subject, only(reports).found) == ("lan", "no host hears another")


def test_remedy_follows_the_likely_cause() -> None:
    reports = sound(2)
    reports[1] = placed(deaf_to(reports[1], 0), rp_filter=1, network="10.0.0.128/25", address="10.0.0.130")
    assert "net.ipv4.conf.eth0.rp_filter=2" in only(reports).remedy
    reports[1] = placed(reports[1], network="10.0.0.128/25", address="10.0.0.130")
    assert "multicast routing of 239.192.0.1" in only(reports).remedy
    reports = [attrs.evolve(report, echoes=()) for report in sound(2)]
    reports[1] = deaf_to(reports[1], 0)
    silent, unicast = wrong(reports)
    assert "unicast does not arrive either" in silent.remedy
    assert (unicast.check, unicast.subject) == ("unicast", "lan: h0 to h1")
    reports = sound(2)
    refused = SentReport("lan", "numbered", 0, 0, 0, 200, "Operation not permitted")
    reports = [attrs.evolve(reports[0], sent=(refused,)), deaf_to(reports[1], 0)]
    assert only(reports).found == "no probe leaves"
    assert "h0 cannot send (Operation not permitted)" in only(reports).remedy


@pytest.mark.parametrize(("count", "level"), [(199, Level.ADVICE), (197, Level.ADVICE), (190, Level.FAULT)])
def test_loss_is_judged_by_its_share(count: int, level: Level) -> None:
    reports = sound()
    reports[1] = changed(reports[1], 0, count=count)
    found = only(reports)
    assert (found.check, found.level) == ("loss", level)
    assert found.found.startswith(f"{200 - count} of 200 probes")


def test_order_duplicates_and_ttl_are_judged() -> None:
    reports = sound()
    reports[1] = changed(reports[1], 0, reordered=3, duplicates=7, least_ttl=1)
    assert [(one.check, one.level) for one in wrong(reports)] == [
        ("order", Level.ADVICE),
        ("duplicates", Level.ADVICE),
        ("TTL", Level.ADVICE),
    ]
    reports[1] = changed(sound()[1], 0, least_ttl=15)
    assert wrong(reports) == []


def test_path_mtu_names_the_largest_size_that_passes() -> None:
    reports = sound()
    reports[1] = changed(reports[1], 0, ProbeKind.SIZE, sizes={548: 5, 1252: 4})
    found = only(reports)
    assert (found.check, found.level, found.wanted) == ("path MTU", Level.FAULT, "1500, for packets of 1472 octets")
    assert "1280" in found.found
    assert 'max_tpdu = "1252B"' in found.remedy


def test_bandwidth_is_judged_by_the_burst() -> None:
    burst = SentReport("lan", "burst", 2000, 3_000_000, SECOND // 4, 0, "")
    reports = sound(2)
    reports[0] = attrs.evolve(reports[0], sent=(*reports[0].sent, burst))
    for count, level, drops, remedy in (
        (1995, None, 0, ""),
        (1900, Level.ADVICE, 0, "a lower rate of the streams than 100Mbit/s"),
        (1500, Level.ADVICE, 500, "net.core.rmem_max"),
        (1500, Level.FAULT, 0, "faster links"),
        (0, Level.FAULT, 0, "a lower rate"),
    ):
        row = heard(0, ProbeKind.BURST, count=count, octets=1500 * count, lasted_ns=SECOND // 4)
        reports[1] = attrs.evolve(sound(2)[1], heard=(*sound(2)[1].heard, *([row] if count else [])), drops=drops)
        found = wrong(reports)
        assert [one.level for one in found] == ([level] if level else []), count
        assert all(one.check == "bandwidth" and remedy in one.remedy for one in found)


def test_leaks_name_segment_sender_and_listener() -> None:
    reports = sound()
    elsewhere = attrs.evolve(sound()[0], number=3, name="far", places={}, heard=(), sent=(), echoes=())
    leak = heard(0, ProbeKind.NUMBERED, is_allowed=False, interface="eth9", count=4)
    found = only([*reports, attrs.evolve(elsewhere, heard=(leak,))])
    assert (found.check, found.subject) == ("containment", "lan: far by eth9")
    assert found.found == "group 239.192.0.1 from h0 is heard, without a router between"
    assert "VLANs" in found.remedy
    routed = attrs.evolve(leak, least_ttl=15)
    assert "multicast_hops = 1" in only([*reports, attrs.evolve(elsewhere, heard=(routed,))]).remedy


def test_clocks_are_compared_with_all_others() -> None:
    reports = sound()
    for number in (0, 1):
        rows = (EchoReport("lan", 2, 8, 1000, 3 * SECOND), EchoReport("lan", 1 - number, 8, 1000, 0))
        reports[number] = attrs.evolve(reports[number], echoes=rows)
    rows = (EchoReport("lan", 0, 8, 1000, -3 * SECOND), EchoReport("lan", 1, 8, 1000, -3 * SECOND))
    reports[2] = attrs.evolve(reports[2], echoes=rows)
    assert (only(reports).subject, only(reports).found) == ("h2", "3000.0 ms ahead of the others")


def test_igmp_versions_and_queriers_are_judged() -> None:
    reports = sound()
    reports[1] = placed(reports[1], igmp=attrs.evolve(IGMP, igmp=2, igmp_forced=2))
    found = only(reports)
    assert (found.check, found.subject, found.found) == ("IGMP versions", "lan: h1", "2 (forced)")
    assert found.wanted == "3, as most hosts have"
    unheard = attrs.evolve(IGMP, querier="", listening_s=300.0)
    reports = [placed(report, igmp=unheard) for report in sound()]
    assert (only(reports).check, only(reports).level) == ("IGMP querier", Level.ADVICE)
    gone = attrs.evolve(IGMP, querier_age_s=300.0, listening_s=900.0)
    assert only([placed(report, igmp=gone) for report in sound()]).found == "none heard in two query intervals"
    reports = [placed(report, igmp=attrs.evolve(unheard, listening_s=20.0)) for report in sound()]
    assert wrong(reports) == []
    reports = [placed(report, igmp=attrs.evolve(unheard, querier_problem="no raw socket")) for report in sound()]
    assert wrong(reports) == []
