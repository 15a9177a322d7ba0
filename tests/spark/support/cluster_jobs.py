"""Every kind of job on a cluster, in one driver. The result is one line of JSON.

python -m tests.spark.support.cluster_jobs MASTER RECORDERS FOLDER

The folder has `events`, the table `history`, and `done.jsonl` of a campaign. The executors have no pgm: first the data
source sends them its modules, then the simulations send the packages of the working tree.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pgm.spark
from deploy.node.roles import build_core
from deploy.simulation.in_parts import run_cut
from deploy.tune.trial import Candidate, TrialSetting, TuneTrial, run
from pgm.archive.tables.reading import read_table
from pgm.prediction.delays import delays_of
from pgm.sim.load import Load
from pgm.sim.runs.report import whole_tree
from pgm.spark.fleet.tables import fleet_tables_once
from pgm.spark.jobs.parallel_runs import Sweep
from pgm.topology.load import load_checked
from tests.explore.search import Search
from tests.explore.setups import Bounds
from tests.explore.spark_shares import SharesOf
from tests.net.support.lab import ROOT
from tests.sim.campaigns.run_seeds import campaign, options
from tests.sim.campaigns.spark_tasks import packed
from tests.sim.parts.compare import lossy_plans
from tests.spark.support.cluster import SETTINGS

_TOPOLOGIES = ROOT / "deploy" / "topologies"
_LIMITS = {"maxOffsetsPerTrigger": 600, "maxRowsPerTrigger": 500, "minOffsetsPerTrigger": 5, "maxTriggerDelay": "1s"}


def rows_by_executor(rows: DataFrame) -> dict[str, Any]:
    """Return the rows of a batch read, and the executors and the code that made them."""

    def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pgm  # of the executor

        for batch in batches:
            place = [[os.environ.get("SPARK_EXECUTOR_DIRS", "")], [pgm.__file__], [batch.num_rows]]
            yield pa.record_batch(place, ["executor", "file", "rows"])

    found = rows.mapInArrow(where, "executor STRING, file STRING, rows LONG").collect()
    return {
        "executors": len({row.executor for row in found}),
        "files": sorted({row.file for row in found}),
        "rows": sum(row.rows for row in found),
    }


def streamed(spark: SparkSession, recorders: str, folder: Path) -> dict[str, Any]:
    """Return the sqns of a limited stream, its largest micro-batch, and whether its receive times never go back."""
    batches: list[list[Any]] = []
    rows = spark.readStream.format("pgm").options(**_LIMITS, localFiles="false", columns="sqn,received").load(recorders)
    query = rows.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
    query.option("checkpointLocation", str(folder / "stream")).trigger(availableNow=True).start().awaitTermination()
    times = [sorted(row.received for row in batch) for batch in batches]
    return {
        "streamed": sorted(row.sqn for batch in batches for row in batch),
        "largest": max(map(len, batches)),
        "in_order": all(one[-1] <= other[0] for one, other in itertools.pairwise(times)),
    }


def of_archives(spark: SparkSession, recorders: str, folder: Path) -> dict[str, Any]:
    """Run the jobs of the formats."""
    pgm.spark.register(spark)
    source = spark.read.format("pgm")
    found = rows_by_executor(source.option("minPartitions", 4).load(recorders))
    found |= streamed(spark, recorders, folder)
    pgm.spark.lakehouse(spark, recorders, folder / "lake", trigger={"availableNow": True}).awaitTermination()
    decoded = spark.read.format("pgm").option("decode", "cbor").schema("x INT, decode_error STRING").load(recorders)
    bad = decoded.where("x IS NULL AND decode_error = 'the value is of type int, and no map of fields'")
    dropped = spark.read.format("pgm").option("history", str(folder / "history")).load(recorders)
    fleet = fleet_tables_once(spark, {"path": str(folder / "events")}, folder / "fleet")
    return found | {
        "bad": bad.count(),
        "lake": sum(one.rows for one in read_table(folder / "lake").files),
        "filtered": sorted(row.sqn for row in dropped.where("sqn >= 1050").select("sqn").collect()),
        "links": fleet.read("links", ["link"]).num_rows,
    }


def of_simulations(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Run parts of a tree, trials of `pgm tune` and shares of a search, each beside the same in this process."""
    spark.sparkContext.addPyFile(str(packed(folder / "simulations.zip")))
    plans = lossy_plans(_TOPOLOGIES / "two-subnets.toml", {}, 0.02, 0.01)
    whole = whole_tree(plans, build_core, 1, Load(20))
    here, parts = run_cut(whole, 1, None, None), run_cut(whole, 2, "", None)
    file = _TOPOLOGIES / "lossy-hall.toml"
    delays = tuple(delays_of(load_checked(file), {}, ()).items())
    setting = TrialSetting(file.read_text(), str(file), 20, 100, delays, (), (("device-*", 2),))
    trials = [TuneTrial(setting, Candidate(), seed) for seed in (1, 2)]
    bounds = Bounds(messages=1, losses=1, copies=0, flights=0, heartbeats=0)
    searches = [Search("aggregator", bounds), Search("aggregator", bounds)]
    accounts = [searches[0].run(8, tell=_ignore), searches[1].run(8, SharesOf(spark.sparkContext), tell=_ignore)]
    return {
        "parts": len(parts["parts"]),
        "digests": [here["digest"], parts["digest"]],
        "trials": Sweep(spark, run, 1.0).run(trials) == [run(trial) for trial in trials],
        "states": [account.states for account in accounts],
    }


def _ignore(_: object) -> None:
    pass


def main() -> int:
    """Run all jobs, and last a campaign, which stops the session."""
    master, recorders, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = pgm.spark.start(master=master, settings=SETTINGS, quick=True)
    print(json.dumps(of_archives(spark, recorders, folder) | of_simulations(spark, folder)), flush=True)
    seeds = ["--kind", "plain", "--seeds", "3", "--done", str(folder / "done.jsonl"), "--spark", master]
    return campaign(options().parse_args(seeds))


if __name__ == "__main__":
    sys.exit(main())
