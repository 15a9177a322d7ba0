"""A signed stream through relay and repairer: packets are proved, and forged SPMs end at the first node."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
import trio.testing

import pgm
from pgm.core.window.proved_window import ProvedWindow
from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.trust.private_keys import PrivateFile
from pgm.wire.control_packets import Spm, encode
from pgm.wire.options import Fin, Rst
from pgm.wire.sequence_numbers import wrap
from tests.net.support.elements import Tree, running
from tests.net.support.listening import until
from tests.net.support.places import Place, below_a_relay
from tests.net.trees.test_random_octets import deliver, guns, ports_of
from tests.unit.trust.keys import private_keys

KEYS = private_keys(1)
BELOW = ("relay", "repairer", "desk-1")  # nodes that hear SPMs
FORGED = 3  # SPMs for each port


def signed_tree(place: Place, more: str = "") -> Topology:
    text = below_a_relay(place, rate="100Mbit/s", loss='{ loss = "5%" }', has_repairer=True).replace(
        "data_port = 7500", f'data_port = 7500\nsigned = true\nsources = ["any"]\n{more}', 1
    )
    return loads(f'{text}\n[keys]\nsource = ["{KEYS.public.line}"]\n')


@pytest.fixture
def topology(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    found = signed_tree(place)
    write_private_file(place_of(found.name, "source"), PrivateFile(found.name, "source", KEYS))
    return found


def _forgeries(tree: Tree, path: str) -> list[bytes]:
    source = tree.sources["source"]
    lead = tree.core("source").window.lead
    fields = {"tsi": source.tsi, "data_port": 7500, "trail": 0, "path_nla": path, "spm_sqn": 10_000}
    return [
        encode(Spm(lead=wrap(lead + (1 << 30)), **fields)),
        encode(Spm(lead=wrap(lead), options=(Fin(),), **fields)),
        encode(Spm(lead=wrap(lead), options=(Rst(),), **fields)),
    ]


async def test_forged_spms_end_at_the_first_node(topology: Topology, place: Place) -> None:
    began_ns = time.monotonic_ns()
    async with running(topology, *BELOW, "source") as tree:
        with guns(place) as (stranger, *_):
            await deliver(tree, 100)
            ports = [port for port in ports_of(tree) if port[0].startswith("239.")]
            for packet in _forgeries(tree, place.address(66)):
                for port in ports:
                    stranger.fire(packet, port)
            with trio.fail_after(10):
                for name in BELOW:
                    while tree.core(name).counters.forged_spm_packets < FORGED:
                        await trio.testing.wait_all_tasks_blocked(0.01)
            await deliver(tree, 100)
        for name in BELOW:
            row = next(row for row in tree.core(name).status(time.monotonic_ns()) if row.data_port == 7500)
            assert row.lead == tree.core("source").window.lead
            assert 0 <= row.verified_ns <= time.monotonic_ns() - began_ns
            assert tree.core(name).counters.lost_sqns == 0
        assert tree.core("desk-1").counters.forged_packets == 0
        [session] = tree.core("desk-1").sessions
        assert isinstance(session.window, ProvedWindow)
        assert session.window.next_sqn == tree.core("source").window.lead + 1


async def test_joiner_of_a_signed_stream_gets_a_snapshot(topology: Topology) -> None:
    with trio.fail_after(10):
        async with (
            running(topology, "relay", "repairer"),
            pgm.open_source(topology, node="source", snapshot=lambda: bytes(50_000), fin_quiet_ivl="50ms") as source,
            pgm.open_receiver(topology, node="desk-1", start="snapshot") as receiver,
        ):
            async for item in receiver:
                if isinstance(item, pgm.Snapshot):
                    assert item.payload == bytes(50_000)
                    await source.send(b"next", flush=True)
                elif isinstance(item, pgm.Message):
                    assert item.payload == b"next"
                    break
            assert receiver.counters.forged_spm_packets == receiver.counters.unverified_spm_packets == 0


async def test_source_of_a_signed_stream_needs_its_private_file(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "other"))
    with pytest.raises(KeyRefused, match="has no private file"):
        async with running(topology, "source"):
            pass


@pytest.mark.parametrize("verify", ["before", "after"])
async def test_durable_receiver_of_a_signed_stream_goes_on(
    topology: Topology, place: Place, tmp_path: Path, verify: str
) -> None:
    """Saved positions are proved in any case."""
    payloads = [b"%05d" % number for number in range(300)]
    topology = signed_tree(place, f'verify = "{verify}"')
    got: list[bytes] = []
    with trio.fail_after(10):
        async with running(topology, "relay", "repairer", "source") as tree:
            source = tree.sources["source"]
            for at in range(0, 300, 100):
                async with pgm.open_receiver(topology, node="desk-1", durable=tmp_path / "desk") as receiver:
                    if not at:
                        await until(lambda: receiver.known_sources)
                    for number in range(at, at + 100, 5):  # some messages share a train, and are proved together
                        await source.send_batch(payloads[number : number + 5], flush=True)
                    async for item in receiver:
                        assert not isinstance(item, (pgm.Lost, pgm.Forged)), item
                        if isinstance(item, pgm.Message):
                            got.append(item.payload)
                            if len(got) == at + 61:
                                break
                    [session] = receiver.driver.core.sessions
                    assert isinstance(session.window, ProvedWindow)
    assert got == payloads[: len(got)]
