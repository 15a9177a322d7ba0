"""The model of a crowd against receivers with the production core."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from deploy.node.roles import build_core
from deploy.simulation.command import with_losses
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.errors import UsageError
from pgm.impairments import Impairment, Injector
from pgm.sim.crowd.losses import CrowdLosses
from pgm.sim.crowd.timeouts import CrowdTimeouts
from pgm.sim.faults import Fault
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.node import SimulatedNode
from pgm.sim.parts.part import Part, Window
from pgm.sim.parts.windows import LocalLink
from pgm.sim.runs.report import run_parts, whole_tree
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all, plan_some
from pgm.units import MILLISECOND, SECOND
from pgm.wire.train import Train
from tests.sim.crowd.scale import repairs_per_packet, run_subnets
from tests.sim.crowd.subnets import subnets


def test_members_lose_the_packets_of_their_own_links() -> None:
    """A link of each member, which `Injector` serves, loses the same packets in any blocks."""
    seeds = [f"7:desk-{number}:floor:in:loss" for number in range(5)]
    injectors = [Injector(Impairment(loss=0.03), seed) for seed in seeds]
    losses = CrowdLosses(seeds, 0.03, 100)
    rng = random.Random(1)
    for _ in range(120):
        count = rng.randint(1, 64)
        rows, members = losses.take(count)
        expected = {(row, member) for member, one in enumerate(injectors) for row in one.draw_places(count)}
        assert set(zip(rows.tolist(), members.tolist(), strict=True)) == expected


def test_timeouts_are_those_of_the_core() -> None:
    rng, count = random.Random(2), 4
    cores = [ResponseTimeout(50_000, 400_000, 20_000) for _ in range(count)]
    crowd, all_members = CrowdTimeouts(count, 50_000, 400_000, 20_000), np.arange(count)
    for step in range(300):
        member = rng.randrange(count)
        chosen, core = np.array([member]), cores[member]
        kind = rng.choice(["answer", "answer", "timeout", "relax"])
        if kind == "answer":
            took, is_repeated, times = rng.randint(1000, 300_000), rng.random() < 0.3, rng.choice([1, 1, 2, 5])
            core.answered(took, is_repeated=is_repeated, times=times)
            crowd.answered(chosen, np.array([took]), np.array([is_repeated]), times)
        elif kind == "timeout":
            core.timed_out(step * 30_000)
            crowd.timed_out(chosen, step * 30_000)
        else:
            core.relax()
            crowd.relax(chosen)
        assert crowd.ivl(all_members).tolist() == [core.ivl_ns for core in cores]


def _part(file: Path, real: int | None, load: Load, *faults: Fault) -> Part:
    """Return a whole tree: with production cores alone, or with `real` of each pattern and a model of the others."""
    topology = load_checked(file)
    plans, rest = (plan_all(topology), []) if real is None else plan_some(topology, {}, real)
    plans = {name: with_losses(plan, None, 0.004) for name, plan in plans.items()}
    return Part(whole_tree(plans, build_core, 1, load, NetworkConditions(faults=faults), rest=rest), [])


def _relay_of_both(file: Path, relay: str, load: Load, until_ns: int, *faults: Fault) -> SimulatedNode:
    """Run a tree of cores beside one with models. Return a relay above cores, after all elements have sent the same.

    An element does the same if each NAK of the model leaves at the instant of that receiver's core, with the same sqns.
    """
    real, modelled = (_part(file, number, load, *faults) for number in (None, 1))
    for part in (real, modelled):
        part.run(Window(until_ns))
    sent = [
        {name: found for name, found in one.world.log.digests().items() if "desk" not in name}
        for one in (real, modelled)
    ]
    assert sent[0] == sent[1]
    both = [one.world.nodes[relay] for one in (real, modelled)]
    for counter in ("nak_packets_in", "rdata_packets"):
        assert both[0].total(counter) == both[1].total(counter)
    return both[0]


def test_elements_send_to_the_model_what_they_send_to_cores(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(subnets(2, 20, loss="3%"))
    load = Load(messages=10_000, size=200, rate=5000)
    relay = _relay_of_both(file, "relay-2", load, SECOND + 150 * MILLISECOND)
    assert relay.total("nak_packets_in") > 100
    assert relay.total("rdata_packets") > 100


def _tree_with_short_waits(least: str) -> str:
    """Return a tree with many adjacent losses, and with low bounds of waits, so that every measured answer counts."""
    timers = f'nak_rpt_ivl = "1ms", nak_rdata_ivl = "5ms", nak_rdata_min_ivl = "{least}", rdata_ignore_ivl = "300us"'
    parameters = f"parameters = {{ {timers}, nak_data_retries = 10000 }}"
    return subnets(1, 20, loss="10%").replace('"lan"', f'"lan"\n{parameters}', 1)


@pytest.mark.parametrize("least", ["1ms", "1700us"])  # repairs come after 1 ms at the soonest
def test_models_and_cores_measure_the_same_answers(tmp_path: Path, least: str) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(_tree_with_short_waits(least))
    load = Load(messages=10_000, size=200, rate=20_000)
    relay = _relay_of_both(file, "relay-1", load, SECOND + 60 * MILLISECOND)
    assert relay.total("nak_packets_in") > 100


_OUTAGE = Fault("deafen", "relay-1", SECOND + 10 * MILLISECOND, 10 * MILLISECOND)


@pytest.mark.parametrize("role", ["aggregator", "repairer"])
def test_models_and_cores_repair_an_outage_by_the_same_trains(tmp_path: Path, role: str) -> None:
    """NAKs and NCFs for 200 packets are trains of full lists. Members ask a repairer, and an aggregator asks first."""
    file = tmp_path / "tree.toml"
    file.write_text(_tree_with_short_waits("1700us").replace("aggregator", role))
    load = Load(messages=10_000, size=200, rate=20_000)
    relay = _relay_of_both(file, "relay-1", load, SECOND + 60 * MILLISECOND, _OUTAGE)
    assert relay.total("nak_packets_in") > 100


def test_a_model_refuses_more_requests_than_a_core_has_in_flight(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    tree = _tree_with_short_waits("1700us").replace("aggregator", "repairer")
    file.write_text(tree.replace("{ nak_rpt", "{ nak_max_outstanding = 100, nak_rpt"))
    part = _part(file, 1, Load(messages=10_000, size=200, rate=20_000), _OUTAGE)
    with pytest.raises(InvariantBroken, match="more requests in flight than nak_max_outstanding"):
        part.run(Window(SECOND + 60 * MILLISECOND))


def test_models_and_cores_hasten_when_the_source_closes(tmp_path: Path) -> None:
    """Members that lose the first SPM with the end hasten later. The run ends before cores request SPMs."""
    file = tmp_path / "tree.toml"
    file.write_text(_tree_with_short_waits("1700us"))
    load = Load(messages=600, size=200, rate=20_000)
    relay = _relay_of_both(file, "relay-1", load, SECOND + 31 * MILLISECOND)
    assert relay.total("nak_packets_in") > 100


def test_a_crowd_gets_everything_and_its_account_adds_up(tmp_path: Path) -> None:
    """Real receivers request SPMs at the end, and members do not: totals differ by a few requests there."""
    file = tmp_path / "tree.toml"
    file.write_text(subnets(2, 20, loss="3%"))
    reports = []
    for real in (None, 1):
        whole = _part(file, real, Load(messages=300, size=200, rate=4000))
        reports.append(run_parts(whole.setup, [LocalLink(whole)]))
    real_report, modelled = reports
    assert modelled["ok"]
    assert [row["members"] for row in modelled["crowds"]] == [19, 19]
    assert modelled["totals"]["delivered"] == real_report["totals"]["delivered"] == 2 * 20 * 300
    assert all(row["missing"] == row["repaired"] + row["late"] for row in modelled["crowds"])
    assert modelled["totals"]["repaired"] == pytest.approx(real_report["totals"]["repaired"], rel=0.05)
    assert modelled["totals"]["nak_sqns"] == pytest.approx(real_report["totals"]["nak_sqns"], rel=0.05)


def test_repairs_of_crowds_follow_the_formula() -> None:
    few, many = (run_subnets(3, receivers, 250) for receivers in (40, 400))
    for report in (few, many):
        sent, expected = repairs_per_packet(report)
        assert sent == pytest.approx(expected, rel=0.1)
    # NAKs at the source are those of the relays for their own losses, however many receivers are below.
    assert few["source"]["nak_packets"] == pytest.approx(many["source"]["nak_packets"], abs=1)


def test_receivers_that_no_model_describes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(
        subnets(1, 5, loss="2%").replace('profile = "lan"', 'profile = "lan"\nparameters = { nak_group_copy = true }')
    )
    with pytest.raises(UsageError, match="copies of NAKs to the group"):
        _part(file, 1, Load())


@pytest.mark.parametrize("member", [0, 1, 3])
def test_unicast_to_any_member_is_an_error(tmp_path: Path, member: int) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(subnets(1, 5))
    part = _part(file, 1, Load())
    [crowd] = part.setup.crowds
    relay = next(one for one in part.world.nodes["relay-1"].attachments if one.segment.name == "subnet-1")
    part.world.network.leave(relay, crowd.addresses[member], Train.of(bytes(100)), 0)
    with pytest.raises(InvariantBroken, match="by unicast to a member of the model"):
        part.run(Window(SECOND))
