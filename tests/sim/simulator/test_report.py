"""`simulate`, the entry of the command: its report and its progress."""

import json

import attrs
import pytest

from deploy.node.roles import build_core
from pgm.impairments import Impairment
from pgm.sim.faults import Fault
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.links import LinkSetup
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.parts.account import Progress
from pgm.sim.runs.report import Observation, simulate
from pgm.sim.trees import TreeBuilder
from pgm.sim.world import Wiring
from pgm.topology.load import load
from pgm.topology.node_plan import StreamPlan
from pgm.topology.plan import plan_all
from pgm.units import SECOND
from tests.sim.support.worlds import MS, parameters

ELEMENT = {"node", "odata", "rdata", "nak_packets", "nak_sqns", "nak_sqns_in", "nak_sqns_out", "ncfs"}
RECEIVER = {
    "node",
    "segment",
    "delivered",
    "lost",
    "duplicates",
    "out_of_order",
    "nak_sqns",
    "repaired",
    "repaired_locally",
    "sha256_ok",
}


def tree() -> TreeBuilder:
    made = TreeBuilder(parameters())
    made.source("source", "core")
    made.aggregator("aggregator", "core", "floor", parents=("source",), repairers=("repairer",))
    made.repairer("repairer", "floor", parents=("aggregator",))
    for index in range(3):
        made.receiver(f"receiver-{index}", "floor", "repairer", "aggregator")
    return made


LOSSY = {
    f"receiver-{index}": Wiring(ingress=LinkSetup(impairment=Impairment(loss=0.03, burst_loss=0.01)))
    for index in range(3)
}


def test_report_has_the_keys_that_scripts_rely_on():
    report = simulate(
        tree().plans,
        build_core,
        seed=5,
        load=Load(messages=1000, size=100, rate=2000),
        conditions=NetworkConditions(wiring=LOSSY),
    )
    assert json.loads(json.dumps(report)) == report
    assert {"seed", "virtual_seconds", "messages", "seconds", "source", "aggregators", "repairers", "receivers"} <= set(
        report
    )
    assert (report["seed"], report["messages"], report["ok"]) == (5, 1000, True)
    assert {"odata", "rdata", "nak_packets", "nak_sqns", "ncfs"} <= set(report["source"])
    assert all(set(row) >= ELEMENT for row in report["aggregators"] + report["repairers"])
    for row in report["receivers"]:
        assert set(row) >= RECEIVER
        assert (row["delivered"], row["lost"], row["segment"], row["sha256_ok"]) == (1000, 0, "floor", True)
    assert report["totals"]["repaired"] > 50
    assert report["totals"]["repaired_locally"] > 0.9 * report["totals"]["repaired"]
    # 1,000 messages at 2,000 a second, in bursts of ten (txw_burst_ivl). The last ten leave after 990 others, and may
    # need a repair.
    assert 0.495 <= report["seconds"] < 0.8


def test_same_seed_same_report():
    once, again, other = (
        simulate(
            tree().plans, build_core, seed=seed, load=Load(messages=300), conditions=NetworkConditions(wiring=LOSSY)
        )
        for seed in (1, 1, 2)
    )
    assert once == again
    assert once["digest"] != other["digest"]


def test_progress_is_told_and_ends_complete():
    told: list[Progress] = []
    simulate(
        tree().plans, build_core, load=Load(messages=500, rate=1000), observation=Observation(progress=told.append)
    )
    assert [one.now_ns for one in told] == sorted(one.now_ns for one in told)
    assert told[0].delivered == 0
    assert told[-1].offered == told[-1].messages == 500
    assert told[-1].delivered == told[-1].expected == 1500


def test_faults_happen_and_are_survived():
    faults = [Fault("crash", "repairer", SECOND + 100 * MS), Fault("pause", "receiver-1", SECOND + 50 * MS, 200 * MS)]
    report = simulate(
        tree().plans,
        build_core,
        load=Load(messages=1000, rate=2000),
        conditions=NetworkConditions(wiring=LOSSY, faults=faults),
    )
    assert report["ok"]
    assert report["repairers"][0]["rdata"] < report["totals"]["repaired"]


def test_a_fault_that_comes_late_happens_all_the_same():
    """A run waits for its last fault, even if no node has anything left to do."""
    faults = [Fault("crash", "receiver-1", 100 * SECOND)]
    report = simulate(
        tree().plans, build_core, load=Load(messages=100, rate=2000), conditions=NetworkConditions(faults=faults)
    )
    assert report["virtual_seconds"] >= 100
    assert report["ok"]


def test_source_of_several_streams_is_several_sources():
    plans = tree().plans
    both = (StreamPlan("quotes", 7500), StreamPlan("news", 7501))
    for name in ("source", "receiver-0"):
        plans[name] = attrs.evolve(plans[name], streams=both)
    report = simulate(
        plans,
        build_core,
        load=Load(messages=200, rate=1000),
        conditions=NetworkConditions(faults=[Fault("pause", "source", SECOND, 100 * MS)]),
    )
    assert [row["node"] for row in report["sources"]] == ["source/quotes", "source/news"]
    assert [row["delivered"] for row in report["receivers"]] == [400, 200, 200]
    assert report["ok"]


def test_run_that_does_not_come_to_rest_is_an_error():
    with pytest.raises(InvariantBroken, match="no rest within 2 s"):
        simulate(
            tree().plans,
            build_core,
            load=Load(messages=5000, rate=1000),
            observation=Observation(repeat="pgm sim x"),
            limit=2 * SECOND,
        )


@pytest.mark.parametrize(
    "name", ["two-subnets", "lossy-wan", "standby-relay", "on-lan", "trading-floor", "unicast-leg", "ipv6-protocol-113"]
)
def test_shipped_topologies_run(name, pytestconfig):
    topology = load(pytestconfig.rootpath / "deploy" / "topologies" / f"{name}.toml")
    report = simulate(plan_all(topology), build_core, load=Load(messages=500, size=300))
    assert report["ok"], report["problems"]


def test_a_slow_stream_takes_the_time_that_it_needs():
    """The limit counts only the time after the last message.

    The example is a stream with one message a second.
    """
    report = simulate(
        tree().plans,
        build_core,
        load=Load(messages=70, rate=1),
        conditions=NetworkConditions(faults=[Fault("pause", "source", SECOND, 700 * SECOND)]),
    )
    assert report["virtual_seconds"] > 700
    assert report["ok"], report["problems"]


def test_report_counts_no_delivery_beyond_the_offered_messages():
    report = simulate(
        tree().plans,
        build_core,
        load=Load(messages=100, rate=1000),
        conditions=NetworkConditions(faults=[Fault("crash", "source", SECOND // 2)]),
    )
    assert report["seconds"] == 0
    assert report["problems"] == ["source: ended with 0 of 100 messages offered"]
    assert not report["ok"]


def test_a_plan_that_loses_nothing_may_double_and_reorder():
    plans = tree().plans
    odd = Impairment(duplicate=0.2, reorder=0.2)
    for name in ("receiver-0", "receiver-1"):
        segments = tuple(attrs.evolve(one, impairment=odd) for one in plans[name].segments)
        plans[name] = attrs.evolve(plans[name], segments=segments)
    report = simulate(plans, build_core, load=Load(messages=500, rate=2000))
    assert [row["late"] > 0 for row in report["receivers"]] == [True, True, False]
    assert report["ok"], report["problems"]


def test_a_run_is_not_over_while_somebody_waits_to_ask_again():
    """Waits without an answer grow up to nak_max_ivl.

    The repairer answers the next attempt, long after the source has left.
    """
    made = TreeBuilder(parameters(nak_max_ivl=10 * SECOND))
    made.source("source", "lan")
    made.repairer("repairer", "lan", parents=("source",))
    made.receiver("receiver", "lan", "repairer")
    lossy = {"receiver": Wiring(ingress=LinkSetup(impairment=Impairment(loss=0.3)))}
    faults = [Fault("partition", "receiver", SECOND + 500 * MS, 20 * SECOND)]
    report = simulate(
        made.plans,
        build_core,
        load=Load(messages=1000, rate=1000),
        conditions=NetworkConditions(wiring=lossy, faults=faults),
    )
    assert report["totals"]["delivered"] == 500  # all messages from before the partition
