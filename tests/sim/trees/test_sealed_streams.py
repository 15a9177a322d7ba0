"""Sealed streams through elements without keys: readers get every message, and nobody else gets any."""

from __future__ import annotations

import random

import pytest

from pgm.core.effects import CloseCause, LossCause
from pgm.core.interface import Core
from pgm.core.source.companions import CompanionSource
from pgm.core.source.key_records import KeyRecordSession
from pgm.sim.trees import TreeBuilder
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import SECOND
from pgm.wire.formats import Tsi
from pgm.wire.train import Data
from tests.sim.support.signed import Altering, Sealing, with_public_keys
from tests.sim.support.worlds import Tap, finish, lossy, make_world, parameters, stream, streams, traffic

MESSAGES = 240


def tree(**changes: object) -> TreeBuilder:
    """Return a tree with a relay, and a repairer on each segment."""
    tree = TreeBuilder(parameters(**changes))
    tree.source("source", "core")
    tree.repairer("core-repairer", "core", parents=("source",))
    tree.aggregator("relay", "core", "floor", parents=("core-repairer", "source"), repairers=("repairer",))
    tree.repairer("repairer", "floor", parents=("relay",))
    for index in range(3):
        tree.receiver(f"receiver-{index}", "floor", "repairer", "relay")
    return tree


@pytest.mark.parametrize(
    ("size", "changes"),
    [(200, {}), (4000, {}), (200, {"fec_group": 8, "fec_proactive": 1, "mark_ends": True})],
    ids=["packets", "fragments", "parity"],
)
def test_readers_get_all_and_the_wire_has_no_message(size: int, changes: dict[str, object]) -> None:
    tap = Tap(lambda item: isinstance(item, Data) and item.data_port == 7500 and not item.parity)
    wirings = {
        "receiver": lossy(0.05, duplicate=0.02, reorder=0.02),
        "repairer": lossy(0.02),
        "relay": lossy(0.02),
    }
    world = make_world(tree(**changes), traffic(MESSAGES, size), wirings=wirings, factory=Sealing(), more=(tap,))
    finish(world)
    assert all(one.is_complete and one.is_from_start for one in streams(world)), [one.lost for one in streams(world)]
    [ledger] = world.ledgers.values()
    assert {"source", "relay"} <= {name for _, name, *_ in tap.seen}
    for *_, item in tap.seen:
        assert isinstance(item, Data)
        run = item.run(item.wire_sqn)
        assert not any(ledger.has_rows(run.part(sqn, sqn + 1)) for sqn in range(run.first, run.end))


@pytest.mark.parametrize("start", ["now", "oldest"])
def test_late_joiners_get_the_secret_from_repairers(start: str) -> None:
    common = {"key_record_ivl": 60 * SECOND}  # no record is sent again while the test runs
    built = tree(**common)
    built.receiver("late", "floor", "repairer", "relay", parameters=parameters(join_from=start, **common))
    world = make_world(
        built,
        traffic(MESSAGES, rate=100, burst=3),
        wirings={"late": lossy(0.02)},
        starts={"late": 2 * SECOND + 512_345_678},
        factory=Sealing(),
    )
    finish(world)
    late = stream(world, "late")
    assert late.is_complete, late.lost
    assert 150 < late.first < 220 if start == "now" else late.first == 0


def test_receiver_without_a_record_closes_and_delivers_nothing() -> None:
    built = tree(secret_wait=2 * SECOND)
    world = make_world(built, traffic(MESSAGES, close_at_ns=10 * SECOND), factory=Sealing(("receiver-0", "receiver-1")))
    world.run_until(14 * SECOND)
    stranger = stream(world, "receiver-2")
    assert stranger.closed is CloseCause.NO_SECRET
    assert stranger.delivered_sqns == 0
    assert set(stranger.lost) == {LossCause.SEALED}
    assert all(stream(world, name).is_complete for name in ("receiver-0", "receiver-1"))


def test_revoked_reader_ends_and_the_others_lose_nothing() -> None:
    sealing = Sealing()
    world = make_world(
        tree(secret_wait=2 * SECOND),
        traffic(4 * MESSAGES, rate=200, close_at_ns=8 * SECOND),
        wirings={"receiver": lossy(0.05), "repairer": lossy(0.02), "relay": lossy(0.02)},
        factory=sealing,
    )
    changed_at = []

    def revoke() -> None:
        core = world.core_of("source")
        assert isinstance(core, CompanionSource)
        sealing.readers = ("receiver-0", "receiver-1")
        changed_at.append(core.window.next_sqn)
        sealing.sealers[0].change(sealing.members(), core.window.next_sqn)
        core.companions_of(KeyRecordSession)[0].restart()

    world.at(3 * SECOND, revoke)
    world.run_until(12 * SECOND)
    revoked = stream(world, "receiver-2")
    assert revoked.closed is CloseCause.NO_SECRET
    assert 0 <= changed_at[0] - revoked.next_sqn + revoked.lost_sqns < 32 + revoked.lost_sqns
    assert revoked.delivered_sqns <= changed_at[0]
    for name in ("receiver-0", "receiver-1"):
        assert stream(world, name).is_complete
        assert stream(world, name).closed is CloseCause.FIN


def test_altered_key_records_are_requested_again() -> None:
    sealing, found = Sealing(), []

    def build(plan: NodePlan, rng: random.Random, tsi: Tsi, now_ns: int) -> Core:
        is_element = plan.role in (Role.AGGREGATOR, Role.REPAIRER)
        core = with_public_keys(plan, rng) if is_element else sealing(plan, rng, tsi, now_ns)
        if plan.name == "repairer":
            found.append(core := Altering(core, 1.0, random.Random(1)))
        return core

    built = TreeBuilder(parameters())
    built.source("source", "core")
    built.aggregator("relay", "core", "floor", parents=("source",))
    built.repairer("repairer", "floor", parents=("relay",))
    built.repairer("second", "floor", parents=("relay",))
    built.receiver("receiver-0", "floor", "repairer", "second", "relay")
    built.receiver("late", "floor", "repairer", "second", "relay")
    world = make_world(
        built,
        traffic(MESSAGES, rate=100, close_at_ns=20 * SECOND),
        starts={"late": 2 * SECOND + 512_345_678},
        factory=build,
        is_timed=False,
    )
    finish(world)
    assert found[0].altered > 0
    assert world.core_of("late").counters.forged_key_records > 0
    assert stream(world, "late").is_complete


@pytest.mark.parametrize("is_member", [False, True])
def test_late_readers_get_the_generations_of_which_they_are_members(is_member: bool) -> None:
    everybody = ("receiver-0", "receiver-1", "receiver-2", "late")
    sealing = Sealing(everybody if is_member else everybody[:3])
    built = tree(secret_wait=SECOND)
    built.receiver("late", "floor", "repairer", "relay", parameters=parameters(join_from="oldest", secret_wait=SECOND))
    offered = traffic(MESSAGES, rate=100, burst=3, close_at_ns=8 * SECOND)
    world = make_world(built, offered, starts={"late": 3 * SECOND}, factory=sealing)
    changed_at = []

    def change() -> None:
        core = world.core_of("source")
        assert isinstance(core, CompanionSource)
        sealing.readers = everybody
        changed_at.append(core.window.next_sqn)
        sealing.sealers[0].change(sealing.members(), core.window.next_sqn)
        core.companions_of(KeyRecordSession)[0].restart()

    world.at(2 * SECOND, change)
    world.run_until(14 * SECOND)
    late = stream(world, "late")
    assert late.closed is CloseCause.FIN
    assert late.first == 0
    if is_member:
        assert late.is_complete
    else:
        assert set(late.lost) == {LossCause.SEALED}
        assert changed_at[0] <= late.lost_sqns < changed_at[0] + 32
