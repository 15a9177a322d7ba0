"""Frames on a line, written to a file by a process on a host and read by tests.

`python -m tests.net.support.sniff INTERFACE FILE` prints "up" when it listens, and ends with standard input.
"""

from __future__ import annotations

import ipaddress
import select
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.wire.control_packets import Packet
from pgm.wire.formats import TYPE_AT, PacketType
from pgm.wire.train import Data, Train
from tests.net.support.lab import Host

TSHARK = shutil.which("tshark")
PGM = 113
UDP = 17

_ALL_FRAMES = 3  # ETH_P_ALL
_LONGEST = 65_549
_FILE_HEAD = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, _LONGEST, 1)
_FRAME_HEAD = struct.Struct("<IIII")
_ETHERNET = struct.Struct(">6s6sH")
_IPV4, _IPV6 = 0x0800, 0x86DD
_HOP_BY_HOP, _FRAGMENT = 0, 44


@attrs.frozen
class Frame:
    """One IP packet as it was on the wire."""

    version: int
    protocol: int
    source: str
    destination: str
    hops: int
    has_alert: bool
    is_fragment: bool
    length: int  # of the IP packet
    payload: bytes

    @property
    def is_multicast(self) -> bool:
        return ipaddress.ip_address(self.destination).is_multicast

    @property
    def octets(self) -> bytes:
        """Return the PGM packet."""
        return self.payload[8:] if self.protocol == UDP else self.payload

    @property
    def items(self) -> list[Data | Packet]:
        """Return the content of the PGM packet, which must be valid."""
        items, rejects = Train.of(self.octets, len(self.octets)).parse_untrusted()
        assert not rejects, rejects
        return items

    @property
    def kind(self) -> PacketType:
        return PacketType(self.octets[TYPE_AT])


@contextmanager
def sniffing(host: Host, interface: str, file: Path) -> Iterator[None]:
    """Write the frames of a host's interface to a file while the block runs."""
    command = host.wrap([sys.executable, "-m", "tests.net.support.sniff", interface, str(file)])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            yield
        finally:
            process.stdin.close()
            process.wait()
    assert process.returncode == 0


def frames(file: Path) -> list[Frame]:
    """Return the PGM packets in a file, directly over IP or over UDP; ignore all others."""
    octets = file.read_bytes()
    at, found = len(_FILE_HEAD), []
    while at < len(octets):
        size = _FRAME_HEAD.unpack_from(octets, at)[2]
        at += _FRAME_HEAD.size
        frame = _read(octets[at : at + size])
        at += size
        if frame is not None and frame.protocol in (PGM, UDP):
            found.append(frame)
    return found


def _read(octets: bytes) -> Frame | None:
    ether_type = _ETHERNET.unpack_from(octets)[2]
    packet = octets[_ETHERNET.size :]
    if ether_type == _IPV4:
        return _read_ipv4(packet)
    return _read_ipv6(packet) if ether_type == _IPV6 else None


def _read_ipv4(packet: bytes) -> Frame:
    header, length = 4 * (packet[0] & 15), int.from_bytes(packet[2:4], "big")
    return Frame(
        version=4,
        protocol=packet[9],
        source=socket.inet_ntop(socket.AF_INET, packet[12:16]),
        destination=socket.inet_ntop(socket.AF_INET, packet[16:20]),
        hops=packet[8],
        has_alert=packet[20:header] == bytes((0x94, 4, 0, 0)),
        is_fragment=bool(int.from_bytes(packet[6:8], "big") & 0x3FFF),
        length=length,
        payload=packet[header:length],
    )


def _read_ipv6(packet: bytes) -> Frame:
    length, following, at = 40 + int.from_bytes(packet[4:6], "big"), packet[6], 40
    has_alert = is_fragment = False
    while following in (_HOP_BY_HOP, _FRAGMENT):
        size = 8 if following == _FRAGMENT else 8 * (packet[at + 1] + 1)
        has_alert |= following == _HOP_BY_HOP and packet[at + 2 : at + 4] == bytes((5, 2))
        is_fragment |= following == _FRAGMENT
        following, at = packet[at], at + size
    return Frame(
        version=6,
        protocol=following,
        source=socket.inet_ntop(socket.AF_INET6, packet[8:24]),
        destination=socket.inet_ntop(socket.AF_INET6, packet[24:40]),
        hops=packet[7],
        has_alert=has_alert,
        is_fragment=is_fragment,
        length=length,
        payload=packet[at:length],
    )


def complaints(file: Path) -> list[str]:
    """Return tshark's complaints about packets of protocol 113 in a file.

    These are malformed packets, bad checksums and unknown packets. The dissector ignores SPMRs, because it does not
    take a header without a body for PGM.
    """
    assert TSHARK is not None
    fields = ["frame.number", "pgm.hdr.type", "pgm.hdr.cksum.status", "_ws.malformed", "_ws.expert.message"]
    options = [part for field in fields for part in ("-e", field)]
    command = [TSHARK, "-r", str(file), "-Y", "pgm && !icmp && !icmpv6", "-T", "fields", "-E", "occurrence=l", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    # A status of 1 is a good checksum.
    found = [line for line in lines if line.split("\t")[2] != "1" or line.split("\t")[3]]
    wanted = sum(frame.kind is not PacketType.SPMR for frame in frames(file))
    return found if len(lines) == wanted else [*found, f"{len(lines)} packets decoded of {wanted}"]


def main(interface: str, file: str) -> None:
    """Write frames until standard input ends, including those that have arrived by then."""
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES)) as sock,
        Path(file).open("wb") as output,
    ):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
        sock.bind((interface, _ALL_FRAMES))
        output.write(_FILE_HEAD)
        print("up", flush=True)
        is_over = False
        while not is_over or select.select([sock], [], [], 0)[0]:
            ready = select.select([sock, *([] if is_over else [sys.stdin])], [], [])[0]
            is_over |= sys.stdin in ready
            if sock in ready:
                frame = sock.recv(_LONGEST)
                output.write(_FRAME_HEAD.pack(0, 0, len(frame), len(frame)) + frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
