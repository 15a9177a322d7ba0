"""A node with wrong keys opens no socket, and a tree without keys reads no file."""

from __future__ import annotations

import os
from datetime import date, timedelta
from pathlib import Path

import attrs
import pytest

from pgm.core.structures.arena import Arena
from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import KeyPlace, place_of
from pgm.net.keys.key_files import write_private_file
from pgm.net.keys.start_check import keys_on
from pgm.net.link.node_links import open_links
from pgm.topology.plan import plan_node
from pgm.trust.node_identity import NodeIdentity
from pgm.trust.private_keys import PrivateFile
from tests.unit.topology.trees import topology
from tests.unit.trust.keys import END, FIRST, private_keys

CURRENT, NEXT = private_keys(1), private_keys(2, END - timedelta(days=30), END + timedelta(days=700))
BOTH = NodeIdentity((CURRENT.public, NEXT.public))
DAY = date(2027, 1, 1)


@pytest.fixture
def place(tmp_path: Path) -> KeyPlace:
    place = place_of("tree", "exchange", chosen=tmp_path / "keys")
    for keys in (CURRENT, NEXT):
        write_private_file(place, PrivateFile("tree", "exchange", keys))
    return place


def test_node_gets_its_first_valid_keys(place: KeyPlace) -> None:
    for day, keys in ((DAY, CURRENT), (END - timedelta(days=1), CURRENT), (END, NEXT)):
        found = keys_on(BOTH, place, day)
        assert found is not None
        assert found.public == keys.public
        assert found.secret_octets() == keys.secret_octets()


def test_days_of_the_topology_file_hold(place: KeyPlace) -> None:
    longer = attrs.evolve(CURRENT.public, end_day=END + timedelta(days=10))
    found = keys_on(NodeIdentity((longer,)), place, END)
    assert found is not None
    assert found.public == longer


def test_node_whose_keys_are_revoked_is_refused(place: KeyPlace) -> None:
    with pytest.raises(KeyRefused, match=r"the keys .* of exchange are revoked, and it has no others") as caught:
        keys_on(NodeIdentity((), frozenset({CURRENT.public.id})), place, DAY)
    assert "pgm keys new" in caught.value.remedy
    with pytest.raises(KeyRefused, match=r"has no valid keys on 2027-01-01: .* revoked"):
        keys_on(NodeIdentity((CURRENT.public,), frozenset({CURRENT.public.id})), place, DAY)


def test_revoked_keys_of_other_nodes_concern_no_node(place: KeyPlace) -> None:
    others = frozenset({private_keys(9).public.id})
    assert keys_on(NodeIdentity((), others), place, DAY) is None
    assert keys_on(NodeIdentity((CURRENT.public,), others), place, DAY) is not None


def test_expired_and_early_keys_are_refused(place: KeyPlace) -> None:
    for day, state in ((END, "expired"), (FIRST - timedelta(days=1), "not yet valid")):
        with pytest.raises(KeyRefused, match=f"no valid keys on {day}: {CURRENT.public.id} {state}"):
            keys_on(NodeIdentity((CURRENT.public,)), place, day)


def test_node_without_its_private_file_is_refused(place: KeyPlace) -> None:
    with pytest.raises(KeyRefused, match="has no private file for them"):
        keys_on(NodeIdentity((private_keys(9).public,)), place, DAY)


def test_unsafe_file_keeps_the_sockets_closed(place: KeyPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is not of this machine: sockets that were opened would be refused with another error."""
    tree = topology(("version = 1", f'version = 1\nkeys.exchange = ["{CURRENT.public.line}"]'))
    plan = plan_node(tree, "exchange")
    monkeypatch.setenv("PGM_KEY_DIR", str(place.directory.parent))
    own = attrs.evolve(place, directory=place.directory.parent / "good", tree="good")
    for path in (write_private_file(own, PrivateFile("good", "exchange", CURRENT)),):
        path.chmod(0o644)
    with pytest.raises(KeyRefused, match="open to other users"):
        open_links(plan, Arena(1 << 16))


def test_tree_without_keys_reads_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("a folder was read"))
    from pgm.net.keys.start_check import own_keys

    assert own_keys(plan_node(topology(), "exchange")) is None
