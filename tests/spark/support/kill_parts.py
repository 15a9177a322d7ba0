"""Processes that `tests.spark.support.kills` kills: a resuming recorder, and a driver with queries.

python -m tests.spark.support.kill_parts recorder DIRECTORY PERMIT PACKETS
python -m tests.spark.support.kill_parts driver RECORDER SINK MASTER FOLDER PACKETS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import attrs
import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.streaming import StreamingQuery

import pgm.spark
from pgm.archive.recording.rows import RowBuilder, rows_of_batch
from pgm.archive.store.writer import ArchiveWriter
from pgm.messages.batch_decoder import BatchDecoder, DecodedBatch
from pgm.messages.batch_encoder import OpenBatch
from pgm.messages.subjects import SubjectFilter
from pgm.parameters import Parameters
from pgm.units import MILLISECOND
from tests.spark.support.cluster import SETTINGS
from tests.unit.archive.makers import SESSION, append

TSIS = ("1.1.1.1.1.1.7500", "2.2.2.2.2.2.7500")
EACH = 4  # messages of a packet
_PACKETS = 2  # packets of a stored batch
_AT_ONCE = 60  # packets
_MOST_OFFSETS = 202  # 101 of each session: every other micro-batch ends in the middle of a stored batch
_ROOM = 1024
_PAUSE_S = 0.05  # between two syncs: the archive grows while the queries run
_LEAST_POLL_S = 0.2


def value_of(number: int, at: int) -> bytes:
    """Return message `at` of a session.

    Its sqn is `at

    EACH`, its position in the packet `at % EACH`.
    """
    return bytes([number]) * 8 + at.to_bytes(8, "big")


def recorder(directory: Path, permit: Path, packets: int) -> None:
    """Append the missing packets, up to the sqn that the file `permit` allows."""
    writer = ArchiveWriter(directory, attrs.evolve(Parameters(), record_sync_ivl=MILLISECOND), _log)
    sessions = [attrs.evolve(SESSION, tsi=tsi) for tsi in TSIS]
    found = [writer.index.sessions.get(one.key) for one in sessions]
    at = [one.next_sqn if one is not None else 0 for one in found]
    while min(at) < packets:
        allowed = int(permit.read_text())
        for number, one in enumerate(sessions):
            end = min(at[number] + _AT_ONCE, allowed)
            while at[number] < end:
                count = min(_PACKETS, end - at[number])
                append(writer, [_rows_of(number, at[number], count)], one)
                at[number] += count
        writer.sync()
        time.sleep(_PAUSE_S)
    writer.close()


def _rows_of(number: int, first: int, count: int) -> RowBuilder:
    packets = []
    for sqn in range(first, first + count):
        filling = OpenBatch(_ROOM)
        for at in range(EACH):
            filling.add(value_of(number, sqn * EACH + at), None, None)
        packets.append(filling.take())
    octets = np.frombuffer(b"".join(packets), np.uint8).reshape(count, -1)
    (found,) = BatchDecoder(None, SubjectFilter(None)).add(first, octets)
    assert isinstance(found, DecodedBatch)
    return rows_of_batch(found, 0, time.time_ns() // 1000, np.zeros(count, np.bool_), packets_each=1)


def _log(code: str, text: str) -> None:
    print(f"{code}: {text}", file=sys.stderr, flush=True)


def _rows(spark: SparkSession, recorders: str, *, local: bool) -> DataFrame:
    source = spark.readStream.format("pgm").option("recorders", recorders).option("columns", "tsi,sqn,index,lost,value")
    source = source.option("localFiles", str(local))
    return source.option("maxOffsetsPerTrigger", _MOST_OFFSETS).load().where("lost IS NULL")


def _is_over(query: StreamingQuery, packets: int) -> bool:
    """Return whether both sessions were read to their end.

    Raises the error that ended the query.
    """
    failure = query.exception()
    if failure is not None:
        raise failure
    progress = query.lastProgress
    if progress is None or not progress.sources[0].endOffset:
        return False
    ends = json.loads(progress.sources[0].endOffset)
    return len(ends) == len(TSIS) and all(end == packets for end in ends.values())


def driver(recorders: str, sink: str, master: str, folder: Path, packets: int) -> None:
    """Run the queries of the campaign, then print their results.

    The queries copy the archive to Parquet, from its files; to the sink, as the service sends the rows; and to a folder
    for each batch id. The results are those of the Parquet files and of the folders, for each session.
    """
    settings = SETTINGS | {"spark.sql.shuffle.partitions": "2", "spark.local.dir": str(folder / "spark")}
    spark = pgm.spark.register(pgm.spark.start("kills", master=master, settings=settings, quick=True))
    rows = _rows(spark, recorders, local=True).select("tsi", "sqn", "index", "value")

    def keep(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(folder / "keyed" / f"batch={number}"))

    writers = {
        "parquet": rows.writeStream.format("parquet").option("path", str(folder / "parquet")),
        "sink": _rows(spark, recorders, local=False)
        .select("value")
        .writeStream.format("pgm")
        .option("recorders", sink),
        "keyed": rows.writeStream.foreachBatch(keep),
    }
    queries = [
        writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).start()
        for name, writer in writers.items()
    ]
    print("running", flush=True)
    while not all(_is_over(query, packets) for query in queries):
        time.sleep(_LEAST_POLL_S)
    for query in queries:
        query.processAllAvailable()
        query.stop()
    told = {name: _told(spark.read.parquet(str(folder / name))) for name in ("parquet", "keyed")}
    print(json.dumps(told), flush=True)
    spark.stop()


def _told(table: DataFrame) -> dict[str, list[int]]:
    """Return rows, messages, first, last and correct values of each session.

    A value is correct if it belongs to its position.
    """
    at = F.col("sqn") * EACH + F.col("index")
    found = table.withColumn("at", at).groupBy("tsi").agg(
        F.count("at"), F.count_distinct("at"), F.min("at"), F.max("at"),
        F.count(F.when(F.expr("conv(hex(substring(value, 9)), 16, 10)") == F.col("at"), 1)),
    )  # fmt: skip
    return {row[0]: list(row)[1:] for row in found.collect()}


if __name__ == "__main__":
    if sys.argv[1] == "recorder":
        recorder(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        driver(sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]), int(sys.argv[6]))
