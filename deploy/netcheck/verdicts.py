"""Verdicts of a netcheck, from what the hosts have measured. No socket and no clock."""

from __future__ import annotations

import ipaddress
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from deploy.doctor.findings import HostFinding, Level, advice, fault, judged, ok
from deploy.doctor.network import OVERHEAD
from deploy.doctor.readings import interface_setting
from deploy.netcheck.probes import ProbeKind, SegmentId, segment_ids
from deploy.netcheck.reports import HeardReport, HostReport, PlaceReport
from pgm.units import MILLISECOND, SECOND, format_rate

_STRICT = 1  # rp_filter
_MUCH_LOSS = 0.02  # of the numbered probes: repairs then take a part of the rate that users notice
_MOST_LOSS_OF_SIZES = 0.1  # else the few probes of each size tell nothing
_LEAST_MTU = 576  # that every host of IPv4 takes (RFC 791)
_BURST_LOSS = 0.005  # one in 200 packets; less is left to repairs
_MUCH_BURST_LOSS = 0.1
_SLOW = 0.9  # of the burst's rate
_MOST_AHEAD_NS = 100 * MILLISECOND  # events of two hosts are then hard to compare
_QUERY_S = 260.0  # two general queries and their answers: Other Querier Present Interval (RFC 3376, 8.5)
_LEAST_IGMP = 2  # IGMPv1 has no leave


@attrs.frozen
class Pair:
    """One direction between two hosts on a segment."""

    segment: str
    sender: HostReport
    receiver: HostReport
    count: int  # numbered probes that were sent
    heard: HeardReport | None

    @property
    def subject(self) -> str:
        """Return the direction in words."""
        return f"{self.segment}: {self.sender.name} to {self.receiver.name}"

    @property
    def source(self) -> PlaceReport:
        """Return the place of the sender."""
        return self.sender.places[self.segment]

    @property
    def target(self) -> PlaceReport:
        """Return the place of the receiver."""
        return self.receiver.places[self.segment]

    @property
    def arrived(self) -> int:
        """Return the number of numbered probes that arrived."""
        return 0 if self.heard is None else self.heard.count

    @property
    def loss(self) -> float:
        """Return the share of the numbered probes that did not arrive."""
        return 1 - self.arrived / self.count if self.count else 1.0

    @property
    def is_routed(self) -> bool:
        """Return whether the sender is in another network than the receiver."""
        return not self.target.network or ipaddress.ip_address(self.source.address) not in ipaddress.ip_network(
            self.target.network
        )

    @property
    def is_refused(self) -> bool:
        """Return whether the reverse path filter of the receiver may drop all packets of the sender."""
        return self.target.rp_filter == _STRICT and self.is_routed and self.target.version == 4

    @property
    def has_unicast(self) -> bool:
        """Return whether one of both has an answer of the other."""
        echoes = (
            self.sender.echo_of(self.segment, self.receiver.number),
            self.receiver.echo_of(self.segment, self.sender.number),
        )
        return any(echo is not None for echo in echoes)


@attrs.frozen
class SegmentSummary:
    """One segment in numbers. Rates are octets a second, times ns."""

    segment: str
    hosts: int
    pairs: int
    silent: int  # pairs without any probe
    most_loss: float
    most_rtt_ns: int
    least_rate: int  # of the bursts; 0: none was measured

    @property
    def text(self) -> str:
        """Return the summary for people."""
        words = [f"{self.segment}: hosts {self.hosts}, directions {self.pairs}"]
        if self.silent:
            words.append(f"silent {self.silent}")
        if self.pairs:
            words.append(f"loss at most {self.most_loss:.1%}" if self.most_loss else "no loss")
        if self.most_rtt_ns:
            words.append(f"round trip at most {self.most_rtt_ns / MILLISECOND:.2f} ms")
        if self.least_rate:
            words.append(f"bursts at {rate_text(self.least_rate)} or more")
        return ", ".join(words)


def rate_text(rate: int) -> str:
    """Return a measured rate with two or three digits, so that equal links have equal lines."""
    step = 10 ** max(0, len(str(rate * 8)) - 2)
    return format_rate(round(rate * 8 / step) * step // 8)


def pairs_of(reports: Sequence[HostReport]) -> dict[str, list[Pair]]:
    """Return all directions of each segment. A host with several nodes on a segment must hear itself."""
    found: dict[str, list[Pair]] = {}
    for segment in dict.fromkeys(name for report in reports for name in report.places):
        members = [report for report in reports if segment in report.places]
        found[segment] = [
            Pair(
                segment, sender, receiver, _sent(sender, segment), _heard(sender, receiver, segment, ProbeKind.NUMBERED)
            )
            for sender in members
            for receiver in members
            if sender is not receiver or sender.places[segment].nodes > 1
        ]
    return found


def _sent(sender: HostReport, segment: str) -> int:
    told = sender.sent_on(segment, ProbeKind.NUMBERED)
    return 0 if told is None else told.count


def _heard(sender: HostReport, receiver: HostReport, segment: str, kind: ProbeKind) -> HeardReport | None:
    return receiver.heard_of(segment, sender.number, kind)


def summaries(reports: Sequence[HostReport]) -> list[SegmentSummary]:
    """Return each segment in numbers."""
    found = []
    for segment, pairs in pairs_of(reports).items():
        hosts = sum(segment in report.places for report in reports)
        echoes = [echo.rtt_ns for report in reports for echo in report.echoes if echo.segment == segment]
        bursts = [_rate_of(burst) for pair in pairs if (burst := _burst(pair)) is not None and _rate_of(burst)]
        heard = [pair.loss for pair in pairs if pair.arrived]
        found.append(
            SegmentSummary(
                segment,
                hosts,
                len(pairs),
                sum(not pair.arrived for pair in pairs),
                max(heard, default=0.0),
                max(echoes, default=0),
                min(bursts, default=0),
            )
        )
    return found


def findings_of(reports: Sequence[HostReport], port: int, shares: Mapping[str, float]) -> Iterator[HostFinding]:
    """Yield the findings between hosts. `port` is that of the probes, `shares` are those of the bursts."""
    for report in reports:
        for problem in report.problems:
            subject = f"{report.name} on {problem.segment}"
            yield fault("probe sockets", subject, problem.message, "open sockets", problem.remedy)
    for segment, pairs in pairs_of(reports).items():
        yield from _arrivals(segment, pairs, port)
        for pair in pairs:
            if pair.heard is not None:
                yield from _quality(pair, pair.heard)
                path = list(_mtu(pair))
                yield from path
                if all(one.level is Level.OK for one in path):  # else no packet of the burst fits
                    yield from _burst_verdict(pair, shares.get(segment, 0.0))
            yield from _unicast(pair, port)
        if pairs and not shares.get(segment, 0.0) and any(pair.source.sends for pair in pairs):
            yield ok("bandwidth", segment, "not measured, because the streams have the rate or --no-burst was given")
        yield from _igmp(segment, [report for report in reports if segment in report.places])
    yield from _leaks(reports)
    yield from _clocks(reports)


def _arrivals(segment: str, pairs: Sequence[Pair], port: int) -> Iterator[HostFinding]:
    """Yield what arrives. A host that hears nobody, or that nobody hears, is one finding."""
    silent = [pair for pair in pairs if not pair.arrived]
    if pairs and len(silent) == len(pairs) and len(pairs) > 2:
        first = pairs[0]
        yield fault(_check_of(first), segment, "no host hears another", "all hear all", _remedy_of(first, port))
        return
    deaf = _alike(pairs, silent, lambda pair: pair.receiver.name)
    mute = _alike([one for one in pairs if one.receiver.name not in deaf], silent, lambda pair: pair.sender.name)
    for name, first in deaf.items():
        yield fault(
            _check_of(first), f"{segment}: {name}", "hears no other host", "all others", _remedy_of(first, port)
        )
    for name, first in mute.items():
        yield fault(
            _check_of(first), f"{segment}: {name}", "no other host hears it", "all others", _remedy_of(first, port)
        )
    for pair in pairs:
        if pair.arrived:
            yield ok(_check_of(pair), pair.subject, "arrives")
        elif pair.receiver.name not in deaf and pair.sender.name not in mute:
            found = f"0 of {pair.count} probes arrive" if pair.count else "no probe leaves"
            yield fault(_check_of(pair), pair.subject, found, "all", _remedy_of(pair, port))


def _check_of(pair: Pair) -> str:
    return "multicast" if pair.target.group else "unicast leg"


def _alike(pairs: Sequence[Pair], silent: Sequence[Pair], end: Callable[[Pair], str]) -> dict[str, Pair]:
    """Return the hosts at one end of pairs which are all silent, two at least, each with its first pair."""
    found: dict[str, Pair] = {}
    for name in dict.fromkeys(end(pair) for pair in silent):
        own = [pair for pair in pairs if end(pair) == name]
        if len(own) > 1 and all(not pair.arrived for pair in own):
            found[name] = own[0]
    return found


def _remedy_of(pair: Pair, port: int) -> str:
    """Return the most likely remedy for a direction without any probe."""
    source, target = pair.source, pair.target
    told = pair.sender.sent_on(pair.segment, ProbeKind.NUMBERED)
    if told is not None and told.error and not told.count:
        return f"{pair.sender.name} cannot send ({told.error}): check its routes and its firewall: nft list ruleset"
    family = "ip6" if target.version == 6 else "ip"
    if pair.is_refused:
        return _strict_remedy(pair)
    if not pair.has_unicast:
        return f"unicast does not arrive either: check cable, VLAN, routes, and that firewalls pass UDP port {port}: nft list ruleset"
    if not target.group:
        return f"on {pair.receiver.name}: nft add rule inet filter input {family} saddr {source.address} udp dport {port} accept"
    if pair.is_routed:
        return f"unicast arrives: check the multicast routing of {target.group} between both networks, and multicast_hops = {source.hops} of the file"
    return (
        f"unicast arrives: check the firewall of {pair.receiver.name} (nft add rule inet filter input {family} daddr {target.group} "
        f"udp dport {port} accept), and IGMP snooping without a querier at the switch"
    )


def _strict_remedy(pair: Pair) -> str:
    name = pair.target.interface
    setting = interface_setting(name, "rp_filter")
    return f"on {pair.receiver.name}: sysctl -w {setting}=2, or a route to {pair.source.address} by {name}"


def _quality(pair: Pair, heard: HeardReport) -> Iterator[HostFinding]:
    lost = max(0, pair.count - heard.count)
    if not lost:
        yield ok("loss", pair.subject, "none")
    else:
        found = f"{lost} of {pair.count} probes ({pair.loss:.1%})"
        remedy = "look at the counters of the cards and switches on the way: ethtool -S, duplex, cable, wireless"
        kind = fault if pair.loss > _MUCH_LOSS else advice
        yield kind("loss", pair.subject, found, "none; repairs use the rate of the stream", remedy)
    found, remedy = (
        f"{heard.reordered} probes late",
        "one path for a group: check link aggregation and routing; or a longer nak_bo_ivl",
    )
    yield judged("order", pair.subject, not heard.reordered, found if heard.reordered else "kept", "in order", remedy)
    found, remedy = f"{heard.duplicates} probes twice", "find the loop, or the second interface in the same network"
    yield judged(
        "duplicates", pair.subject, not heard.duplicates, found if heard.duplicates else "none", "none", remedy
    )
    if heard.least_ttl:
        routers = heard.sender_ttl - heard.least_ttl
        found = f"{heard.least_ttl} of {heard.sender_ttl} left, routers: {routers}" if routers else "no router"
        remedy = f"multicast_hops = {heard.sender_ttl + 1} or more in the file, for the day when the path has one more router"
        yield judged("TTL", pair.subject, not routers or heard.least_ttl > 1, found, "more than 1 left", remedy)


def _mtu(pair: Pair) -> Iterator[HostFinding]:
    sizes = _heard(pair.sender, pair.receiver, pair.segment, ProbeKind.SIZE)
    packet, overhead = pair.source.packet, OVERHEAD[pair.target.version, "udp"]
    largest = 0 if sizes is None else max(sizes.sizes, default=0)
    if largest >= packet:
        yield ok("path MTU", pair.subject, f"{packet + overhead} passes")
    elif pair.loss < _MOST_LOSS_OF_SIZES:
        found = f"at most {largest + overhead} of the sizes tried pass whole" if largest else "no size passes whole"
        largest = largest or _LEAST_MTU - overhead
        remedy = f'ip link set {pair.target.interface} mtu {packet + overhead}, on all hosts and switches of the way; or max_tpdu = "{largest}B" in the file'
        yield fault("path MTU", pair.subject, found, f"{packet + overhead}, for packets of {packet} octets", remedy)


def _burst(pair: Pair) -> HeardReport | None:
    return _heard(pair.sender, pair.receiver, pair.segment, ProbeKind.BURST)


def _rate_of(heard: HeardReport) -> int:
    """Return the octets a second of a burst; 0 if it was too short to tell."""
    return heard.octets * SECOND // heard.lasted_ns if heard.lasted_ns > 0 and heard.count > 1 else 0


def _burst_verdict(pair: Pair, share: float) -> Iterator[HostFinding]:
    told = pair.sender.sent_on(pair.segment, ProbeKind.BURST)
    if told is None or not told.count or told.lasted_ns <= 0:
        return
    heard = _burst(pair)
    count = 0 if heard is None else heard.count
    wanted, sent = int(pair.source.rate * share), told.octets * SECOND // told.lasted_ns
    loss = max(0.0, 1 - count / told.count)
    if loss <= _BURST_LOSS:
        is_slow = sent < _SLOW * wanted
        found = f"{rate_text(sent)} arrive; the agent sends no faster" if is_slow else f"{rate_text(wanted)} arrive"
        yield ok("bandwidth", pair.subject, found)
        return
    found = f"{loss:.1%} of a burst at {rate_text(sent)} lost"
    if pair.receiver.drops:  # the agent reads more slowly than a node
        found += f"; {pair.receiver.name} dropped reads, because a socket was full: {pair.receiver.drops}"
        remedy = (
            "sysctl -w net.core.rmem_max=33554432, and look at the processors of that host: pgm doctor FILE --fleet"
        )
    else:
        remedy = f"a lower rate of the streams than {format_rate(pair.source.rate)}, or faster links, cards and switches on the way"
    kind = fault if loss > _MUCH_BURST_LOSS and not pair.receiver.drops else advice
    yield kind("bandwidth", pair.subject, found, f"at most {_BURST_LOSS:.1%}", remedy)


def _unicast(pair: Pair, port: int) -> Iterator[HostFinding]:
    """Judge unicast between a sender of data and the others, because requests and repairs need it."""
    if pair.sender is pair.receiver or not pair.source.sends:
        return
    echo = pair.receiver.echo_of(pair.segment, pair.sender.number)
    if echo is not None:
        yield ok("unicast", pair.subject, "answers")
        return
    remedy = f"check routes and firewalls between {pair.target.address} and {pair.source.address} for UDP, port {port} and the ports of the nodes"
    remedy = _strict_remedy(pair) if pair.is_refused else remedy
    yield fault("unicast", pair.subject, "no answer to questions by unicast", "answers, as NAKs need them", remedy)


def _igmp(segment: str, members: Sequence[HostReport]) -> Iterator[HostFinding]:
    places = [(report.name, report.places[segment]) for report in members]
    places = [(name, place) for name, place in places if place.group and place.version == 4 and not place.is_loopback]
    if not places:
        return
    versions = Counter(place.igmp.igmp for _, place in places if place.igmp.igmp)
    usual = versions.most_common(1)[0][0] if versions else 0
    for name, place in places:
        version, subject = place.igmp.igmp, f"{segment}: {name}"
        if not version:
            continue
        how = " (forced)" if place.igmp.igmp_forced else ""
        setting = interface_setting(place.interface, "force_igmp_version")
        remedy = f"sysctl -w {setting}=0, and the same version at all queriers of the network"
        is_good = version == usual and version >= _LEAST_IGMP
        wanted = f"{usual}, as most hosts have" if version != usual else "2 or 3"
        yield judged("IGMP versions", subject, is_good, f"{version}{how}", wanted, remedy)
    if len(members) > 1:
        yield _querier(segment, [place for _, place in places])


def _querier(segment: str, places: Sequence[PlaceReport]) -> HostFinding:
    heard = sorted(
        {place.igmp.querier for place in places if place.igmp.querier and place.igmp.querier_age_s < _QUERY_S}
    )
    if heard:
        return ok("IGMP querier", segment, f"heard: {', '.join(heard)}")
    longest_s = max((place.igmp.listening_s for place in places if not place.igmp.querier_problem), default=0.0)
    if not longest_s:
        return ok("IGMP querier", segment, "unknown: the agents have no CAP_NET_RAW")
    if longest_s < _QUERY_S:
        return ok("IGMP querier", segment, f"none yet: the agents listen since less than {_QUERY_S:.0f} s")
    remedy = "if a switch between the hosts snoops, give the network a querier: at the switch, or ip link set BRIDGE type bridge mcast_querier 1"
    return advice("IGMP querier", segment, "none heard in two query intervals", "one", remedy)


def _leaks(reports: Sequence[HostReport]) -> Iterator[HostFinding]:
    """Yield the groups that were heard where the topology says that they must not be, with all of their senders."""
    names = segment_ids([name for report in reports for name in report.places])
    hosts = {report.number: report.name for report in reports}
    for report in reports:
        leaks: dict[tuple[str, str, str], list[HeardReport]] = {}
        for one in report.heard:
            if not one.is_allowed and one.sender in hosts and one.kind == ProbeKind.NUMBERED.name.lower():
                segment = names.get(SegmentId(one.segment), "a segment of no host")
                leaks.setdefault((segment, one.group, one.interface), []).append(one)
        for (segment, group, interface), rows in leaks.items():
            yield _leak(f"{segment}: {report.name} by {interface}", group, rows, hosts)
        if report.silent and not leaks:
            yield ok("containment", report.name, "no foreign group is heard")


def _leak(subject: str, group: str, rows: Sequence[HeardReport], hosts: Mapping[int, str]) -> HostFinding:
    senders = ", ".join(dict.fromkeys(hosts[one.sender] for one in rows))
    routers = min(one.sender_ttl - one.least_ttl if one.least_ttl else 0 for one in rows)
    if routers:
        found = f"group {group} from {senders} is heard through routers: {routers}"
        remedy = f"stop the forwarding of {group} at the router, or set multicast_hops = {routers} in the file"
    else:
        found = f"group {group} from {senders} is heard, without a router between"
        remedy = "separate both networks: check VLANs, bridges and cables"
    return fault("containment", subject, found, "silence", remedy)


def _clocks(reports: Iterable[HostReport]) -> Iterator[HostFinding]:
    for report in reports:
        behind = [echo.ahead_ns for echo in report.echoes if echo.host != report.number]
        if not behind:
            continue
        # the clock of most hosts, this one among them, is taken for right
        ahead_ns = -statistics.median([0, *behind] if len(behind) > 1 else behind)
        word = "ahead of" if ahead_ns > 0 else "behind"
        found = f"{abs(ahead_ns) / MILLISECOND:.1f} ms {word} the others"
        is_good = abs(ahead_ns) <= _MOST_AHEAD_NS
        most = f"at most {_MOST_AHEAD_NS // MILLISECOND} ms"
        yield judged("clock", report.name, is_good, found if not is_good else most, most, "run NTP or PTP on all hosts")
