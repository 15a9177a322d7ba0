"""Nodes of this version and of the one before in one tree."""

from __future__ import annotations

import itertools

import pytest

from pgm.wire.train import Train
from tests.versions.bridge import BridgedCore, OtherVersion
from tests.versions.checkout import BEFORE, unpack, why_not
from tests.versions.cores import KINDS, NEW_DESK, OLD_DESK, MixedTree

needs_history = pytest.mark.skipif(bool(why_not()), reason=why_not())


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> OtherVersion:
    return OtherVersion(unpack(BEFORE, tmp_path_factory.mktemp("old")))


# Receivers of both versions are in every tree. `python -m tests.versions.cores` runs all kinds with all mixtures.
_MIXTURES = ("source", "relay repairer")
_CASES = [("plain", "source"), *zip(KINDS, itertools.cycle(reversed(_MIXTURES)), strict=False)]


@needs_history
@pytest.mark.parametrize(("kind", "older"), _CASES)
def test_two_versions_repair_losses_for_each_other(version: OtherVersion, kind: str, older: str) -> None:
    tree = MixedTree(version, kind, set(older.split()))
    tree.finish()
    nodes = tree.world.nodes
    for name in (OLD_DESK, NEW_DESK):
        assert kind == "unreliable" or nodes[name].total("repaired_sqns") > 0, name


@needs_history
@pytest.mark.parametrize("older", [{"relay", "repairer"}, set()], ids=["to-this-one", "back"])
def test_elements_change_their_version_in_mid_stream(version: OtherVersion, older: set[str]) -> None:
    tree = MixedTree(version, "plain", older)
    tree.replace_in_mid_stream(("repairer", "relay"))
    tree.finish()
    assert [tree.world.nodes[name].starts for name in ("relay", "repairer")] == [2, 2]


@needs_history
def test_bridged_cores_are_those_of_the_other_version(version: OtherVersion) -> None:
    tree = MixedTree(version, "plain", {"relay"})
    tree.world.run_until(1)
    bridged = {name for name, node in tree.world.nodes.items() if type(node.core) is BridgedCore}
    assert bridged == {"relay", OLD_DESK}
    assert version.named("pgm.wire.train").Train is not Train
    relay = tree.world.core_of("relay")
    assert isinstance(relay, BridgedCore)
    assert type(relay.other) is version.named("aggregator.core").AggregatorCore
