"""Reports of hosts, as if they had measured a network with chosen faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from deploy.doctor.findings import HostFinding, Level
from deploy.netcheck.probes import ProbeKind, segment_id
from deploy.netcheck.reports import EchoReport, HeardReport, HostReport, IgmpReport, PlaceReport, SentReport
from deploy.netcheck.verdicts import findings_of
from pgm.units import MILLISECOND, SECOND

PORT = 9766
SENT = 200
IGMP = IgmpReport(3, 0, "10.0.0.254", 5.0, "", 10.0)


def place(number: int, **more: Any) -> PlaceReport:
    """Return the place of a host on segment `lan`. Host 0 sends."""
    values: dict[str, Any] = {
        "segment": "lan",
        "interface": "eth0",
        "address": f"10.0.0.{number + 1}",
        "network": "10.0.0.0/24",
        "group": "239.192.0.1",
        "version": 4,
        "packet": 1472,
        "rate": 12_500_000,
        "hops": 16,
        "nodes": 1,
        "sends": number == 0,
        "rp_filter": 0,
        "is_loopback": False,
        "igmp": IGMP,
    }
    return PlaceReport(**{**values, **more})


def heard(sender: int, kind: ProbeKind, **more: Any) -> HeardReport:
    """Return probes of a sender that all arrived."""
    values: dict[str, Any] = {
        "segment": segment_id("lan"),
        "sender": sender,
        "kind": kind.name.lower(),
        "count": SENT,
        "duplicates": 0,
        "reordered": 0,
        "sender_ttl": 16,
        "least_ttl": 16,
        "octets": 100 * SENT,
        "lasted_ns": SECOND,
        "group": "239.192.0.1",
        "interface": "eth0",
        "is_allowed": True,
        "sizes": {548: 5, 1472: 5} if kind is ProbeKind.SIZE else {},
    }
    return HeardReport(**{**values, **more})


def sound(hosts: int = 3) -> list[HostReport]:
    """Return the reports of hosts on one segment without a fault."""
    return [_sound(number, hosts) for number in range(hosts)]


def _sound(number: int, hosts: int) -> HostReport:
    others = [other for other in range(hosts) if other != number]
    kinds = (ProbeKind.NUMBERED, ProbeKind.SIZE)
    return HostReport(
        number,
        f"h{number}",
        {"lan": place(number)},
        silent=1,
        sent=tuple(SentReport("lan", kind.name.lower(), SENT, SENT * 100, SECOND, 0, "") for kind in kinds),
        heard=tuple(heard(other, kind) for other in others for kind in kinds),
        echoes=tuple(EchoReport("lan", other, 8, MILLISECOND, 0) for other in others),
    )


def changed(report: HostReport, sender: int, kind: ProbeKind = ProbeKind.NUMBERED, **more: Any) -> HostReport:
    """Return a report that has heard something else of a sender; nothing with a `count` of 0."""
    rows = [
        attrs.evolve(row, **more) if (row.sender, row.kind) == (sender, kind.name.lower()) else row
        for row in report.heard
    ]
    return attrs.evolve(report, heard=tuple(row for row in rows if row.count))


def deaf_to(report: HostReport, sender: int) -> HostReport:
    """Return a report that has heard nothing of a sender by multicast."""
    return changed(changed(report, sender, count=0), sender, ProbeKind.SIZE, count=0)


def placed(report: HostReport, **more: Any) -> HostReport:
    """Return a report with another place."""
    return attrs.evolve(report, places={"lan": place(report.number, **more)})


def wrong(reports: Sequence[HostReport], shares: float = 1.0) -> list[HostFinding]:
    """Return the findings that are not ok."""
    return list(_wrong(reports, shares))


def _wrong(reports: Sequence[HostReport], share: float) -> Iterator[HostFinding]:
    for finding in findings_of(reports, PORT, {"lan": share}):
        assert (finding.level is Level.OK) == (not finding.remedy)
        if finding.level is not Level.OK:
            yield finding
