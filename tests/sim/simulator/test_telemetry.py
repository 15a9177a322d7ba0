"""Events of a simulated tree, compared with the simulator's own report."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset
import pytest

from deploy.node.roles import build_core
from deploy.simulation.command import with_losses
from pgm.impairments import Impairment
from pgm.parameters import Parameters
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.load import Load
from pgm.sim.parts.account import Report
from pgm.sim.runs.report import Observation, simulate
from pgm.sim.runs.telemetry import TelemetryChecker
from pgm.sim.trees import TreeBuilder
from pgm.telemetry.events import arrow_schema
from pgm.telemetry.schema import KINDS
from pgm.topology.load import load_checked, loads
from pgm.topology.plan import plan_all
from pgm.units import SECOND
from tests.sim.support.worlds import finish, lossy, make_world, parameters, traffic

TWO_SUBNETS = Path("deploy/topologies/two-subnets.toml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[pyarrow.Table, Report]:
    folder = tmp_path_factory.mktemp("events")
    plans = plan_all(load_checked(TWO_SUBNETS), {"north-*": 4, "south-*": 3})
    plans = {name: with_losses(plan, Impairment(loss=0.02, burst_loss=0.02), 0.005) for name, plan in plans.items()}
    report = simulate(
        plans, build_core, seed=3, load=Load(messages=6000, size=600), observation=Observation(telemetry=str(folder))
    )
    return pyarrow.dataset.dataset(folder, schema=arrow_schema()).to_table(), report


def total(table: pyarrow.Table, kind: str, node: str, **more: object) -> int:
    mask = pc.and_(pc.equal(table["kind"], kind), pc.equal(table["node"], node))
    for column, value in more.items():
        mask = pc.and_(mask, pc.equal(table[column], value))
    return pc.sum(table.filter(mask)["count"]).as_py() or 0


def test_every_receivers_rows_add_up_to_its_account(run: tuple[pyarrow.Table, Report]) -> None:
    table, report = run
    for row in report["receivers"]:
        node = row["node"]
        assert total(table, "delivered", node) == row["delivered"]
        assert total(table, "repaired", node) == row["repaired"]
        assert total(table, "repaired", node, local=True) == row["repaired_locally"]
        assert total(table, "late", node) == row["late"]
        assert total(table, "nak_sent", node) == row["nak_sqns"]
        assert total(table, "gap", node) == row["repaired"] + row["late"]


def test_every_elements_rows_add_up_to_its_account(run: tuple[pyarrow.Table, Report]) -> None:
    table, report = run
    for row in [*report["repairers"], *report["aggregators"], *report["sources"]]:
        assert total(table, "nak_in", row["node"]) == row["nak_sqns_in"]
        assert total(table, "rdata_sent", row["node"]) == row["rdata"] + row["rdata_forwarded"]
        assert total(table, "sent", row["node"]) == row["odata"]


def test_all_kinds_of_rows_are_known(run: tuple[pyarrow.Table, Report]) -> None:
    assert set(pc.unique(run[0]["kind"]).to_pylist()) <= set(KINDS)


def test_telemetry_changes_nothing(tmp_path: Path) -> None:
    plans = plan_all(load_checked(TWO_SUBNETS), {"north-*": 2, "south-*": 2})
    plans = {name: with_losses(plan, Impairment(loss=0.03), 0.01) for name, plan in plans.items()}
    reports = [
        simulate(plans, build_core, seed=5, load=Load(messages=1000), observation=Observation(telemetry=telemetry))
        for telemetry in ("", str(tmp_path))
    ]
    assert reports[0] == reports[1]


def test_a_run_that_fails_has_its_telemetry_written(tmp_path: Path) -> None:
    plans = plan_all(load_checked(TWO_SUBNETS), {"north-*": 2, "south-*": 2})
    with pytest.raises(InvariantBroken, match="no rest"):
        simulate(
            plans,
            build_core,
            seed=5,
            load=Load(messages=1000),
            observation=Observation(telemetry=str(tmp_path)),
            limit=SECOND // 2,
        )
    rows = pyarrow.dataset.dataset(tmp_path, schema=arrow_schema()).to_table()
    assert set(rows["node"].to_pylist()) == set(plans)


def test_the_loss_and_the_lag_of_each_line_are_told(tmp_path: Path) -> None:
    tree, *_ = re.findall(r"^```toml\n(.*?)^```$", Path("docs/guide/ab-feeds.md").read_text(), re.DOTALL | re.MULTILINE)
    topology = loads(tree.replace("400Mbit/s", "8Mbit/s"))
    simulate(
        plan_all(topology),
        build_core,
        seed=3,
        load=Load(messages=6000, size=600),
        observation=Observation(telemetry=str(tmp_path)),
    )
    rows = pyarrow.dataset.dataset(tmp_path, schema=arrow_schema()).to_table()
    for segment in ("line-a", "line-b"):
        passed = total(rows, "received", "desk", segment=segment)
        assert passed > 5000
        assert 0.03 * passed < total(rows, "line", "desk", segment=segment) < 0.07 * passed
    lines = rows.filter(pc.equal(rows["kind"], "line"))
    assert pc.max(lines["value_us"]).as_py() < 1000


def test_telemetry_parity_rebuilds_count_as_repaired(tmp_path: Path) -> None:
    tree = TreeBuilder(parameters(fec_group=16))
    tree.source("source", "core")
    tree.repairer("relay", "core", "floor", parents=("source",))
    tree.receiver("receiver", "floor", "relay")
    checker = TelemetryChecker(tmp_path, Parameters())
    world = make_world(
        tree, traffic(600, burst=20), wirings={"relay": lossy(0.05), "receiver": lossy(0.05)}, more=(checker,)
    )
    finish(world)
    checker.finish()
    rows = pyarrow.dataset.dataset(tmp_path, schema=arrow_schema()).to_table()
    counters = world.nodes["relay"].counters[0]
    assert counters.parity_packets_in > 10
    assert total(rows, "repaired", "relay") == counters.repaired_sqns > 10
    assert total(rows, "late", "relay") == counters.late_sqns
    assert total(rows, "skipped", "relay") == counters.skipped_sqns > 0
    assert total(rows, "gap", "relay") == counters.repaired_sqns + counters.late_sqns + counters.skipped_sqns
    counters = world.nodes["receiver"].counters[0]
    assert total(rows, "skipped", "receiver") == counters.skipped_sqns > 0
    assert total(rows, "gap", "receiver") == counters.repaired_sqns + counters.late_sqns + counters.skipped_sqns
