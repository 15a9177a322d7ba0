"""Plain UDP sockets: the upper limit of throughput with GSO and GRO, the naive bound with one datagram a call."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deploy.bench.peers.control import PROBE_IVL_S, QUIET_S, Control, run_end
from deploy.bench.peers.messages import pattern
from deploy.bench.peers.pace import Pace
from deploy.bench.peers.round_trips import RoundTrips, TripResult
from pgm.net.sockets.open import SO_RXQ_OVFL, SOL_UDP, UDP_GRO, UDP_SEGMENT

_READ_OCTETS = 65_536
_MAX_SEND_OCTETS = 65_400  # of one call, with GSO
_MAX_SEGMENTS = 64
_PROBE = b"?"
_INT = struct.Struct("=i")
_MREQN = struct.Struct("@4s4s")
_LOOK_READS = 256  # between two checks for commands while packets arrive
_WAIT_S = 0.02


def sending_socket(job: Mapping[str, Any], seat: str, group: int) -> socket.socket:
    """Return a socket that is connected to a group."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own = job[seat]["address"]
    sock.bind((own, 0))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, job["sndbuf"])
    sock.connect((job["groups"][group], job["port"]))
    return sock


def listening_socket(job: Mapping[str, Any], seat: str, group: int) -> socket.socket:
    """Return a socket that has joined a group."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((job["groups"][group], job["port"]))
    membership = _MREQN.pack(socket.inet_aton(job["groups"][group]), socket.inet_aton(job[seat]["address"]))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, job["rcvbuf"])
    sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    return sock


def segment_of(job: Mapping[str, Any]) -> int:
    """Return the octets of a datagram: a message, or the part of it that fits."""
    return int(min(job["size"], job["max_datagram"], _MAX_SEND_OCTETS))


def send(control: Control, job: Mapping[str, Any]) -> None:
    """Send probes, then datagrams. With GSO a call sends a train, else one datagram."""
    sock = sending_socket(job, "sender", 0)
    control.say("ready")
    while control.word(PROBE_IVL_S) != "go":
        if control.is_over:
            return
        sock.send(_PROBE)
    segment = segment_of(job)
    count = min(_MAX_SEGMENTS, _MAX_SEND_OCTETS // segment) if job["gso"] else 1
    if job["gso"]:
        sock.setsockopt(SOL_UDP, UDP_SEGMENT, segment)
    train = memoryview(np.tile(pattern(segment), count).tobytes())
    pace = Pace(job["rate"] * job["size"] / segment)
    most = -(-job["messages"] * job["size"] // segment) or sys.maxsize
    begun_ns = time.monotonic_ns()
    until_ns = begun_ns + round(job["seconds"] * 1e9)
    sent = 0
    while sent < most and time.monotonic_ns() < until_ns:
        pace.wait(count)
        sock.send(train)
        sent += count
    seconds = (time.monotonic_ns() - begun_ns) / 1e9
    control.say("sent", messages=sent * segment // job["size"], seconds=seconds, packets=sent)
    control.wait_until_over()


def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Count datagrams until all arrived, or until `quiet_s` of silence. With GRO a call reads a train."""
    sock = listening_socket(job, "receiver", 0)
    if job["gso"]:
        sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    control.say("ready")
    sock.settimeout(_WAIT_S)
    buffer = bytearray(_READ_OCTETS)
    while not control.is_over:
        control.word()
        try:
            if sock.recv_into(buffer):
                break
        except TimeoutError:
            continue
    control.say("hears")
    result = _count(sock, control, buffer, segment_of(job), job)
    control.say("result", **result)
    control.wait_until_over()


def _count(
    sock: socket.socket, control: Control, buffer: bytearray, segment: int, job: Mapping[str, Any]
) -> dict[str, int]:
    octets = first_ns = last_ns = 0
    expected, quiet_s, reads = None, 0.0, 0
    recv_into = sock.recv_into
    while not control.is_over and quiet_s < job["quiet_s"]:
        try:
            count = recv_into(buffer)
        except TimeoutError:
            count = 0
        if count > len(_PROBE):
            octets += count
            last_ns = time.monotonic_ns()
            first_ns = first_ns or last_ns
            quiet_s = 0.0
        elif expected is not None and not count:
            quiet_s += _WAIT_S
        reads += 1
        if not count or reads % _LOOK_READS == 0:
            word = control.word()
            if word.startswith("expect"):
                expected = int(word.split()[1])
        if expected is not None and octets // segment * segment // job["size"] >= expected:
            break
    packets = octets // segment
    messages = packets * segment // job["size"]
    return {"messages": messages, "packets": packets, "first_ns": first_ns, "last_ns": last_ns}


# Round trips


def _spin(sock: socket.socket, buffer: bytearray, is_over: Callable[[], bool]) -> bool:
    while True:
        try:
            sock.recv_into(buffer)
        except BlockingIOError:
            if is_over():
                return False
            continue
        return True


def _block(sock: socket.socket, buffer: bytearray, _is_over: Callable[[], bool]) -> bool:
    try:
        sock.recv_into(buffer)
    except TimeoutError:
        return False
    return True


def _ends(job: Mapping[str, Any], *, is_ping: bool) -> tuple[socket.socket, socket.socket]:
    seat = "sender" if is_ping else "receiver"
    out, back = sending_socket(job, seat, 0 if is_ping else 1), listening_socket(job, seat, 1 if is_ping else 0)
    if job["busy_poll"]:
        back.setblocking(False)
    else:
        back.settimeout(QUIET_S if is_ping else _WAIT_S)
    return out, back


def ping(control: Control, job: Mapping[str, Any]) -> None:
    """Send requests and measure the times to their answers."""
    out, back = _ends(job, is_ping=True)
    take = _spin if job["busy_poll"] else _block
    control.say("ready")
    while control.word(_WAIT_S) != "go" and not control.is_over:
        pass
    payload, buffer = pattern(job["size"]).tobytes(), bytearray(_READ_OCTETS)
    trips = RoundTrips(job["seconds"])
    while not trips.are_over:
        trips.begin()
        out.send(payload)
        trips.end(TripResult.YES if take(back, buffer, _late()) else TripResult.NO)
    control.say("result", **trips.result())
    control.wait_until_over()


def _late() -> Callable[[], bool]:
    until_ns = time.monotonic_ns() + round(QUIET_S * 1e9)
    return lambda: time.monotonic_ns() > until_ns


def pong(control: Control, job: Mapping[str, Any]) -> None:
    """Answer each request."""
    back_out, listening = _ends(job, is_ping=False)
    take = _spin if job["busy_poll"] else _block
    control.say("ready")
    buffer = bytearray(_READ_OCTETS)
    answer = memoryview(buffer)[: job["size"]]
    until_ns = 0

    def is_pause() -> bool:
        return time.monotonic_ns() > until_ns

    while not control.is_over:
        until_ns = time.monotonic_ns() + round(_WAIT_S * 1e9)
        if take(listening, buffer, is_pause):
            back_out.send(answer)
        else:
            control.word()


if __name__ == "__main__":
    run_end({"send": send, "recv": recv, "ping": ping, "pong": pong})
