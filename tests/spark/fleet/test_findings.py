"""Changes of regime: none in series without a change, those of series with one, their evidence, and the monitor's panel."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from deploy.fleet.panel import FindingsPanel
from pgm.figures.changes import changes_of
from pgm.figures.minutes import TABLES
from pgm.spark.fleet.findings import Findings
from pgm.spark.fleet.tables import TableFolder
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.spark.support.generated import START_US

MINUTES, PACKETS = 720, 6000
RANDOM = np.random.default_rng(27)


def quiet(kind: int) -> npt.NDArray[np.float64]:
    """Return half a day of a loss or latency without a change: by chance, rare, in bursts, or dependent on its past."""
    if kind == 3:
        steps = RANDOM.normal(size=MINUTES)
        for at in range(1, MINUTES):
            steps[at] += 0.6 * steps[at - 1]
        return np.exp(1 + 0.3 * steps)
    bursts = RANDOM.poisson(0.2, MINUTES) * RANDOM.geometric(0.02, MINUTES) / PACKETS
    return bursts if kind == 2 else RANDOM.binomial(PACKETS, (0.01, 0.0001)[kind], MINUTES) / PACKETS


def test_hundred_series_without_a_change_have_none() -> None:
    assert [changes_of(quiet(number % 4).tolist()) for number in range(100)] == [[]] * 100


def test_series_that_grows_has_no_finding_at_any_look() -> None:
    random = np.random.default_rng(4)
    for number in range(15):
        if number % 2:
            series = random.binomial(PACKETS, 0.0001, 480) / PACKETS
        else:
            steps = random.normal(size=480)
            for at in range(1, 480):
                steps[at] += 0.5 * steps[at - 1]
            series = np.exp(0.3 * steps)
        assert [changes_of(series[:end].tolist()) for end in range(20, 481, 20)] == [[]] * 24


def test_files_of_tables_are_on_the_disk_before_they_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    TableFolder(tmp_path).put("findings.json", b"{}")
    assert synced == [(tmp_path / "findings.json").stat().st_ino, tmp_path.stat().st_ino]


def test_change_is_found_within_minutes_with_its_evidence() -> None:
    worse = RANDOM.binomial(PACKETS, 0.01, 120) / PACKETS
    series = np.concatenate([RANDOM.binomial(PACKETS, 0.005, 300) / PACKETS, worse, RANDOM.binomial(PACKETS, 0.005, 300) / PACKETS])  # fmt: skip
    rose, fell = changes_of(series.tolist())
    assert abs(rose.at - 300) < 5
    assert abs(fell.at - 420) < 5
    assert (rose.samples_before, rose.samples_after) == (rose.at, fell.at - rose.at)
    assert 1.8 < rose.after / rose.before < 2.2
    assert max(rose.p, fell.p) < 1e-6


def test_difference_too_small_to_matter_is_no_change() -> None:
    series = np.concatenate([RANDOM.binomial(10**6, 0.0100, 300), RANDOM.binomial(10**6, 0.0110, 300)]) / 10**6
    assert changes_of(series.tolist()) == []


def write(tables: TableFolder, name: str, minutes: range, loss: float) -> None:
    """Write rows of two links, of which `floor > b` loses `loss`."""
    tables.claim("test")
    random = np.random.default_rng(minutes.start)
    rows = []
    for minute in minutes:
        for node, share in (("a", 0.005), ("b", loss)):
            lost = int(random.binomial(PACKETS, share))
            row = {"link": f"floor > {node}", "segment": "floor", "node": node, "packets": PACKETS, "lost": lost, "loss": lost / PACKETS, "bursts": lost}  # fmt: skip
            rows.append({"table": "links", "minute": START_US + minute * 60_000_000, **row})
    names = {name: pa.string() if kind == "string" else pa.int64() if kind == "int64" else pa.float64() for columns in TABLES.values() for name, (kind, _) in columns.items()}  # fmt: skip
    schema = pa.schema([("table", pa.string()), ("minute", pa.timestamp("us", "UTC")), *names.items()])
    tables.write(name, pa.Table.from_pylist(rows, schema=schema))


def test_findings_are_told_once_and_shown_by_the_monitor(tmp_path: Path) -> None:
    panel = FindingsPanel(tmp_path)
    assert "no findings yet" in panel.parts()[1]
    told: list[str] = []
    tables = TableFolder(tmp_path)
    findings = Findings(tables, lambda finding: told.append(finding["text"]))
    write(tables, "part-1", range(200), 0.005)
    assert findings.look() == []
    assert "no link has changed" in panel.parts()[1]
    write(tables, "part-2", range(200, 240), 0.02)
    (found,) = findings.look()
    write(tables, "part-3", range(240, 260), 0.02)
    findings.look()
    Findings(tables, lambda finding: told.append(finding["text"])).look()
    assert len(told) == 1
    listed = invoked("fleet", "changes", tmp_path, "--json")
    assert listed.code == 0
    assert set(listed.json) == set(found)
    documented("fleet, an object for each finding", listed.json, optional=("loss", "p50_ms"))
    assert told[0].startswith("floor > b: loss rose from 0.5")
    assert (found["link"], found["samples_after"]) == ("floor > b", 40)
    assert json.loads((tmp_path / "findings.json").read_text())["series"] == 2
    shown = panel.parts()[1]
    assert '<li class="worse"><b>floor &gt; b</b> loss rose' in shown
    assert "chance of a false finding" in shown
    (tmp_path / "findings.json").write_text("{")
    assert "cannot be read" in panel.parts()[1]
