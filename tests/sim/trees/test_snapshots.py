"""Joiners that begin with a state of the source's application: state and stream are all that the source has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deploy.node.roles import build_core
from pgm.core.effects import NoSnapshotCause
from pgm.core.interface import Core
from pgm.sim.delivery_check import DeliveryCheck
from pgm.units import KIB, MIB, SECOND
from pgm.wire.formats import PacketType
from tests.sim.support.signed import Altering, Sealing, hostile
from tests.sim.support.snapshots import JOINS_S, MESSAGES, joined, repairs_by_formula, signed_states, states_sent
from tests.sim.support.worlds import finish, stream


def check_state_and_stream(got: DeliveryCheck) -> None:
    """Check that a joiner has a state of the source, and all messages after it."""
    assert got.snapshot is not None, got.no_snapshot
    assert got.first == got.snapshot.position
    assert not got.lost
    assert got.first + got.delivered_sqns == MESSAGES


@pytest.mark.parametrize("loss", [0.01, 0.05])
@pytest.mark.parametrize("joiners", [1, 30])
def test_joiners_at_once_share_one_state(joiners: int, loss: float) -> None:
    world, tap, names = joined(joiners, loss, state_octets=50 * KIB)
    finish(world)
    for name in names:
        check_state_and_stream(stream(world, name))
    assert len(world.ledgers[stream(world, "early").tsi].states) == 1
    packets = states_sent(tap, world)
    assert packets == 36
    assert states_sent(tap, world, PacketType.RDATA) <= 1.2 * repairs_by_formula(packets, joiners, loss) + 5


def test_joiners_of_one_interval_share_the_next_state() -> None:
    world, _tap, names = joined(20, 0.01, spread_ns=SECOND)
    finish(world)
    for name in names:
        check_state_and_stream(stream(world, name))
    assert len(world.ledgers[stream(world, "early").tsi].states) <= 3


@pytest.mark.parametrize("factory", [signed_states, Sealing(has_states=True)], ids=["signed", "sealed"])
def test_signed_states_and_streams_are_proved_from_their_position_on(factory: Callable[..., Core]) -> None:
    world, tap, names = joined(2, 0.05, tiers="aggregator", state_octets=50 * KIB, spread_ns=SECOND, factory=factory)
    finish(world)
    for name in names:
        check_state_and_stream(stream(world, name))
        assert world.core_of(name).counters.forged_packets == 0
    assert states_sent(tap, world) >= 36


def test_no_altered_state_is_delivered() -> None:
    """`DeliveryCheck` compares each state with those that the source gave."""
    found: list[Altering] = []
    factory = hostile("repairer", 0.3, found, signed_states)
    world, _, names = joined(2, 0.05, tiers="aggregator", state_octets=20 * KIB, factory=factory, is_timed=False)
    world.run_until(20 * SECOND)
    assert found[0].altered > 3
    assert all(stream(world, name).snapshot is not None for name in names)
    assert sum(world.core_of(name).counters.forged_packets for name in names) > 0


@pytest.mark.parametrize("tiers", ["aggregator", "repairer"])
def test_joiners_below_elements_cost_the_source_one_copy(tiers: str) -> None:
    world, tap, names = joined(10, 0.02, tiers=tiers)
    finish(world)
    for name in names:
        check_state_and_stream(stream(world, name))
    assert len(world.ledgers[stream(world, "early").tsi].states) == 1
    assert states_sent(tap, world, PacketType.RDATA) <= 10
    assert world.nodes["repairer"].counters[0].rdata_packets > 0


def test_source_that_dies_within_the_state_is_reported() -> None:
    world, _, [name] = joined(1, state_octets=2 * MIB)
    world.at(JOINS_S * SECOND + SECOND, world.nodes["source"].stop)
    world.run_until(20 * SECOND)
    got = stream(world, name)
    assert got.no_snapshot is NoSnapshotCause.SILENT
    assert got.snapshot is None


def test_state_above_the_bound_is_refused_at_once() -> None:
    world, tap, names = joined(2, state_octets=2 * MIB, snapshot_bytes=MIB)
    world.run_until((JOINS_S + 1) * SECOND)
    assert {stream(world, name).no_snapshot for name in names} == {NoSnapshotCause.TOO_LARGE}
    assert "snapshot-too-large" in {notice.code for _, node, notice in world.log.notices if node == "source"}
    assert states_sent(tap, world) == 1


def test_source_without_states_is_reported_at_once() -> None:
    world, _, [name] = joined(1, factory=build_core)
    world.run_until((JOINS_S + 2) * SECOND)
    assert stream(world, name).no_snapshot is NoSnapshotCause.NOT_OFFERED
    finish(world)


def test_stream_that_outruns_the_window_is_reported_lost() -> None:
    world, _, [name] = joined(1, state_octets=3 * MIB, rxw_bytes=64 * KIB)
    world.run_until(15 * SECOND)
    got = stream(world, name)
    assert got.snapshot is not None
    assert got.lost
    assert got.first + got.delivered_sqns + got.lost_sqns == MESSAGES


def test_stream_held_for_a_state_is_repaired_by_parity() -> None:
    world, _, names = joined(
        1, 0.2, tiers="aggregator", state_octets=400 * KIB, fec_group=8, fec_on_demand=True, fec_proactive=0
    )
    world.run_until(15 * SECOND)
    for name in names:
        got = stream(world, name)
        assert got.snapshot is not None
        assert not got.lost
        assert got.next_sqn >= MESSAGES
        came = world.nodes[name].total("parity_packets_in")
        assert came > 0
        assert world.nodes[name].total("parity_packets_unused") < 0.7 * came
