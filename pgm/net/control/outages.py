"""Outages of a node's interfaces, addresses and sends: an event at the start of each, and one at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.net.driver.event_loops import current_loop
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.sockets.netlink import AddressChange, LinkChange, changes_untrusted, open_netlink
from pgm.units import SECOND

_DATAGRAM = 1 << 16
_CALM_NS = 5 * SECOND  # without a refused packet until sends count as working again
_SETTLE_NS = 3 * SECOND  # in which the first packet after an outage shows the gap
_LONGEST_NS = 120 * SECOND  # of repairs after an outage, until its cost is told in any case


@attrs.frozen
class WatchedSegment:
    """Segment of a node, with its interface and address."""

    segment: str
    interface: str
    index: int
    address: str


@attrs.define
class _Outage:
    """Outage of an interface or address, with the counters at its start. It ends at `ended_ns`."""

    since_ns: int
    lost: int
    repaired: int
    ended_ns: int | None = None


@attrs.define
class Outages:
    """Outages of one node, from the kernel's announcements and the node's counters. It has no clock and no socket."""

    places: Sequence[WatchedSegment]
    _outages: dict[tuple[int, str], _Outage] = attrs.field(factory=dict)  # by interface and address; "": interface
    _refused: int = 0  # packets that the kernel refused, up to the last sample
    _refused_before: int = 0  # up to the start of the failure
    _failing_since_ns: int | None = None
    _last_refusal_ns: int = 0

    def take(self, change: LinkChange | AddressChange, counters: Counters, now_ns: int) -> Iterator[Notice]:
        """Yield the event of a change, if it begins or ends an outage of this node."""
        address = change.address if isinstance(change, AddressChange) else ""
        places = [one for one in self.places if one.index == change.index and address in ("", one.address)]
        if not places:
            return
        is_good = change.is_there if isinstance(change, AddressChange) else change.is_up
        key, outage = (change.index, address), self._outages.get((change.index, address))
        named = f"segments {', '.join(dict.fromkeys(one.segment for one in places))}"
        what = f"{address} of {places[0].interface}" if address else places[0].interface
        if not is_good and (outage is None or outage.ended_ns is not None):
            kept = outage or _Outage(now_ns, counters.lost_sqns, counters.repaired_sqns)
            kept.ended_ns = None
            self._outages[key] = kept
            yield Notice("address-gone" if address else "interface-down", f"{what}; {named}")
        elif is_good and outage is not None and outage.ended_ns is None:
            outage.ended_ns = now_ns
            seconds = (now_ns - outage.since_ns) / SECOND
            yield Notice("address-back" if address else "interface-up", f"{what}, after {seconds:.1f} s; {named}")

    def sample(self, counters: Counters, missing_sqns: int, now_ns: int) -> Iterator[Notice]:
        """Yield what the counters tell: refused sends, their end, and the cost of outages whose repairs are over."""
        yield from self._sends(counters.send_errors, now_ns)
        for key, outage in list(self._outages.items()):
            if outage.ended_ns is None or now_ns - outage.ended_ns < _SETTLE_NS:
                continue
            if missing_sqns and now_ns - outage.ended_ns < _LONGEST_NS:
                continue
            del self._outages[key]
            lost, repaired = counters.lost_sqns - outage.lost, counters.repaired_sqns - outage.repaired
            seconds = (outage.ended_ns - outage.since_ns) / SECOND
            what = next(one.interface for one in self.places if one.index == key[0])
            yield Notice("outage-cost", f"{key[1] or what} was gone for {seconds:.1f} s: {repaired:,} packets repaired, {lost:,} lost")  # fmt: skip

    @property
    def needs_missing(self) -> bool:
        """Return whether `sample` needs the number of missing sqns: an outage has ended, and its cost is not told."""
        return any(outage.ended_ns is not None for outage in self._outages.values())

    def _sends(self, refused: int, now_ns: int) -> Iterator[Notice]:
        grown, self._refused = refused - self._refused, refused
        where = ", ".join(dict.fromkeys(f"{one.address} of {one.interface}" for one in self.places))
        if grown > 0:
            self._last_refusal_ns = now_ns
            if self._failing_since_ns is None:
                self._failing_since_ns, self._refused_before = now_ns, refused - grown
                yield Notice("sends-fail", f"the kernel refuses packets from {where}")
        elif self._failing_since_ns is not None and now_ns - self._last_refusal_ns >= _CALM_NS:
            count, seconds = refused - self._refused_before, (self._last_refusal_ns - self._failing_since_ns) / SECOND
            self._failing_since_ns = None
            yield Notice("sends-resume", f"from {where}; {count:,} packets were refused in {seconds:.0f} s")


def outages_of(driver: NodeDriver) -> Outages:
    """Return the outages of a running node, none so far."""
    return Outages(
        [
            WatchedSegment(
                link.plan.name, link.sockets.interface.name, link.sockets.interface.index, link.segment.address
            )
            for link in driver.links
        ]
    )


def counters_of(driver: NodeDriver) -> Counters:
    """Return the counters of all endpoints of a node, of those that left too."""
    return Counters.total([driver.links.gone, *(endpoint.core.counters for endpoint in driver.links.endpoints)])


def report(driver: NodeDriver, notices: Iterable[Notice]) -> None:
    """Give events to the node's log or application."""
    for notice in notices:
        driver.perform([notice])


async def watch_outages(driver: NodeDriver, outages: Outages) -> None:
    """Report what the kernel announces of a node's interfaces, until cancelled."""
    sock = open_netlink()
    if sock is None:
        return
    loop = current_loop()
    with sock:
        while True:
            await loop.readable(sock)
            try:
                octets = sock.recv(_DATAGRAM)
            except OSError:  # woken for nothing, or the kernel dropped announcements for want of memory
                continue
            for change in changes_untrusted(octets):
                report(driver, outages.take(change, counters_of(driver), driver.now_ns()))


def sample_outages(driver: NodeDriver, outages: Outages, counters: Counters) -> None:
    """Report what the counters tell of a node's sends and outages."""
    now_ns = driver.now_ns()
    missing = 0
    if outages.needs_missing:
        missing = sum(row.missing_sqns for end in driver.links.endpoints for row in end.core.status(now_ns))
    report(driver, outages.sample(counters, missing, now_ns))
