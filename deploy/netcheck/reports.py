"""Reports of the hosts of a netcheck, made of what their agents answer. An agent may be wrong: each row is checked.

`AgentClient` has removed control characters from all texts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs

from deploy.netcheck.probes import ProbeKind, SegmentId, segment_id

T = TypeVar("T", bound=attrs.AttrsInstance)
_KINDS: Mapping[str, type | tuple[type, ...]] = {"int": int, "str": str, "bool": bool, "float": (int, float)}
_MOST_TEXT = 300  # characters of one value
_MOST_ROWS = 65_536  # of one list
_MOST = 1 << 62  # of a number


@attrs.frozen
class IgmpReport:
    """IGMP of an interface. `querier` is the address that was heard while the agent listened, or empty."""

    igmp: int  # version; 0: not told
    igmp_forced: int
    querier: str
    querier_age_s: float  # since its last query
    querier_problem: str
    listening_s: float


@attrs.frozen
class PlaceReport:
    """Place of a host on a segment."""

    segment: str
    interface: str
    address: str
    network: str
    group: str  # empty on a unicast leg
    version: int
    packet: int  # octets
    rate: int  # octets a second
    hops: int
    nodes: int
    sends: bool
    rp_filter: int
    is_loopback: bool
    igmp: IgmpReport


@attrs.frozen
class SentReport:
    """Probes of one kind that a host has sent on a segment."""

    segment: str
    kind: str
    count: int
    octets: int
    lasted_ns: int
    refused: int
    error: str


@attrs.frozen
class HeardReport:
    """Probes of one kind from one sender, heard by one socket of a host. `segment` is the number in the probes."""

    segment: int
    sender: int
    kind: str
    count: int
    duplicates: int
    reordered: int
    sender_ttl: int
    least_ttl: int
    octets: int
    lasted_ns: int
    group: str
    interface: str
    is_allowed: bool
    sizes: Mapping[int, int] = attrs.field(factory=dict)  # octets -> probes


@attrs.frozen
class EchoReport:
    """Answers of another host by unicast. Times are ns."""

    segment: str
    host: int
    count: int
    rtt_ns: int
    ahead_ns: int


@attrs.frozen
class ProblemReport:
    """A socket that could not be opened."""

    segment: str
    message: str
    remedy: str


@attrs.frozen
class HostReport:
    """All that one host tells."""

    number: int
    name: str
    places: Mapping[str, PlaceReport]
    silent: int  # groups that it checked for leaks
    problems: tuple[ProblemReport, ...] = ()
    checks: tuple[Any, ...] = ()  # rows of `pgm doctor`
    sent: tuple[SentReport, ...] = ()
    heard: tuple[HeardReport, ...] = ()
    echoes: tuple[EchoReport, ...] = ()
    drops: int = 0  # probes that the kernel dropped, because a socket was full

    def sent_on(self, segment: str, kind: ProbeKind) -> SentReport | None:
        """Return what the host has sent of a kind on a segment."""
        return next((one for one in self.sent if one.segment == segment and one.kind == kind.name.lower()), None)

    def heard_of(self, segment: str, sender: int, kind: ProbeKind) -> HeardReport | None:
        """Return what the host has heard of a sender on a segment, by a socket that may hear it."""
        number: SegmentId = segment_id(segment)
        found = (one for one in self.heard if one.segment == number and one.sender == sender and one.is_allowed)
        return max((one for one in found if one.kind == kind.name.lower()), key=lambda one: one.count, default=None)

    def echo_of(self, segment: str, host: int) -> EchoReport | None:
        """Return the answers of a host on a segment."""
        return next((one for one in self.echoes if (one.segment, one.host) == (segment, host)), None)


def opened_untrusted(number: int, name: str, value: Mapping[str, Any]) -> HostReport:
    """Return the report of a host that has opened its sockets."""
    places: dict[str, PlaceReport] = {}
    for row in _list(value.get("places")):
        igmp = _row_untrusted(IgmpReport, row)
        place = None if igmp is None else _row_untrusted(PlaceReport, row, igmp=igmp)
        if place is not None and _has_addresses(place):
            places[place.segment] = place
    silent = value.get("silent")
    problems = _rows_untrusted(ProblemReport, value.get("problems"))
    checks = tuple(_list(value.get("checks")))
    return HostReport(number, name, places, silent if isinstance(silent, int) else 0, problems, checks)


def _has_addresses(place: PlaceReport) -> bool:
    try:
        ipaddress.ip_address(place.address)
        return not place.network or bool(ipaddress.ip_network(place.network))
    except ValueError:
        return False


def with_result_untrusted(report: HostReport, value: Mapping[str, Any]) -> HostReport:
    """Return a report with what the host has sent and heard."""
    heard = []
    for row in _list(value.get("heard")):
        one = _row_untrusted(HeardReport, row, sizes=_sizes_untrusted(row))
        if one is not None:
            heard.append(one)
    drops = value.get("drops")
    numbers = drops.values() if isinstance(drops, dict) else ()
    return attrs.evolve(
        report,
        sent=_rows_untrusted(SentReport, value.get("sent")),
        heard=tuple(heard),
        echoes=_rows_untrusted(EchoReport, value.get("echoes")),
        drops=sum(number for number in numbers if isinstance(number, int)),
    )


def _rows_untrusted(kind: type[T], value: Any) -> tuple[T, ...]:
    rows: Iterable[T | None] = (_row_untrusted(kind, row) for row in _list(value))
    return tuple(row for row in rows if row is not None)


def _row_untrusted(kind: type[T], row: Any, **known: Any) -> T | None:
    """Return a row of a table, or None for a row without the form of one."""
    if not isinstance(row, dict):
        return None
    values = dict(known)
    for field in attrs.fields(kind):
        if field.name in known:
            continue
        value = row.get(field.name)
        if not isinstance(value, _KINDS[str(field.type)]) or (isinstance(value, int | float) and abs(value) > _MOST):
            return None
        values[field.name] = value[:_MOST_TEXT] if isinstance(value, str) else value
    return kind(**values)


def _sizes_untrusted(row: Any) -> dict[int, int]:
    sizes = row.get("sizes") if isinstance(row, dict) else None
    pairs = sizes.items() if isinstance(sizes, dict) else ()
    return {int(size): count for size, count in pairs if str(size).isdecimal() and isinstance(count, int)}


def _list(value: Any) -> list[Any]:
    return value[:_MOST_ROWS] if isinstance(value, list) else []
