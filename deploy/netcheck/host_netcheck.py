"""One netcheck on one host: its sockets, the probes that it sends, and those that it hears."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import trio

from deploy.doctor.readings import mtu_of
from deploy.netcheck.places import MOST_EARS, Ear, ProbePlace, bare
from deploy.netcheck.probes import (
    MOST_BURST_S,
    MOST_HOSTS,
    Probe,
    ProbeKind,
    SegmentId,
    burst_of,
    departures,
    probe_of_untrusted,
    segment_id,
    segment_ids,
)
from deploy.netcheck.tally import Echo, Tally
from pgm.errors import TransportError
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.sockets.interfaces import Interface
from pgm.net.sockets.open import SO_RXQ_OVFL, SOL_UDP, UDP_GRO, UDP_SEGMENT, open_sockets, socket_name
from pgm.parameters import Parameters
from pgm.topology.node_plan import Address
from pgm.units import KIB, MIB, SECOND

LEASE_S = 60.0  # of a netcheck: a command that was killed leaves nothing behind
PAUSE_S = 2.0  # before the next netcheck: bursts of 0.25 s then take a ninth of the time at most
_READ = 1 << 16
_READS = 64  # of one socket until others get their turn
_CONTROL = 512
_TIMESTAMPNS = 35  # SO_TIMESTAMPNS, and the kind of its control message
_TIMESPEC = struct.Struct("@ll")
_IP_RECVTTL, _IPV6_RECVHOPLIMIT = 12, 51
_TTL_KINDS = ((socket.IPPROTO_IP, socket.IP_TTL), (socket.IPPROTO_IPV6, 52))  # IPV6_HOPLIMIT
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PROBE = 10, 23, 3  # do not fragment, and do not remember the MTU of a path
_ASKS = 8  # questions to each host: the shortest round trip counts
_ASK_IVL_S = 0.05
_ANSWERS_S = 0.3  # until the last answer
_MOST_ANSWERS = 8 * MOST_HOSTS
_TRAIN = 16  # packets of a burst in one call
_BUFFER, _SILENT_BUFFER = 16 * MIB, 64 * KIB  # of a place, as nodes ask for it; and where nothing is expected
_UNICAST_TTL = 64


@attrs.define
class Departures:
    """Probes of one kind that left on one segment. Times are ns."""

    count: int = 0
    octets: int = 0
    lasted_ns: int = 0
    refused: int = 0
    error: str = ""


@attrs.define(eq=False)
class ProbeSocket:
    """A socket that hears probes, with the segments whose probes may come by it."""

    sock: socket.socket
    group: str  # empty for unicast
    interface: Interface
    allowed: frozenset[SegmentId]
    tally: Tally = attrs.field(factory=Tally)
    drops: int = 0  # by the kernel, because the buffer was full


@attrs.define(eq=False)
class HostNetcheck:
    """Probes of one netcheck on this host, which has a number in it. `open` makes the sockets."""

    id: bytes
    host: int
    places: Mapping[str, ProbePlace]
    port: int
    problems: list[dict[str, str]] = attrs.field(factory=list)
    ears: list[ProbeSocket] = attrs.field(factory=list)
    mouths: dict[str, socket.socket] = attrs.field(factory=dict)  # by segment
    sent: defaultdict[tuple[str, ProbeKind], Departures] = attrs.field(factory=lambda: defaultdict(Departures))
    echoes: defaultdict[tuple[SegmentId, int], Echo] = attrs.field(factory=lambda: defaultdict(Echo))
    ends: trio.Event = attrs.field(factory=trio.Event)
    rested: trio.Event = attrs.field(factory=trio.Event)  # a pause after the end
    _answers: int = 0
    _done: set[tuple[str, str]] = attrs.field(factory=set)

    def open(self, ears: Sequence[Ear]) -> None:
        """Open the sockets. Sockets that cannot be opened become `problems`. Raises `OSError` without room for files."""
        for place in self.places.values():
            with self._noting(place.plan.name):
                self._open_place(place, {(ear.group, ear.interface.name): ear.allowed for ear in ears})
        for ear in ears[:MOST_EARS]:
            if ear.place is None:
                with self._noting(ear.group):
                    self._open_silence(ear)
        for place in {place.interface.address: place for place in self.places.values()}.values():
            with self._noting(place.plan.name):
                self._open_unicast(place)

    @contextlib.contextmanager
    def _noting(self, segment: str) -> Iterator[None]:
        try:
            yield
        except TransportError as error:
            self.problems.append({"segment": segment, "message": error.message, "remedy": error.remedy})

    def _open_place(self, place: ProbePlace, allowed: Mapping[tuple[str, str], frozenset[str]]) -> None:
        plan = attrs.evolve(
            place.plan,
            port=self.port,
            unicast_port=0,
            transport="udp",
            address=place.interface.address,
            upstream=True,
            downstream=False,
        )
        opened = open_sockets(plan, Parameters(multicast_hops=place.hops, so_rcvbuf=_BUFFER))
        self.mouths[place.plan.name] = opened.own
        _whole(opened.own)
        only = frozenset({segment_id(place.plan.name)})
        self._hear(ProbeSocket(opened.own, "", opened.interface, only))
        if opened.group is not None:
            names = allowed[plan.group, opened.interface.name]
            self._hear(ProbeSocket(opened.group, plan.group, opened.interface, frozenset(map(segment_id, names))))

    def _open_silence(self, ear: Ear) -> None:
        plan = attrs.evolve(ear.plan, port=self.port)
        opened = open_sockets(plan, Parameters(so_rcvbuf=_SILENT_BUFFER))
        opened.own.close()
        assert opened.group is not None
        self._hear(ProbeSocket(opened.group, ear.group, opened.interface, frozenset()))

    def _open_unicast(self, place: ProbePlace) -> None:
        """Open the socket at which other hosts ask this one, and send on unicast legs."""
        interface = place.interface
        family = socket.AF_INET6 if ":" in interface.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            sock.bind(socket_name(interface.address, self.port, interface, family))
        except OSError as error:
            sock.close()
            raise TransportError(
                f"{interface.address} port {self.port}: {error.strerror}",
                remedy="end the other netcheck, or choose `probe_port` of [fleet]",
            ) from error
        segments = frozenset(segment_id(name) for name, one in self.places.items() if one.interface == interface)
        self._hear(ProbeSocket(sock, "", interface, segments))

    def _hear(self, ear: ProbeSocket) -> None:
        for level, option in (
            (socket.SOL_SOCKET, _TIMESTAMPNS),
            (socket.SOL_SOCKET, SO_RXQ_OVFL),
            (socket.IPPROTO_IP, _IP_RECVTTL),
            (socket.IPPROTO_IPV6, _IPV6_RECVHOPLIMIT),
        ):
            with contextlib.suppress(OSError):  # the other version of IP
                ear.sock.setsockopt(level, option, 1)
        self.ears.append(ear)

    async def run(self) -> None:
        """Hear probes until the netcheck ends, or its lease does. Close the sockets, and rest for a pause."""
        try:
            with trio.move_on_after(LEASE_S):
                async with open_plain_nursery() as nursery:
                    for ear in self.ears:
                        nursery.start_soon(self._listen, ear)
                    await self.ends.wait()
                    nursery.cancel_scope.cancel()
        finally:
            self.close()
        await trio.sleep(PAUSE_S)
        self.rested.set()

    def close(self) -> None:
        """Close all sockets."""
        self.ends.set()
        for ear in self.ears:
            ear.sock.close()

    async def _listen(self, ear: ProbeSocket) -> None:
        buffer = bytearray(_READ)
        while True:
            await trio.lowlevel.wait_readable(ear.sock)
            for _ in range(_READS):
                try:
                    count, control, _, sender = ear.sock.recvmsg_into([buffer], _CONTROL)
                except BlockingIOError:
                    break
                except OSError:  # ICMP errors of earlier sends
                    continue
                self._on_read_untrusted(ear, memoryview(buffer)[:count], control, sender)
            await trio.lowlevel.checkpoint()

    def _on_read_untrusted(
        self, ear: ProbeSocket, octets: memoryview, control: Sequence[tuple[int, int, bytes]], sender: Any
    ) -> None:
        now_ns, ttl, stride = time.time_ns(), 0, len(octets)
        for level, kind, value in control:
            if (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPNS) and len(value) >= _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                now_ns = seconds * SECOND + nanoseconds
            elif (level, kind) in _TTL_KINDS:
                ttl = int.from_bytes(value[:4], sys.byteorder)
            elif (level, kind) == (SOL_UDP, UDP_GRO):
                stride = max(1, int.from_bytes(value[:4], sys.byteorder))
            elif (level, kind) == (socket.SOL_SOCKET, SO_RXQ_OVFL):
                ear.drops = int.from_bytes(value[:4], sys.byteorder)
        for at in range(0, len(octets), stride or 1):
            one = octets[at : at + stride]
            probe = probe_of_untrusted(one, self.id)
            if probe is None:
                return
            if probe.kind is ProbeKind.ASK:
                self._answer(ear, probe, now_ns, sender)
            elif probe.kind is ProbeKind.ANSWER:
                self._on_answer(probe, now_ns)
            else:
                ear.tally.add(probe, len(one), ttl, now_ns)

    def _answer(self, ear: ProbeSocket, probe: Probe, now_ns: int, sender: Any) -> None:
        """Answer a question with as many octets, to hosts that this host may ask itself."""
        place = next((one for name, one in self.places.items() if segment_id(name) == probe.segment), None)
        if place is None or ear.group or self._answers >= _MOST_ANSWERS or not place.is_near(sender[0]):
            return
        self._answers += 1
        answer = attrs.evolve(
            probe,
            kind=ProbeKind.ANSWER,
            sender=self.host,
            heard_ns=now_ns,
            answered_ns=time.time_ns(),
            ttl=_UNICAST_TTL,
        )
        with contextlib.suppress(OSError):  # the question counts as lost
            ear.sock.sendto(answer.octets(), sender)

    def _on_answer(self, probe: Probe, now_ns: int) -> None:
        key = probe.segment, probe.sender
        if key in self.echoes or len(self.echoes) < MOST_HOSTS:
            self.echoes[key].add(probe, now_ns)

    def _once(self, what: str, segment: str) -> bool:
        """Return whether something is done for the first time: each probe leaves once in a netcheck."""
        key = what, segment
        is_new = key not in self._done
        self._done.add(key)
        return is_new

    async def send_probes(self, hosts: int) -> None:
        """Send numbered probes and those of all sizes on all segments, at once."""
        async with open_plain_nursery() as nursery:
            for name in self.mouths:
                if self._once("probes", name):
                    nursery.start_soon(self._send_probes, self.places[name], hosts)

    async def _send_probes(self, place: ProbePlace, hosts: int) -> None:
        began = trio.current_time()
        for departure in departures(place.load, hosts):
            wait_s = began + departure.at_ns / SECOND - trio.current_time()
            await trio.sleep(max(0.0, wait_s))
            probe = self._probe(place, departure.kind, departure.number)
            self._send(place, probe, departure.octets)

    async def ask(self, peers: Sequence[tuple[str, Address]]) -> None:
        """Ask hosts by unicast: a segment and an address of each. Others than those of the segment are left out."""
        if not self._once("ask", ""):
            return
        near = dict.fromkeys(
            (name, bare(address))
            for name, address in peers[:MOST_HOSTS]
            if name in self.mouths and self.places[name].is_near(address)
        )
        for number in range(_ASKS):
            for name, address in near:
                place = self.places[name]
                probe = attrs.evolve(self._probe(place, ProbeKind.ASK, number), asked_ns=time.time_ns())
                self._send(place, probe, 0, (address,))
            await trio.sleep(_ASK_IVL_S)
        await trio.sleep(_ANSWERS_S)

    async def burst(self, segment: str, share: float) -> None:
        """Send packets on a segment at a share of the rate of its streams, for a quarter of a second.

        The least number of packets takes longer on slow segments, up to `MOST_BURST_S` or the end of the netcheck.
        """
        place = self.places[segment]
        if segment not in self.mouths or not place.sends or not self._once("burst", segment):
            return
        burst = burst_of(place.load, mtu_of(place.interface.name), min(share, 1.0))
        began, number = trio.current_time(), 0
        with trio.move_on_after(MOST_BURST_S):
            while number < burst.count and not self.ends.is_set():
                due = burst.due(int((trio.current_time() - began) * SECOND))
                while number < due:
                    count = min(_TRAIN, due - number)
                    self._send_train(place, number, count, burst.octets)
                    number += count
                with trio.move_on_after(burst.interval / SECOND):
                    await self.ends.wait()
        self.sent[segment, ProbeKind.BURST].lasted_ns = int((trio.current_time() - began) * SECOND)

    def _send_train(self, place: ProbePlace, number: int, count: int, octets: int) -> None:
        """Send packets by one call where the kernel cuts them apart."""
        told = self.sent[place.plan.name, ProbeKind.BURST]
        train = b"".join(self._probe(place, ProbeKind.BURST, number + at).octets(octets) for at in range(count))
        cut = [(SOL_UDP, UDP_SEGMENT, octets.to_bytes(2, sys.byteorder))]
        for name in self._names(place):
            try:
                self.mouths[place.plan.name].sendmsg([train], cut, 0, name)
            except OSError:  # no GSO
                for at in range(count):
                    self._send(place, self._probe(place, ProbeKind.BURST, number + at), octets)
                return
        told.count += count
        told.octets += count * octets

    def _probe(self, place: ProbePlace, kind: ProbeKind, number: int) -> Probe:
        ttl = place.hops if place.plan.peers is None and kind is not ProbeKind.ASK else _UNICAST_TTL
        return Probe(self.id, kind, ttl, self.host, segment_id(place.plan.name), number)

    def _names(self, place: ProbePlace, to: Sequence[Address] = ()) -> list[tuple[str | int, ...]]:
        targets = to or ((place.plan.group,) if place.plan.peers is None else place.plan.peers)
        family = socket.AF_INET6 if place.load.version == 6 else socket.AF_INET
        return [socket_name(host, self.port, place.interface, family) for host in targets]

    def _send(self, place: ProbePlace, probe: Probe, octets: int, to: Sequence[Address] = ()) -> None:
        """Send a probe to all names. One that the kernel refuses for each of them has not left."""
        told, content, has_left = self.sent[place.plan.name, probe.kind], probe.octets(octets), False
        for name in self._names(place, to):
            try:
                self.mouths[place.plan.name].sendto(content, name)
                has_left = True
            except OSError as error:
                told.refused += 1
                if probe.kind is not ProbeKind.SIZE:
                    told.error = error.strerror or str(error)
        if has_left:
            told.count += 1
            told.octets += octets

    def result(self) -> dict[str, Any]:
        """Return what left and what was heard, as plain values for JSON."""
        names = segment_ids(list(self.places))
        heard = [
            {**row, "group": ear.group, "interface": ear.interface.name, "is_allowed": row["segment"] in ear.allowed}
            for ear in self.ears
            for row in ear.tally.rows()
        ]
        return {
            "sent": [
                {"segment": segment, "kind": kind.name.lower(), **attrs.asdict(told)}
                for (segment, kind), told in self.sent.items()
            ],
            "heard": heard,
            "echoes": [
                {"segment": names.get(segment, ""), "host": host, **attrs.asdict(echo)}
                for (segment, host), echo in self.echoes.items()
            ],
            "drops": {f"{ear.group} {ear.interface.name}": ear.drops for ear in self.ears if ear.drops},
        }


def _whole(sock: socket.socket) -> None:
    """Let packets leave whole or not at all."""
    for level, option in ((socket.IPPROTO_IP, _IP_MTU_DISCOVER), (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER)):
        with contextlib.suppress(OSError):
            sock.setsockopt(level, option, _PROBE)
