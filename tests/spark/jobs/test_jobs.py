"""Batch jobs compared with the simulator, and the fit with injected losses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from deploy.node.roles import build_core
from deploy.report.measured import measured_of
from deploy.simulation.command import with_losses
from pgm.core.effects import Send
from pgm.core.segment import Channel
from pgm.figures import gilbert_elliott as fit
from pgm.figures.rules import link_row
from pgm.impairments import Impairment
from pgm.parameters import Parameters
from pgm.sim.checks.checker import Checker
from pgm.sim.load import Load
from pgm.sim.node import SimulatedNode
from pgm.sim.parts.account import Report
from pgm.sim.runs import report as sim_report
from pgm.spark.jobs import events, losses, repairs, summary, timers
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all
from pgm.wire.control_packets import Nak
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data, Train
from tests.spark.support.generated import lossy_links

TWO_SUBNETS = Path("deploy/topologies/two-subnets.toml")


class Truth(Checker):
    """Data packets by segment: sent, received by each node, impossible to miss.

    A packet that cannot be missed is a repair for other nodes. It arrives before any later packet, and before an NCF
    announces it.
    """

    def __init__(self) -> None:
        self.sent: dict[str, set[int]] = defaultdict(set)
        self.came: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.early: dict[tuple[str, str], set[int]] = defaultdict(set)
        self.newest: dict[tuple[str, str], int] = defaultdict(int)

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        place = channel.segment.name, node.name
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is PacketType.NCF:
                self.newest[place] = max(self.newest[place], *(sqn + 1 for sqn in item.sqns))
        for sqns, kind in _data_of(train):
            if kind is PacketType.ODATA:
                self.came[place].update(sqns)
            else:
                self.early[place].update(range(max(sqns.start, self.newest[place]), sqns.stop))
            self.newest[place] = max(self.newest[place], sqns.stop)

    def performs(self, node: SimulatedNode, effects: object) -> None:
        for effect in effects:  # type: ignore[attr-defined]
            if isinstance(effect, Send):
                for sqns, kind in _data_of(Train.of(effect.octets, effect.stride)):
                    if kind is PacketType.ODATA:
                        self.sent[effect.segment.name].update(sqns)

    def lost(self, segment: str, node: str) -> set[int]:
        return self.sent[segment] - self.came[segment, node] - self.early[segment, node]


def _data_of(train: Train) -> Iterator[tuple[range, PacketType]]:
    for item in train.parse_untrusted()[0]:
        if isinstance(item, Data):
            yield range(item.wire_sqn, item.wire_sqn + item.count), item.type


@pytest.fixture(scope="module")
def simulated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[DataFrame, Truth, Report]:
    folder = tmp_path_factory.mktemp("events")
    plans = plan_all(load_checked(TWO_SUBNETS), {"north-*": 5, "south-*": 3})
    plans = {name: with_losses(plan, Impairment(loss=0.02, burst_loss=0.02), 0.01) for name, plan in plans.items()}
    truth = Truth()
    with pytest.MonkeyPatch.context() as patch:
        cheap = sim_report.cheap_checkers
        patch.setattr(sim_report, "cheap_checkers", lambda: [*cheap(), truth])
        account = sim_report.simulate(
            plans,
            build_core,
            seed=7,
            load=Load(messages=5000, size=500),
            observation=sim_report.Observation(telemetry=str(folder)),
        )
    return events.read(spark, folder).cache(), truth, account


def test_each_link_lost_what_the_simulator_lost_there(simulated: tuple[DataFrame, Truth, Report]) -> None:
    table, truth, _ = simulated
    rows = {row["link"]: row for row in losses.links(table).collect()}
    into = [row for row in rows.values() if row["node"] is not None]
    assert len(into) == 2 + 2 + 5 + 3
    for row in into:
        lost = truth.lost(row["segment"], row["node"])
        assert row["lost"] == len(lost), row
        assert row["lost"] > 0 or "repairer" in row["node"]
        assert row["packets"] == len(truth.came[row["segment"], row["node"]]) + len(lost)
    feeders = {row["link"]: row["lost"] for row in rows.values() if row["node"] is None}
    assert feeders == {"plant > core": 0, "north-relay > north": 0, "south-relay > south": 0}


def test_repairs_add_up_to_the_account(simulated: tuple[DataFrame, Truth, Report]) -> None:
    table, _, account = simulated
    receivers = account["receivers"]
    total = {key: sum(row[key] for row in receivers) for key in ("repaired", "repaired_locally", "late", "nak_sqns")}
    shares = repairs.shares(table).collect()[0]
    assert (shares["repaired"], shares["late"], shares["nak_sqns"]) == (
        total["repaired"], total["late"], total["nak_sqns"],
    )  # fmt: skip
    assert shares["local_share"] == pytest.approx(total["repaired_locally"] / total["repaired"])
    assert 0 < shares["suppressed_share"] < 1
    wait = repairs.latencies(table).collect()[0]
    assert wait["repaired"] == total["repaired"]
    assert 1 < wait["p50_ms"] < wait["p95_ms"] <= wait["p99_ms"] <= 1.02 * wait["worst_ms"]
    doubled = {row["segment"]: row for row in repairs.duplicates(table).collect()}
    sent = {row["node"]: row["rdata"] + row["rdata_forwarded"] for row in account["repairers"] + account["aggregators"]}
    for side in ("north", "south"):
        assert doubled[side]["repairs"] == sent[f"{side}-repairer"] + sent[f"{side}-relay"]
        assert 1 <= doubled[side]["repair_ratio"] < 1.2
    assert repairs.excess_naks(table).count() == 0


def test_jobs_unsent_packets_are_not_missing(spark: SparkSession, tmp_path: Path) -> None:
    log = EventLog(tmp_path, "desk", Parameters(), in_background=False)
    for kind, first, count in (("gap", 1, 10), ("repaired", 1, 6), ("late", 7, 1), ("skipped", 8, 3)):
        log.add(Event(1_000_000 + first, "desk", "receiver", "lan", kind, "tsi", first, count))
    log.close()
    [row] = repairs.shares(events.read(spark, tmp_path)).collect()
    assert (row["missing"], row["repaired"], row["late"]) == (7, 6, 1)


def test_timers_are_judged(simulated: tuple[DataFrame, Truth, Report]) -> None:
    rows = {(row["segment"], row["role"], row["timer"]): row for row in timers.timers(simulated[0]).collect()}
    waits = rows["north", "receiver", "nak_rpt_ivl"]
    assert waits["set_ms"] == 50
    assert waits["answers_p50_ms"] == pytest.approx(0.1, rel=0.02)
    assert waits["verdict"] == "too late"  # 50 ms for answers that take 0.1
    assert rows["north", "receiver", "nak_bo_ivl"]["early"] < 1.2


def test_the_fit_recovers_what_was_injected(spark: SparkSession, tmp_path: Path) -> None:
    links = {
        "chance": Impairment(loss=0.02),
        "bursts": Impairment(burst_loss=0.02, burst_length=20),
        "both": Impairment(loss=0.01, burst_loss=0.03, burst_length=8),
    }
    lost = lossy_links(tmp_path, links, 400_000)
    rows = {row["node"]: row for row in losses.links(events.read(spark, tmp_path)).collect()}
    for node, injected in links.items():
        row = rows[node]
        assert row["lost"] == lost[node]
        found = fit.gilbert_elliott(row["packets"], row["lost"], {lag: row[f"pairs_{lag}"] for lag in losses.LAGS})
        # A fifth of each parameter, plus the chance of 400,000 packets.
        assert found.loss == pytest.approx(injected.loss, rel=0.2, abs=0.002), node
        assert found.burst_loss == pytest.approx(injected.burst_loss, rel=0.2, abs=0.001), node
        if injected.burst_loss:
            assert found.burst_length == pytest.approx(injected.burst_length, rel=0.2), node


def test_jobs_summary_has_the_inputs_of_a_simulation(simulated: tuple[DataFrame, Truth, Report]) -> None:
    table, truth, _ = simulated
    links = [link_row(row) for row in summary.rows_of(losses.links(table))]
    models, trips = measured_of({"links": links, "timers": summary.rows_of(timers.timers(table))})
    lost = truth.lost("north", "north-1")
    assert models["north", "north-1"].asked == pytest.approx(len(lost) / len(truth.sent["north"]), rel=0.02)
    assert trips["north"] == pytest.approx(100_000, rel=0.05)  # twice the 50 us of every link
