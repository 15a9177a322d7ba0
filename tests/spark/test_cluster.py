"""Every job on a cluster whose executors have no pgm; kills during two queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgm.archive.store.segment import numbers_in, path_of
from tests.net.support.lab import ROOT
from tests.spark.fleet.test_tables import write as write_events
from tests.spark.support.archives import archive, at, served, session
from tests.spark.support.cluster import Cluster, cluster, free_port
from tests.spark.support.kills import campaign
from tests.unit.archive.makers import messages
from tests.unit.archive.tables.tables import exported

_PATIENCE_S = 240


def test_a_port_stays_this_processs_own() -> None:
    """The kernel assigns none of these ports, and other test processes skip them."""
    port = free_port()
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert port < first
    other = f"from tests.net.support import places; print(places._is_claimed({port} - places.OF_TESTS.first))"
    asked = subprocess.run([sys.executable, "-c", other], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout == "False\n"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_workers_run_every_job_without_having_pgm(tmp_path: Path) -> None:
    """One cluster and one driver do all, because their starts take most of the time."""
    file = tmp_path / "done.jsonl"
    file.write_text('{"kind": "plain", "first": 0, "count": 2, "failed": [1]}\n')
    write_events(tmp_path / "events", range(4))
    write_archives(tmp_path)
    with cluster(tmp_path) as group, served(tmp_path / "archives") as service:
        done = run_driver(group, at(service), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    printed = done.stdout.splitlines()
    found = json.loads(next(line for line in printed if line.startswith("{")))
    check_rows(found)
    check_simulations(found)
    rows = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert sorted((row["first"], row["count"], row["failed"]) for row in rows) == [(1, 1, []), (2, 1, [])]
    assert printed[-1].startswith("2 seeds in ")


def write_archives(folder: Path) -> None:
    """Write two sessions that overlap in time, and a table that has the rows that one recorder has dropped."""
    second_us = 1_000_000
    archive(
        folder / "archives" / "a",
        [messages(at, 100, at_us=at * second_us // 100 + second_us) for at in range(0, 1000, 100)],
    )
    other = session("recorder-2", tsi="9.9.9.9.9.9.7500")
    for first in (1000, 1100):
        archive(folder / "archives" / "b", [messages(first, 100, at_us=(first - 1000) * 40_000 + 1_500_000)], other)
    exported("parquet", folder / "archives" / "b", folder / "history")
    path_of(folder / "archives" / "b", numbers_in(folder / "archives" / "b")[0]).unlink()


def run_driver(group: Cluster, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the driver of all jobs."""
    return subprocess.run(
        [sys.executable, "-m", "tests.spark.support.cluster_jobs", group.master, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(group.python), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip


def check_rows(found: dict[str, Any]) -> None:
    """Check that two executors have read all rows with the code that was sent to them."""
    held = [*range(1000), *range(1100, 1200)]
    assert (found["executors"], found["rows"], found["bad"], found["lake"]) == (2, 1100, 1100, 1100)
    assert all("pgm-for-spark.zip" in file for file in found["files"]), found
    assert (found["streamed"], found["largest"], found["in_order"]) == (held, 500, True)
    assert found["filtered"] == list(range(1050, 1200))
    assert found["links"] == 5  # of the one minute that is closed


def check_simulations(found: dict[str, Any]) -> None:
    """Check that tasks have had the results of the driver's own process."""
    assert found["parts"] == 2
    assert found["digests"][0] == found["digests"][1]
    assert found["trials"]
    assert found["states"][0] == found["states"][1] >= 8


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_and_a_recorder_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    killed = campaign(tmp_path, 2, 2000, 3, on_cluster=False, victims=("driver", "recorder"), say=print, pause_s=1.0)
    assert killed == {"driver": 1, "recorder": 1}
