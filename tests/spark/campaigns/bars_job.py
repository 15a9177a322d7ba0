"""Job that makes bars of one second of a stream of trades; `driver_kills` kills it.

python -m tests.spark.campaigns.bars_job RECORDERS FOLDER MOST_OFFSETS
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

import pgm.spark
from tests.spark.support.cluster import SETTINGS


def run(recorders: str, folder: Path, most_offsets: str) -> None:
    """Run to the end of the sessions. The bars of a micro-batch are in the folder of its number."""
    settings = SETTINGS | {"spark.driver.memory": "1g", "spark.local.dir": str(folder / "spark")}
    spark = pgm.spark.register(pgm.spark.start("bars", master="local[2]", settings=settings, quick=True))
    options = {"recorders": recorders, "columns": "tsi,sqn,received,value", "maxOffsetsPerTrigger": most_offsets}
    rows = spark.readStream.format("pgm").options(**options).load()
    price = F.col("value").cast("string").cast("long")
    bars = (
        rows.withColumn("price", price)
        .withWatermark("received", "2 seconds")
        .groupBy("tsi", F.window("received", "1 second"))
        .agg(
            F.count("*").alias("trades"),
            F.min_by("price", "sqn").alias("open"),
            F.max("price").alias("high"),
            F.min("price").alias("low"),
            F.max_by("price", "sqn").alias("close"),
        )
        .select("tsi", F.unix_seconds("window.start").alias("second"), "trades", "open", "high", "low", "close")
    )

    def keep(batch: DataFrame, number: int) -> None:
        batch.coalesce(1).write.mode("overwrite").parquet(str(folder / "bars" / f"batch={number}"))

    writer = bars.writeStream.outputMode("update").foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    dropped = [one.numRowsDroppedByWatermark for step in query.recentProgress for one in step.stateOperators]
    print(json.dumps({"dropped": sum(dropped)}), flush=True)
    spark.stop()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
