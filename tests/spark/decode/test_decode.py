"""spark.read.format("pgm") with the option decode: fields of values as columns beside those of the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cbor2
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DayTimeIntervalType, DoubleType, LongType, StringType, StructField, StructType

from pgm.archive.store.schema import COLUMN_NAMES
from pgm.messages.objects import ARROW
from pgm.spark import register
from pgm.spark.decode.columns import ddl_fields
from pgm.spark.errors import BadOption
from pgm.spark.source import PgmDataSource
from tests.spark.support.archives import archive, at, served
from tests.unit.archive.makers import loss, valued

_DDL = "symbol STRING, price DOUBLE, size INT"


@pytest.fixture(scope="module")
def spark_pgm(spark: SparkSession) -> SparkSession:
    return register(spark)


def trade(row: int) -> dict[str, Any]:
    return {"symbol": ("IBM", "AAPL", "A")[row % 3], "price": row / 8, "size": row}


def test_values_become_columns_beside_those_of_the_rows(spark_pgm: SparkSession, tmp_path: Path) -> None:
    values = [cbor2.dumps(trade(row)) for row in range(1000)]
    values[7] = b"\xff no value"
    values[8] = cbor2.dumps({"size": 8, "symbol": "IBM", "venue": [1]})  # another producer, later
    parts = [valued(0, values[:300], ("/a", "/b")), loss(300, 50), valued(350, values[300:])]
    archive(tmp_path / "a", parts)
    with served(tmp_path) as service:
        reading = spark_pgm.read.format("pgm").option("decode", "cbor").option("minPartitions", 2)
        frame = reading.option("decodeSchema", _DDL).load(at(service))
        assert tuple(frame.columns) == (*COLUMN_NAMES, "symbol", "price", "size", "decode_error")
        rows = sorted(frame.collect(), key=lambda row: row.sqn)
        assert len(rows) == 1001
        lost = rows.pop(300)
        assert (lost.lost, lost.symbol, lost.decode_error) == ("retries", None, None)
        assert (rows[7].symbol, rows[7].decode_error[:10], bytes(rows[7].value)) == (None, "BadObject:", values[7])
        assert rows[8][-4:] == ("IBM", None, 8, None)
        for at_row, row in enumerate(rows):
            if at_row not in (7, 8):
                assert row[-4:] == (*trade(at_row).values(), None)
        assert frame.where("sqn < 10 AND subject = '/b' AND price > 0.5").count() == 2
        own = reading.schema("size INT, sqn BIGINT").load(at(service))
        assert own.where("size = 9").collect() == [(9, 9)]
        stream = spark_pgm.readStream.format("pgm").option("decode", "cbor").option("decodePrefix", "v_")
        rows_of_stream = stream.schema("v_size INT, count BIGINT, decode_error STRING").load(at(service))
        query = rows_of_stream.writeStream.format("memory").queryName("decoded").trigger(availableNow=True).start()
        query.awaitTermination()
        found = spark_pgm.sql(
            "SELECT sum(v_size) AS sizes, sum(count) AS sqns, count(decode_error) AS bad FROM decoded"
        )
        assert found.collect() == [(sum(range(1000)) - 7, 1050, 1)]


def test_json_and_arrow_values_become_the_same_columns(spark_pgm: SparkSession, tmp_path: Path) -> None:
    trades = [trade(row) for row in range(100)]
    archive(tmp_path / "json" / "a", [valued(0, [json.dumps(one).encode() for one in trades])])
    tables = [ARROW.encode(pa.Table.from_pylist(trades[first : first + 10])) for first in range(0, 100, 10)]
    archive(tmp_path / "arrow" / "a", [valued(0, tables)])
    for codec, values in (("json", 100), ("arrow", 10)):
        with served(tmp_path / codec) as service:
            reading = spark_pgm.read.format("pgm").option("decode", codec).option("decodeSchema", _DDL)
            rows = reading.load(at(service)).orderBy("size").collect()
            assert [row[-4:] for row in rows] == [(*one.values(), None) for one in trades]
            # The counts add up to the packets, and each value comes once, however many rows it has.
            assert sum(row["count"] for row in rows) == sum(row.value is not None for row in rows) == values


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"decode": "cbor"}, "needs the fields of the values.*decodeSchema"),
        ({"decode": "xml"}, "none of cbor, json, arrow"),
        ({"decodeSchema": _DDL}, "need decode"),
        (
            {"decode": "cbor", "decodeSchema": "symbol STRING, Count INT"},
            "field Count, and the rows have.*decodePrefix",
        ),
        ({"decode": "cbor", "decodeSchema": "symbol STRING, price"}, "'price' is no field"),
        ({"decode": "cbor", "decodeSchema": "symbol STRIN"}, "field symbol has the type 'STRIN'.*did you mean STRING"),
        ({"decode": "cbor", "decodeSchema": "symbol 7"}, "field symbol has the type '7'.*choose one such as STRING"),
    ],
)
def test_refused_options_name_the_remedy(options: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=f"(?s){told}"):
        PgmDataSource({"path": "grpc://127.0.0.1:1", **options}).schema()


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (StructField("later", DayTimeIntervalType()), "later interval day to second cannot be decoded"),
        (StructField("v_price", DoubleType(), nullable=False), "cannot be decoded.*may be null"),
        (StructField("price", DoubleType()), "cannot be decoded.*begin with decodePrefix"),
        (StructField("count", StringType()), "column count string, and the rows have count bigint.*decodePrefix"),
        (StructField("Sqn", LongType()), "column Sqn bigint, and the rows have sqn bigint"),
        (StructField("sqn", LongType()), "no field of the values"),
    ],
)
def test_refused_schemas_name_the_remedy(column: StructField, told: str) -> None:
    source = PgmDataSource({"path": "grpc://127.0.0.1:1", "decode": "cbor", "decodePrefix": "v_"})
    with pytest.raises(BadOption, match=f"(?s){told}"):
        source.reader(StructType([column]))


def test_texts_of_schemas_are_cut_at_their_own_commas() -> None:
    text = "a STRUCT<x: INT, y: ARRAY<INT>>, `b,``c` DECIMAL(10, 2) COMMENT 'fee, net', d: INT"
    assert list(ddl_fields(text)) == [
        ("a", "STRUCT<x: INT, y: ARRAY<INT>>"),
        ("b,`c", "DECIMAL(10, 2) COMMENT 'fee, net'"),
        ("d", "INT"),
    ]
    with pytest.raises(BadOption):
        list(ddl_fields("a INT, "))
