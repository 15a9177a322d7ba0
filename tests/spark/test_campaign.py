"""Campaign of seeds on a cluster whose executors have none of the code; a second run goes on from the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.support.lab import ROOT
from tests.spark.support.cluster import cluster

_PATIENCE_S = 120


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_campaign_on_a_cluster_resumes_where_it_ended(tmp_path: Path) -> None:
    with cluster(tmp_path) as group:

        def run(seeds: int) -> list[str]:
            words = ["--spark", group.master, "--kind", "fuzz-cores", "--done", str(tmp_path / "done.jsonl")]
            done = subprocess.run(
                [sys.executable, "-m", "tests.sim.campaigns.run_seeds", *words, "--seeds", str(seeds)],
                env={**os.environ, "PYSPARK_PYTHON": str(group.python), "SPARK_LOCAL_IP": "127.0.0.1"},
                cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr[-4000:]
            return [line.partition(" in ")[0] for line in done.stdout.splitlines() if line.endswith("all good")]

        assert run(3) == ["3 seeds"]
        assert run(5) == ["2 seeds"]
