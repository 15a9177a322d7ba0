"""Telemetry of real processes: the files agree with the account of the demo."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset

from pgm.telemetry.events import arrow_schema
from tests.cli.command import invoked, pgm
from tests.net.support.lab import ROOT


def test_the_events_of_a_demo_agree_with_its_account(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    done = pgm(
        "demo",
        "--messages",
        "1000",
        "--subnets",
        "1",
        "--receivers",
        "2",
        "--loss",
        "5%",
        "--telemetry",
        str(folder),
        "--json",
    )
    assert done.code == 0, done
    account = json.loads(done.out)
    assert not list(folder.glob(".*")), "no unfinished file is left"
    table = pyarrow.dataset.dataset(folder, schema=arrow_schema(), exclude_invalid_files=False).to_table()

    def total(kind: str, node: str) -> int:
        rows = table.filter(pc.and_(pc.equal(table["kind"], kind), pc.equal(table["node"], node)))
        return pc.sum(rows["count"]).as_py() or 0

    assert len(account["receivers"]) == 2
    for row in account["receivers"]:
        node = row["node"]
        assert total("delivered", node) == row["delivered"] == 1000
        assert (total("repaired", node), total("late", node)) == (row["repaired"], row["late"])
        assert total("nak_sent", node) == row["nak_sqns"]
        assert row["repaired"] > 0
    for row in [*account["aggregators"], *account["repairers"], account["source"] | {"node": "source"}]:
        assert total("nak_in", row["node"]) == row["nak_sqns_in"], row
    assert not pc.any(pc.equal(table["kind"], "overflow")).as_py()
    waits = table.filter(pc.equal(table["kind"], "repaired"))["value_us"]
    assert pc.min(waits).as_py() > 0


def test_a_report_without_spark_says_what_is_missing(tmp_path: Path) -> None:
    without = "import sys; sys.modules['pyspark'] = None; from deploy.cli import main; main()"
    asked = [sys.executable, "-c", without, "report", str(tmp_path), "--master", "local[1]", "--json"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pip install 'pgm-repair-network[spark]'" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_sim_telemetry_warns_about_rows_of_another_run(tmp_path: Path) -> None:
    line = ("sim", ROOT / "deploy/topologies/on-lan.toml", "--messages", "10", "--telemetry", tmp_path / "events")
    assert "adds up both" not in invoked(*line).err
    assert "adds up both" in invoked(*line).err
