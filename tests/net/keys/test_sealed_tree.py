"""A sealed stream through relay and repairer without keys: readers get all, and others nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import trio

import pgm
from pgm.core.effects import CloseCause
from pgm.errors import KeyRefused
from pgm.net.keys.kept_companions import keeping_companions
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.net.keys.stream_signatures import signers_of
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.topology.plan import plan_node
from pgm.trust.blocks import SignedSession
from pgm.trust.private_keys import PrivateFile
from pgm.trust.stream_secrets import StreamSealer
from tests.net.support.elements import running
from tests.net.support.places import Place, below_a_relay
from tests.net.trees.test_random_octets import deliver
from tests.unit.trust.keys import private_keys

KEYS = {"source": private_keys(1), "desk-1": private_keys(2), "desk-2": private_keys(3)}


def sealed_text(place: Place, *readers: str, loss: str = "") -> str:
    """Return the file of a tree whose elements have no keys."""
    text = below_a_relay(
        place, rate="100Mbit/s", loss=loss, has_repairer=True, parameters='secret_wait = "1s"', quiet="200ms"
    )
    text = text.replace("data_port = 7500", "data_port = 7500\nsigned = true\nsealed = true", 1)
    keys = "\n".join(f'{name} = ["{KEYS[name].public.line}"]' for name in ("source", *readers))
    return f"{text}\n[keys]\n{keys}\n"


def sealed_tree(place: Place, *readers: str, loss: str = "") -> Topology:
    return loads(sealed_text(place, *readers, loss=loss))


@pytest.fixture
def topology(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    monkeypatch.setenv("PGM_KEY_DIR", str(tmp_path / "keys"))
    found = sealed_tree(place, "desk-1", "desk-2", loss='{ loss = "5%" }')
    for name, keys in KEYS.items():
        write_private_file(place_of(found.name, name), PrivateFile(found.name, name, keys))
    return found


async def test_readers_get_all_until_they_are_revoked(topology: Topology, place: Place) -> None:
    async with running(topology, "relay", "repairer", "desk-1", "desk-2", "source") as tree:
        await deliver(tree, 50)
        first = tree.sources["source"].change_readers(sealed_tree(place, "desk-1"))
        assert first == 50
        await deliver(tree, 50)
        got = []
        with trio.fail_after(10):
            async for item in tree.receivers["desk-2"]:
                got.append(item)
                if isinstance(item, pgm.Closed):
                    break
        assert isinstance(got[-1], pgm.Closed)
        assert got[-1].cause is CloseCause.NO_SECRET
        assert len([item for item in got if isinstance(item, pgm.Message)]) <= 50
        assert tree.core("desk-1").counters.forged_packets == 0


async def test_receiver_without_keys_is_refused(topology: Topology) -> None:
    with pytest.raises(KeyRefused, match="s is sealed, and desk-3 has no keys"):
        async with pgm.open_receiver(topology, node="desk-3"):
            pass


async def test_reader_of_a_sealed_stream_gets_a_sealed_snapshot(topology: Topology) -> None:
    with trio.fail_after(10):
        async with (
            running(topology, "relay", "repairer"),
            pgm.open_source(topology, node="source", snapshot=lambda: bytes(50_000), fin_quiet_ivl="50ms"),
            pgm.open_receiver(topology, node="desk-1", start="snapshot") as receiver,
        ):
            async for item in receiver:
                if isinstance(item, pgm.Snapshot):
                    assert item.payload == bytes(50_000)
                    break


def test_recorder_without_keys_keeps_key_records_of_the_source_alone(topology: Topology) -> None:
    plan = plan_node(topology, "repairer")
    kept = keeping_companions(signers_of(plan.streams), plan.streams)
    assert (kept.sealed, kept.keeps_proofs) == (frozenset((7500,)), True)
    session = SignedSession(bytes(range(8)), time.time_ns())
    check = kept.proofs[7500](session.tsi, session.epoch)
    [record] = StreamSealer(session, KEYS["source"], [KEYS["desk-1"].public], 1000, os.urandom).records()
    assert check.take_record_untrusted(record)
    assert not check.take_record_untrusted(record[:-1] + bytes((record[-1] ^ 1,)))
    for keys, other in (KEYS["desk-2"], session), (KEYS["source"], SignedSession(session.tsi, session.epoch + 1)):
        [record] = StreamSealer(other, keys, [KEYS["desk-1"].public], 1000, os.urandom).records()
        assert not check.take_record_untrusted(record)
