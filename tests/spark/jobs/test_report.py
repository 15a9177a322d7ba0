"""`pgm report` on the telemetry of a simulation: the page shows all events."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from deploy.cli import main
from deploy.node.roles import build_core
from deploy.report.measured import measured_of
from deploy.report.page import page
from deploy.simulation.command import with_losses
from pgm.figures import summary as in_memory
from pgm.impairments import Impairment
from pgm.sim.load import Load
from pgm.sim.runs.report import Observation, simulate
from pgm.spark.jobs import events, summary
from pgm.telemetry.events import arrow_schema
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all
from tests.spark.jobs.test_figures import write_drawn


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> summary.Summary:
    folder = tmp_path_factory.mktemp("events")
    plans = plan_all(load_checked(Path("deploy/topologies/two-subnets.toml")), {"north-*": 4, "south-*": 2})
    plans = {name: with_losses(plan, Impairment(loss=0.03), 0.01) for name, plan in plans.items()}
    plans["north-1"] = with_losses(plans["north-1"], Impairment(loss=0.2), None)
    simulate(
        plans, build_core, seed=2, load=Load(messages=3000, size=500), observation=Observation(telemetry=str(folder))
    )
    return summary.summarise(events.read(spark, folder))


def test_the_page_is_whole_and_names_the_worst_link(told: summary.Summary) -> None:
    text = page(told, "A <test>")
    HTMLParser().feed(text)
    assert "A &lt;test&gt;" in text
    assert text.count("<svg") >= 3
    assert not re.search(r'(src|href)="(?!#)http', text.replace("http://www.w3.org", "")), (
        "needs nothing from elsewhere"
    )
    assert text.index("north &gt; north-1") < text.index("north &gt; north-2")
    assert "packets never repaired" in text


def test_every_column_has_a_heading(told: summary.Summary) -> None:
    for rows in re.findall(r"<table>(.*?)</table>", page(told, "here"), re.DOTALL):
        heads, *others = [len(re.findall(r"<t[hd]\b", row)) for row in re.findall(r"<tr>(.*?)</tr>", rows, re.DOTALL)]
        assert set(others) <= {heads}, rows[:300]


def test_the_summary_is_json_and_names_the_models(told: summary.Summary) -> None:
    assert json.loads(json.dumps(told)) == told
    models, _ = measured_of(told)
    assert models["north", "north-1"].loss == pytest.approx(0.2, rel=0.15)
    assert models["north", "north-2"].loss == pytest.approx(0.03, rel=0.4)
    assert told["left_out"] == []


def test_small_telemetry_needs_neither_spark_nor_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_drawn(tmp_path / "events", 1)
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", "")
    words = ["report", str(tmp_path / "events"), "--json"]
    done = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["links"]
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    monkeypatch.setattr(in_memory, "SMALL_OCTETS", 0)
    done = CliRunner().invoke(main, words)
    assert "needs Spark" in json.loads(done.stdout)["error"]["message"]


def test_no_telemetry_is_a_clear_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--json"])
    assert done.exit_code == 2
    assert "there is no telemetry" in json.loads(done.stdout)["error"]["message"]


@pytest.mark.parametrize(
    ("octets", "told"),
    [(None, "hold no events"), (b"PAR1 cut short", "cannot be read")],
    ids=["a file without rows", "a file that is none"],
)
def test_report_names_unreadable_files(tmp_path: Path, octets: bytes | None, told: str) -> None:
    file = tmp_path / "one.parquet"
    if octets is None:
        pq.write_table(arrow_schema().empty_table(), file)
    else:
        file.write_bytes(octets)
    done = CliRunner().invoke(main, ["report", str(tmp_path), "--json"])
    error = json.loads(done.stdout)["error"]
    assert told in error["message"]
    assert str(tmp_path) in error["message"]
    assert error["remedy"]
