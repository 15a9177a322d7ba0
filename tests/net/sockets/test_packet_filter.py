"""Kernel filter of unlisted senders."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pgm.net.sockets.packet_filter import ALL_SENDERS, SAMPLE, SenderLists, attach, detach
from pgm.wire.control_packets import Nak, Spm, Spmr, encode
from pgm.wire.formats import PacketType
from tests.reference import data_packet

PORT, OPEN_PORT = 7500, 7501
SHOTS = 2 * SAMPLE
MEMBER, SOURCE, STRANGER, OWN = "127.0.0.3", "127.0.0.9", "127.0.0.66", "127.0.0.1"
# One of many lists: ranges of addresses, so the search has several steps.
MANY = frozenset(f"127.0.{net}.{host}" for net in range(40) for host in (3, 4, 5, 100))
LISTS = SenderLists({PORT: frozenset({SOURCE, "127.0.0.10"})}, {PORT: MANY | {SOURCE}})


def packets(port: int) -> dict[str, bytes]:
    """Return a packet of each kind for a data port."""
    tsi, nlas = b"source" + PORT.to_bytes(2, "big"), {"source_nla": SOURCE, "group_nla": "239.0.0.1"}
    return {
        "odata": data_packet(1, b"x", tsi=tsi, data_port=port),
        "rdata": data_packet(1, b"x", tsi=tsi, data_port=port, kind=PacketType.RDATA),
        "spm": encode(Spm(tsi=tsi, data_port=port, spm_sqn=1, trail=0, lead=0, path_nla=SOURCE)),
        "nak": encode(Nak(tsi=tsi, data_port=port, sqn=1, **nlas)),
        "ncf": encode(Nak(tsi=tsi, data_port=port, sqn=1, kind=PacketType.NCF, **nlas)),
        "spmr": encode(Spmr(tsi=tsi, data_port=port)),
    }


def passed(ear: socket.socket, sender: str, octets: bytes, shots: int = SHOTS) -> int:
    """Return how many copies of a packet pass."""
    with socket.socket(ear.family, socket.SOCK_DGRAM) as gun:
        gun.bind((sender, 0))
        count = 0
        for _ in range(shots):
            gun.sendto(octets, ear.getsockname())
            try:
                assert ear.recv(100) == octets
            except BlockingIOError:
                continue
            count += 1
        return count


@pytest.fixture
def ear() -> Iterator[socket.socket]:
    """Return a socket that does not wait."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((OWN, 0))
        sock.setblocking(False)
        yield sock


def test_packets_of_unlisted_senders_are_dropped_but_a_sample(ear: socket.socket) -> None:
    program = LISTS.program(OWN)
    assert program is not None
    assert attach(ear, program)
    for name, octets in packets(PORT).items():
        is_of_source = name in ("odata", "rdata", "spm")
        for sender in (SOURCE, OWN, MEMBER, "127.0.39.100", STRANGER, "127.0.0.6", "127.0.0.99"):
            listed = LISTS.sources if is_of_source else LISTS.members
            if sender == OWN or sender in listed[PORT]:
                assert passed(ear, sender, octets, 3) == 3, (name, sender)
            else:
                assert passed(ear, sender, octets) < SHOTS / 4, (name, sender)
    assert passed(ear, STRANGER, packets(PORT)["nak"], 30 * SAMPLE) > 0
    detach(ear)
    assert passed(ear, STRANGER, packets(PORT)["nak"], 3) == 3


def test_packets_without_a_list_pass(ear: socket.socket) -> None:
    assert ALL_SENDERS.program(OWN) is None
    program = LISTS.program(OWN)
    assert program is not None
    assert attach(ear, program)
    for octets in (*packets(OPEN_PORT).values(), b"", b"short", b"\x1d\x4c\x1d\x4c\x0f" + bytes(30)):
        assert passed(ear, STRANGER, octets, 3) == 3, octets
    without_members = SenderLists(LISTS.sources).program(OWN)
    assert without_members is not None
    assert attach(ear, without_members)
    assert passed(ear, STRANGER, packets(PORT)["nak"], 3) == 3


def test_ipv6_senders_are_compared() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as ear:
        ear.bind(("::1", 0))
        ear.setblocking(False)
        octets = packets(PORT)["odata"]
        for listed in ("fd00::7", "::1"):
            program = SenderLists({PORT: frozenset({listed, "fd00::8"})}).program("fd00::9")
            assert program is not None
            assert attach(ear, program)
            assert (passed(ear, "::1", octets) == SHOTS) is (listed == "::1")


def test_lists_too_long_for_the_kernel_give_no_filter() -> None:
    scattered = frozenset(f"10.{net}.{host}.1" for net in range(10) for host in range(0, 200, 2))
    assert SenderLists({PORT: scattered}).program(OWN) is None
    near = frozenset(f"10.0.{net}.{host}" for net in range(40) for host in range(256))
    assert SenderLists({PORT: near}).program(OWN) is not None
