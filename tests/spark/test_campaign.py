"""Campaign of seeds on a cluster whose executors have none of the code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.support.lab import ROOT
from tests.spark.support.cluster import cluster

_PATIENCE_S = 480


@pytest.mark.slow
@pytest.mark.timeout(540)
def test_campaign_on_a_cluster_notes_its_done_seeds(tmp_path: Path) -> None:
    file = tmp_path / "done.jsonl"
    file.write_text('{"kind": "fuzz-cores", "first": 0, "count": 2, "failed": [1]}\n')
    with cluster(tmp_path) as group:
        words = ["--spark", group.master, "--kind", "fuzz-cores", "--seeds", "4", "--done", str(file)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim.campaigns.run_seeds", *words],
            env={**os.environ, "PYSPARK_PYTHON": str(group.python), "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    rows = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert sorted((row["first"], row["count"], row["failed"]) for row in rows) == [(1, 1, []), (2, 1, []), (3, 1, [])]
    assert done.stdout.splitlines()[-1].startswith("3 seeds in ")
