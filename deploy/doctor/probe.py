"""Multicast probes: this machine and others send, and hear each other."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import attrs

from deploy.doctor.findings import HostFinding, advice, fault, ok
from pgm.errors import TransportError
from pgm.net.sockets.interfaces import needs_scope
from pgm.net.sockets.open import SegmentSockets, open_sockets, socket_name
from pgm.parameters import Parameters
from pgm.topology.node_plan import SegmentPlan

PACKETS = 5
_PATIENCE_S = 0.5  # until own packets return; the kernel returns them at once
_AGAIN_S = 0.25  # between two rounds of probes during --listen
_MOST_HOSTS = 64  # remembered for a segment
_MARK = b"pgm-doctor"  # not a PGM packet: running nodes count it as rejected
_PACKET_TEXT = re.compile(rb"pgm-doctor ([\w.-]{1,63}) ([0-9a-f]{16}) ")
_LARGEST = 65_536
OnHeard = Callable[[str, str], None]  # called with segment and host, once for each pair


@attrs.define(eq=False)
class _Probe:
    """Probe of one segment, with its results."""

    segment: SegmentPlan
    sockets: SegmentSockets
    packet: bytes
    nonce: bytes
    on_heard: OnHeard
    sent: int = 0
    back: int = 0
    refused: str = ""
    hosts: set[str] = attrs.field(factory=set)

    def send(self, count: int) -> None:
        """Send packets to the group."""
        is_raw = self.segment.transport == "ip"
        to = socket_name(
            self.segment.group, 0 if is_raw else self.segment.port, self.sockets.interface, self.sockets.family
        )
        for _ in range(count):
            try:
                self.sockets.own.sendto(self.packet, to)
                self.sent += 1
            except OSError as error:
                self.refused = error.strerror or str(error)

    def hear(self, sock: socket.socket) -> None:
        """Read all packets that are waiting."""
        while True:
            try:
                octets = sock.recv(_LARGEST)
            except OSError:
                return
            match = _PACKET_TEXT.search(octets)
            if match is None:
                continue
            if match[2] == self.nonce:
                self.back += 1
            elif (host := match[1].decode()) not in self.hosts and len(self.hosts) < _MOST_HOSTS:
                self.hosts.add(host)
                self.on_heard(self.segment.name, host)


def probe(segments: Mapping[SegmentPlan, int], listen_s: float, on_heard: OnHeard) -> Iterator[HostFinding]:
    """Send packets on each segment and report the packets that returned.

    `segments` gives the octets of a packet for each segment. For `listen_s` seconds, or until Ctrl-C, packets of other
    machines are reported as well.
    """
    probes: list[_Probe] = []
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for segment, packet in segments.items():
            try:
                segment_probe = _open(segment, packet, on_heard)
            except TransportError as error:
                yield fault("multicast", segment.name, f"not probed: {error.message}", segment.where, error.remedy)
                continue
            stack.callback(segment_probe.sockets.close)
            assert segment_probe.sockets.group is not None
            selector.register(segment_probe.sockets.group, selectors.EVENT_READ, segment_probe)
            probes.append(segment_probe)
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the listening early
            _exchange(selector, probes, listen_s)
    for segment_probe in probes:
        yield from _findings_of(segment_probe, is_listening=listen_s > 0)


def _open(segment: SegmentPlan, packet: int, on_heard: OnHeard) -> _Probe:
    """Open sockets like a receiver's, which work beside running nodes."""
    heard = attrs.evolve(segment, address=None, upstream=True, downstream=False)
    nonce = os.urandom(8).hex().encode()
    host = re.sub(rb"[^\w.-]", b"-", socket.gethostname().encode())[:63] or b"-"
    octets = b" ".join((_MARK, host, nonce, b"")).ljust(packet, b".")
    return _Probe(segment, open_sockets(heard, Parameters(gro=False)), octets, nonce, on_heard)


def _exchange(selector: selectors.BaseSelector, probes: Sequence[_Probe], listen_s: float) -> None:
    begun = time.monotonic()
    for segment_probe in probes:
        segment_probe.send(PACKETS)
    again, until = begun + _AGAIN_S, begun + (listen_s or _PATIENCE_S)
    while (now := time.monotonic()) < until:
        if not listen_s and all(segment_probe.back >= segment_probe.sent for segment_probe in probes):
            return
        if listen_s and now >= again:
            again = now + _AGAIN_S
            for segment_probe in probes:
                segment_probe.send(1)
        for key, _ in selector.select(max(0.0, min(again if listen_s else until, until) - now)):
            key.data.hear(key.fileobj)


def _findings_of(segment_probe: _Probe, *, is_listening: bool) -> Iterator[HostFinding]:
    segment = segment_probe.segment
    name, text = segment.name, f"all packets sent to {segment.where}"
    found = f"{segment_probe.back} of {segment_probe.sent} packets of {len(segment_probe.packet)} octets came back"
    port = "ip protocol 113" if segment.transport == "ip" else f"udp dport {segment.port}"
    family = "ip6" if needs_scope(segment.group) or ":" in segment.group else "ip"
    remedy = f"allow the packets in the firewall: nft list ruleset; nft add rule inet filter input {family} daddr {segment.group} {port} accept"
    if segment_probe.refused:
        yield fault(
            "multicast",
            name,
            f"not sent: {segment_probe.refused}",
            text,
            "check the MTU and the firewall: nft list ruleset",
        )
    elif segment_probe.back < segment_probe.sent:
        yield fault("multicast", name, found, text, remedy)
    else:
        yield ok("multicast", name, found, text)
    if is_listening and segment_probe.hosts:
        yield ok("other machines", name, f"heard {', '.join(sorted(segment_probe.hosts))}")
    elif is_listening:
        remedy = "run the same command there at the same time; else check VLANs, IGMP snooping without a querier, and multicast_hops"
        yield advice("other machines", name, "none heard", "the machines of the segment", remedy)
