"""An authenticated stream on real sockets: forged requests end at the first node, and repairs go on."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.trust.private_keys import PrivateFile
from pgm.wire.control_packets import Nak, Spmr, encode
from tests.net.support.elements import Tree, running
from tests.net.support.places import Place, below_a_relay
from tests.net.trees.test_random_octets import deliver, guns
from tests.unit.trust.keys import private_keys

KEYS = {name: private_keys(number) for number, name in enumerate(("source", "relay", "repairer", "desk-1"))}
FORGED = 200  # NAKs for each parent
PARENTS = ("source", "relay", "repairer")


@pytest.fixture
def topology(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    refusal = "kernel_refusal_after = 0"  # every forgery reaches its node
    text = below_a_relay(
        place, rate="100Mbit/s", loss='{ loss = "5%" }', has_repairer=True, parameters=refusal
    ).replace("data_port = 7500", "data_port = 7500\nauthenticated = true", 1)
    lines = "\n".join(f'{name} = ["{keys.public.line}"]' for name, keys in KEYS.items())
    found = loads(f"{text}\n[keys]\n{lines}\n")
    for name, keys in KEYS.items():
        write_private_file(place_of(found.name, name), PrivateFile(found.name, name, keys))
    return found


def _own_ports(tree: Tree, name: str) -> list[tuple[str, int]]:
    """Return the addresses at which a node takes requests."""
    driver = tree.drivers[name]
    return [link.sockets.own.getsockname()[:2] for link in driver.links if link.segment.downstream]


async def test_forged_naks_end_at_the_first_node(topology: Topology, place: Place) -> None:
    async with running(topology, "relay", "repairer", "desk-1", "source") as tree:
        with guns(place) as (stranger, *_):
            await deliver(tree, 100)
            session = {"tsi": tree.sources["source"].tsi, "data_port": 7500}
            nlas = {"source_nla": place.address(1), "group_nla": place.group(1)}
            before = {name: tree.core(name).counters.nak_packets_in for name in PARENTS}
            for sqn in range(FORGED):
                for name in PARENTS:
                    for port in _own_ports(tree, name):
                        stranger.fire(encode(Nak(sqn=sqn % 100, **session, **nlas)), port)
                        stranger.fire(encode(Spmr(**session)), port)
                await trio.lowlevel.checkpoint()
            with trio.fail_after(10):
                for name in PARENTS:
                    while tree.core(name).counters.uncoded_packets < 2 * FORGED:
                        await trio.testing.wait_all_tasks_blocked(0.01)
            assert {name: tree.core(name).counters.nak_packets_in for name in PARENTS} == before
            await deliver(tree, 300)
        desk = tree.core("desk-1").counters
        assert desk.nak_packets > 0
        assert desk.lost_sqns == desk.unaddressed_requests == 0
        assert sum(tree.core(name).counters.nak_packets_in for name in PARENTS) > sum(before.values())


async def test_receiver_of_an_authenticated_stream_needs_its_key(topology: Topology, tmp_path: Path) -> None:
    for file in (tmp_path / "keys").rglob("desk-1.*"):
        file.unlink()
    with pytest.raises(KeyRefused, match="has no private file"):
        async with running(topology, "desk-1"):
            pass
