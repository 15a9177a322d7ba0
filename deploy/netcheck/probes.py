"""Probes on the wire: one header, kinds, and the schedule of a host's probes. No socket and no clock."""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NewType

import attrs

from deploy.doctor.network import OVERHEAD
from pgm.units import MILLISECOND, SECOND

_MAGIC = b"pgmprobe"  # no PGM packet, and on a port that no node has
_HEADER = struct.Struct("!8s8sBBHII")  # magic, netcheck, kind, TTL, sender, segment, number
_STAMPS = struct.Struct("!QQQ")  # asked, heard, answered: ns since 1970
ID_OCTETS = 8
LEAST_OCTETS = _HEADER.size + _STAMPS.size
MOST_HOSTS = 1024  # of one netcheck, as many as a view has nodes
MOST_NUMBER = 1 << 16  # probes of one kind from one sender
_NUMBERED_OCTETS = 100  # of a numbered probe: small, so that all hosts may send at once
_MOST_NUMBERED = 200  # one loss is then 0.5 %
_LEAST_NUMBERED = 20
_NUMBERED_IVL = 5 * MILLISECOND
_NUMBERED_FOR = 2 * SECOND  # at most, of the 30 s for ten hosts
_NUMBERED_SHARE = 0.05  # of the rate of the streams, for all hosts together: running streams must not notice
_OF_SIZE = 5  # probes of one size: a loss of 20 % loses all of them once in 3,000 times
_LEAST_OF_SIZE = 2  # else only the largest packet is tried
_LARGEST_ONLY = 3
_BURST_FOR = SECOND // 4
MOST_BURST_S = 5.0  # of the slowest stream, whose least number of packets would last minutes; a request has 15 s
LEAST_SHARE = 0.05  # of the streams' rate: a burst at less tells nothing of the rate
_MOST_BURST = 16 << 20  # octets: the receive buffer that nodes ask for holds them
_LEAST_BURST = 20  # packets
# MTUs of tunnels and of Ethernet: PPP over Ethernet, GRE, WireGuard, VXLAN, the least of IPv6 and IPv4, and round numbers
_MTUS = (576, 900, 1000, 1200, 1280, 1400, 1420, 1450, 1476, 1492, 1500, 4000, 9000)

SegmentId = NewType("SegmentId", int)


class ProbeKind(enum.IntEnum):
    """Kind of a probe."""

    NUMBERED = 1  # many small ones: arrival, loss, order, duplicates, TTL
    SIZE = 2  # not to be fragmented: MTU
    BURST = 3  # at the rate of the streams
    ASK = 4  # by unicast: arrival, round trip, clock
    ANSWER = 5


@attrs.frozen
class Probe:
    """One probe. Stamps are ns since 1970, and 0 except in questions and answers."""

    netcheck: bytes  # its id
    kind: ProbeKind
    ttl: int  # with which it leaves
    sender: int  # number of the host
    segment: SegmentId
    number: int
    asked_ns: int = 0
    heard_ns: int = 0
    answered_ns: int = 0

    def octets(self, size: int = LEAST_OCTETS) -> bytes:
        """Return the probe as a datagram of `size` octets, or of `LEAST_OCTETS` if these are more."""
        head = _HEADER.pack(_MAGIC, self.netcheck, self.kind, self.ttl, self.sender, self.segment, self.number)
        return (head + _STAMPS.pack(self.asked_ns, self.heard_ns, self.answered_ns)).ljust(size, b"\0")


def probe_of_untrusted(octets: memoryview, netcheck: bytes) -> Probe | None:
    """Return the probe of a netcheck, by its id, in a datagram; None for anything else."""
    if len(octets) < LEAST_OCTETS:
        return None
    magic, found, kind, ttl, sender, segment, number = _HEADER.unpack_from(octets)
    if magic != _MAGIC or found != netcheck or not 1 <= kind <= max(ProbeKind):
        return None
    if sender >= MOST_HOSTS or number >= MOST_NUMBER:
        return None
    return Probe(
        found, ProbeKind(kind), ttl, sender, SegmentId(segment), number, *_STAMPS.unpack_from(octets, _HEADER.size)
    )


def segment_ids(names: Sequence[str]) -> Mapping[SegmentId, str]:
    """Return the names of segments by the numbers that probes carry: digests of the names."""
    return {segment_id(name): name for name in names}


def segment_id(name: str) -> SegmentId:
    """Return the number of a segment in probes, which is the same in different files."""
    return SegmentId(zlib.crc32(name.encode()))


@attrs.frozen
class SegmentLoad:
    """Use of a segment by the streams, which bounds the probes. `rate` is in octets a second, `packet` in octets."""

    version: int  # of IP
    packet: int  # the largest of PGM
    rate: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the payloads to try, in octets: the largest packet, and the usual MTUs below it."""
        overhead = OVERHEAD[self.version, "udp"]
        smaller = (mtu - overhead for mtu in _MTUS)
        return (*(size for size in smaller if size < self.packet), self.packet)


@attrs.frozen
class Departure:
    """One probe to send: its kind, number and octets, and the time since the begin."""

    at_ns: int
    kind: ProbeKind
    number: int
    octets: int


def numbered_count(load: SegmentLoad, hosts: int) -> int:
    """Return the number of numbered probes of each host on a segment with that many hosts."""
    return max(_LEAST_NUMBERED, min(_MOST_NUMBERED, _NUMBERED_FOR // _interval(load, hosts)))


def _interval(load: SegmentLoad, hosts: int) -> int:
    octets = hosts * (_NUMBERED_OCTETS + OVERHEAD[load.version, "udp"])
    return max(_NUMBERED_IVL, int(octets / (_NUMBERED_SHARE * load.rate) * SECOND))


def departures(load: SegmentLoad, hosts: int) -> Iterator[Departure]:
    """Yield the numbered probes and those of all sizes, by time."""
    count, interval = numbered_count(load, hosts), min(_interval(load, hosts), _NUMBERED_FOR // _LEAST_NUMBERED)
    sized = _sized(load, hosts, count * interval)
    for number in range(count):
        yield Departure(number * interval, ProbeKind.NUMBERED, number, _NUMBERED_OCTETS)
        for place in range(number * len(sized) // count, (number + 1) * len(sized) // count):
            yield Departure(number * interval, ProbeKind.SIZE, place, sized[place])


def _sized(load: SegmentLoad, hosts: int, duration_ns: int) -> list[int]:
    """Return the sizes to send. A slow stream leaves room for its largest packet alone."""
    room = _NUMBERED_SHARE * load.rate * duration_ns / SECOND / hosts
    each = min(_OF_SIZE, int(room / sum(load.sizes)))
    if each < _LEAST_OF_SIZE:
        return [load.packet] * _LARGEST_ONLY
    return [size for size in load.sizes for _ in range(each)]


@attrs.frozen
class Burst:
    """Packets at one rate. `rate` is in octets a second."""

    count: int
    octets: int  # of a packet
    rate: int

    @property
    def interval(self) -> int:
        """Return the ns until the next packets: a millisecond, or the time of one packet at a lower rate."""
        return max(MILLISECOND, self.octets * SECOND // self.rate)

    def due(self, elapsed_ns: int) -> int:
        """Return the number of packets that have left by a time since the begin; the first one leaves at once."""
        return max(1, min(self.count, (elapsed_ns + MILLISECOND) * self.rate // SECOND // self.octets))


def burst_of(load: SegmentLoad, mtu: int | None, share: float) -> Burst:
    """Return the burst of a sender: `share` of the streams' rate, for a quarter of a second at most."""
    octets = max(LEAST_OCTETS, load.packet if mtu is None else min(load.packet, mtu - OVERHEAD[load.version, "udp"]))
    rate = max(1, int(load.rate * share))
    count = min(rate * _BURST_FOR // SECOND, _MOST_BURST) // octets
    return Burst(min(MOST_NUMBER, max(_LEAST_BURST, count)), octets, rate)
