"""Random octets, damaged packets and packets of unknown senders at every port.

Counters grow, and nothing else changes.
"""

from __future__ import annotations

import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio
import trio.testing

from pgm import Lost
from pgm.core.counters import ROWS, Counters
from pgm.core.status import SessionStatus
from pgm.net.sockets.open import SOL_UDP, UDP_SEGMENT
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.wire.control_packets import Nak, Spm, Spmr, encode
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.options import Fin, NakList
from tests.net.support.elements import Tree, running
from tests.net.support.listening import take_all
from tests.net.support.places import Place, below_a_relay
from tests.reference import data_packet, sealed

SEED = int(os.environ.get("PGM_SEED", "1"))
SHOTS = 400  # datagrams or trains at each port
# Counters that junk may raise at a node; everything else must stay as it was.
JUNK = {
    "foreign_packets",
    "nak_packets_foreign",
    "trains_in",
    "packets_in",
    "truncated_reads",
    "ncf_packets_below",
    "injected_losses",
}
# No node sends anything by itself.
QUIET = (
    'ambient_spm_ivl = "1000s", ihb_min = "1000s", ihb_max = "1000s", stall_ivl = "2000s", peer_expiry = "3000s", '
    'session_expiry = "3600s"'
)


def topology_text(place: Place, quiet: bool) -> str:
    """Return a topology with a relay, a repairer and receivers below it; the source's timers may be stopped."""
    return below_a_relay(
        place,
        parameters=", ".join(['join_ivl = "1ms"', *([QUIET] if quiet else [])]),
        rate="100Mbit/s",
        quiet="300ms",
        loss='{ loss = "5%" }',
        has_repairer=True,
    )


NODES = ("relay", "repairer", "desk-1", "source")


class Gun:
    """Sender of datagrams and trains from an address, or from a node's address by another port."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((address, 0))
        request = struct.pack("=4s4si", bytes(4), bytes(4), socket.if_nametoindex("lo"))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, request)

    def fire(self, octets: bytes, to: tuple[str, int], stride: int = 0) -> None:
        ancillary = [(SOL_UDP, UDP_SEGMENT, struct.pack("=H", stride))] if stride else []
        self._socket.sendmsg([octets], ancillary, 0, to)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def guns(place: Place) -> Iterator[list[Gun]]:
    """Return an unknown sender, and impostors at the addresses of source and relay."""
    made = [Gun(place.address(host)) for host in (66, 1, 3)]
    try:
        yield made
    finally:
        for gun in made:
            gun.close()


def ports_of(tree: Tree) -> list[tuple[str, int]]:
    """Return every address and group on which some node listens."""
    found = [
        one.getsockname()[:2]
        for driver in tree.drivers.values()
        for link in driver.links
        for one in (link.sockets.own, *link.inputs)
        if isinstance(one, socket.socket)
    ]
    return sorted(set(found))


def real_packets(place: Place, tsi: Tsi) -> list[bytes]:
    """Return packets that the running nodes would accept unchanged."""
    naked = {"tsi": tsi, "data_port": 7500, "source_nla": place.address(1), "group_nla": place.group(0)}
    return [
        encode(Spm(tsi=tsi, data_port=7500, spm_sqn=9999, trail=0, lead=5000, path_nla=place.address(1))),
        encode(
            Spm(tsi=tsi, data_port=7500, spm_sqn=9999, trail=0, lead=5, path_nla=place.address(3), options=(Fin(),))
        ),
        encode(Nak(kind=PacketType.NAK, sqn=3, **naked)),
        encode(Nak(kind=PacketType.NAK, sqn=3, options=(NakList(sqns=tuple(range(4, 40))),), **naked)),
        encode(Nak(kind=PacketType.NCF, sqn=3, **naked)),
        encode(Nak(kind=PacketType.NNAK, sqn=3, **naked)),
        encode(Spmr(tsi=tsi, data_port=7500)),
        data_packet(7, b"x" * 1400, tsi=tsi),
        data_packet(8, b"", tsi=tsi),
        data_packet(3, b"y" * 100, tsi=tsi, kind=PacketType.RDATA),
    ]


def damaged(rng: random.Random, packet: bytes) -> bytes:
    """Return a packet with one octet changed, its end cut off, or octets appended; never a valid one."""
    while True:
        kind = rng.randrange(3)
        if kind == 0:
            at = rng.randrange(len(packet))
            changed = packet[:at] + bytes([packet[at] ^ rng.randrange(1, 256)]) + packet[at + 1 :]
        elif kind == 1:
            changed = packet[: rng.randrange(len(packet))]
        else:
            changed = packet + rng.randbytes(rng.choice([1, 2, 4, 1000]))
        if changed[6:8] != b"\0\0" and sealed(changed.ljust(16, b"\0")) != changed:
            return changed


def junk(rng: random.Random, packets: list[bytes]) -> tuple[bytes, int]:
    """Draw octets, and the size into which they are cut: 0 for a single datagram."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 15, 16, 17, 24, 60, 1472, 30_000, 65_507])), 0
    if kind == 1:
        stride = rng.choice([1, 15, 16, 100, 1472])
        return rng.randbytes(stride * rng.randrange(2, 20) + rng.randrange(stride)), stride
    if kind == 2:
        return damaged(rng, rng.choice(packets)), 0
    packet = rng.choice(packets)
    rows = [damaged(rng, packet).ljust(len(packet), b"\1")[: len(packet)] for _ in range(8)]
    return b"".join(row for row in rows if sealed(row) != row), len(packet)


def strangers(rng: random.Random, packets: list[bytes]) -> bytes:
    """Draw a packet with a valid checksum, of a session or stream that no node follows."""
    packet = bytearray(rng.choice(packets))
    upstream = packet[4] in (PacketType.NAK, PacketType.NNAK, PacketType.SPMR)
    at = 0 if upstream else 2
    packet[at : at + 2] = (9999).to_bytes(2, "big")  # the data port
    packet[8:14] = b"evil" + bytes([0, rng.randrange(256)])
    if len(packet) > 16 and rng.random() < 0.5:
        packet[rng.randrange(16, len(packet))] = rng.randrange(256)
    return sealed(bytes(packet))


def state_of(tree: Tree) -> dict[str, list[SessionStatus]]:
    """Return every core's knowledge of its sessions, without times."""
    return {
        name: [attrs.evolve(row, silent_ns=0) for row in driver.core.status(0)] for name, driver in tree.drivers.items()
    }


def values_of(counters: Counters) -> dict[str, int]:
    return {row.name: getattr(counters, row.name) for row in ROWS}


async def deliver(tree: Tree, count: int) -> list[bytes]:
    """Send messages. Return those that the receiver got."""
    sent = [b"%08d" % number * 20 for number in range(count)]
    got: list[bytes] = []
    await tree.sources["source"].send_batch(sent)
    with trio.fail_after(30):
        while len(got) < count:
            item = await tree.receivers["desk-1"].next_batch()
            assert not isinstance(item, Lost)
            got += item if hasattr(item, "payloads") else []  # type: ignore[operator]
    assert got == sent
    return got


async def test_junk_at_a_silent_tree_changes_nothing_but_counters(place: Place) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    async with running(loads(topology_text(place, quiet=True)), *NODES) as tree:
        with guns(place) as stand:
            await deliver(tree, 200)
            await trio.testing.wait_all_tasks_blocked(0.05)
            packets = real_packets(place, tree.sources["source"].tsi)
            state = state_of(tree)
            counters = {name: values_of(driver.core.counters) for name, driver in tree.drivers.items()}
            for port in ports_of(tree):
                for shot in range(SHOTS):
                    octets, stride = junk(rng, packets)
                    rng.choice(stand).fire(octets[:60_000] if stride else octets, port, stride)
                    if shot % 20 == 19:
                        await trio.testing.wait_all_tasks_blocked()
            await trio.testing.wait_all_tasks_blocked(0.05)
            for name, driver in tree.drivers.items():
                now = driver.core.counters
                differs = {
                    key: (was, getattr(now, key))
                    for key, was in counters[name].items()
                    if key not in JUNK and getattr(now, key) != was
                }
                assert not differs, name
                assert now.packets_in > counters[name]["packets_in"] + SHOTS
                assert sum(now.rejects.values()) > SHOTS, name
                assert now.rejects["checksum"] > 0
                assert now.rejects["truncated"] > 0
            assert state_of(tree) == state
            await deliver(tree, 200)


async def test_a_stream_goes_on_under_a_hail_of_junk(place: Place) -> None:
    """Junk comes with every batch, and some more during the last repair.

    The amount does not depend on the speed of the machine.
    """
    rng = random.Random(SEED + 1)
    print(f"seed {SEED + 1}")
    text = topology_text(place, quiet=False)
    async with running(loads(text), "relay", "repairer", "desk-1") as tree:
        sent = [rng.randbytes(rng.choice([20, 800, 1400, 4000])) for _ in range(3000)]
        with guns(place) as stand:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(publish, Hail(rng, stand, place, tree), loads(text), sent)
                taken = await take_all(tree.receivers["desk-1"])
        print(taken.events)
        assert [one for one in taken.messages if not one.startswith(b"evil")] == sent
        assert not taken.lost
        assert len(taken.closed) == 1
        assert taken.counters.foreign_packets > 0
        for name in ("relay", "repairer"):
            counters = tree.core(name).counters
            assert counters.rejects["checksum"] > 100
            assert counters.foreign_packets > 10
            assert len(tree.core(name).status(0)) <= 64


async def publish(hail: Hail, topology: Topology, sent: list[bytes]) -> None:
    async with running(topology, "source") as tree:
        hail.aim(tree)
        for at in range(0, len(sent), 10):
            await tree.sources["source"].send_batch(sent[at : at + 10])
            hail.volley()
            await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hail.drizzle)
            await tree.sources["source"].aclose()


class Hail:
    """Junk at every port of a tree and of a source."""

    def __init__(self, rng: random.Random, stand: list[Gun], place: Place, tree: Tree) -> None:
        self._rng = rng
        self._stand = stand
        self._place = place
        self._tree = tree
        self._ports: list[tuple[str, int]] = []
        self._packets: list[bytes] = []

    def aim(self, source_tree: Tree) -> None:
        self._ports = ports_of(self._tree) + ports_of(source_tree)
        self._packets = real_packets(self._place, source_tree.sources["source"].tsi)

    def volley(self) -> None:
        rng = self._rng
        for _ in range(5):
            if rng.random() < 0.5:
                octets, stride = strangers(rng, self._packets), 0
            else:
                octets, stride = junk(rng, self._packets)
            rng.choice(self._stand).fire(octets[:60_000] if stride else octets, rng.choice(self._ports), stride)

    async def drizzle(self) -> None:
        for _ in range(50):
            self.volley()
            await trio.sleep(0.01)
