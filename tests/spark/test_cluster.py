"""Data source on a cluster whose executors have no pgm; kills during two queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.support.lab import ROOT
from tests.spark.fleet.test_tables import write as write_events
from tests.spark.support.archives import archive, at, served
from tests.spark.support.cluster import SETTINGS, Cluster, cluster, free_port
from tests.spark.support.kills import campaign
from tests.unit.archive.makers import messages

_PATIENCE_S = 240
_PROGRAM = f"""
import json, sys
from pathlib import Path
import pgm.spark
from pgm.archive.tables.reading import read_table
spark = pgm.spark.register(pgm.spark.start(master=sys.argv[1], settings={SETTINGS!r}, quick=True))

def where(batches):
    import os, pgm, pyarrow
    for batch in batches:
        yield pyarrow.record_batch([[os.environ.get("SPARK_EXECUTOR_DIRS", "")], [pgm.__file__], [batch.num_rows]], ["executor", "file", "rows"])

rows = spark.read.format("pgm").option("minPartitions", 4).load(sys.argv[2])
found = rows.mapInArrow(where, "executor STRING, file STRING, rows LONG").collect()
stream = spark.readStream.format("pgm").option("maxOffsetsPerTrigger", 600).option("localFiles", "false").load(sys.argv[2])
files = stream.select("sqn").writeStream.option("checkpointLocation", sys.argv[3] + "/c").trigger(availableNow=True)
files.start(sys.argv[3] + "/p").awaitTermination()
again = spark.read.parquet(sys.argv[3] + "/p").collect()
lake = Path(sys.argv[3]) / "lake"
pgm.spark.lakehouse(spark, sys.argv[2], lake, trigger={{"availableNow": True}}).awaitTermination()
decoded = spark.read.format("pgm").option("decode", "cbor").schema("x INT, decode_error STRING").load(sys.argv[2])
bad = decoded.where("x IS NULL AND decode_error = 'the value is of type int, and no map of fields'").count()
from pgm.spark.fleet.tables import fleet_tables_once
fleet = fleet_tables_once(spark, {{"path": sys.argv[5]}}, sys.argv[3] + "/fleet")
print(json.dumps({{"executors": len(set(row.executor for row in found)), "files": sorted(set(row.file for row in found)),
    "rows": sum(row.rows for row in found), "bad": bad, "streamed": sorted(row.sqn for row in again),
    "links": fleet.read("links", ["link"]).num_rows, "lake": sum(one.rows for one in read_table(lake).files)}}))
from tests.sim.campaigns.run_seeds import campaign, options
seeds = ["--kind", "plain", "--seeds", "3", "--done", sys.argv[4], "--spark", sys.argv[1]]
sys.exit(campaign(options().parse_args(seeds)))  # in the same session, which the campaign stops
"""


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
def test_two_workers_read_and_simulate_without_having_pgm(tmp_path: Path) -> None:
    """One cluster and one driver do both, because their starts take most of the time."""
    file = tmp_path / "done.jsonl"
    file.write_text('{"kind": "plain", "first": 0, "count": 2, "failed": [1]}\n')
    write_events(tmp_path / "events", range(4))
    archive(tmp_path / "archives" / "a", [messages(0, 1000)])
    with cluster(tmp_path) as group, served(tmp_path / "archives") as service:
        words = [str(tmp_path / "out"), str(file), str(tmp_path / "events")]
        done = run_python(group, "-c", _PROGRAM, group.master, at(service), *words)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    printed = done.stdout.splitlines()
    line = next(line for line in printed if line.startswith("{"))
    check_rows(line)
    assert json.loads(line)["lake"] == 1000
    assert json.loads(line)["links"] == 5  # of the one minute that is closed
    rows = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert sorted((row["first"], row["count"], row["failed"]) for row in rows) == [(1, 1, []), (2, 1, [])]
    assert printed[-1].startswith("2 seeds in ")


def run_python(group: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this machine as the driver of a cluster."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(group.python), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
    )  # fmt: skip


def check_rows(line: str) -> None:
    """Check that two executors have read all rows with the code that was sent to them."""
    found = json.loads(line)
    assert (found["executors"], found["rows"], found["bad"], found["streamed"]) == (2, 1000, 1000, list(range(1000)))
    assert all("pgm-for-spark.zip" in file for file in found["files"]), found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_driver_and_a_recorder_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    killed = campaign(tmp_path, 2, 2000, 3, on_cluster=False, victims=("driver", "recorder"), say=print, pause_s=1.0)
    assert killed == {"driver": 1, "recorder": 1}
