"""df.write.format("pgm") with the columns subject and to, and with values made of all other columns."""

from __future__ import annotations

from pathlib import Path

import cbor2
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pgm.archive.service.publications import PublicationTarget
from pgm.spark import register
from pgm.spark.errors import BadOption
from pgm.spark.option_table import WRITE
from pgm.spark.options import read_options
from pgm.spark.sink import BatchWriter
from tests.spark.support.archives import at, served


def test_rows_are_published_with_subjects_nodes_and_encoded_values(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    (tmp_path / "empty").mkdir()
    sent: list[pa.Table] = []
    target = PublicationTarget(lambda _, rows: sent.append(rows), tmp_path / "published.json")
    trades = spark.createDataFrame(
        [("/a", 1.5, None, 7), (None, 2.0, "desk-1", 8)], "subject STRING, price DOUBLE, to STRING, size INT"
    ).coalesce(1)
    with served(tmp_path / "empty", target=target) as service:
        writing = trades.write.format("pgm").mode("append").option("encode", "cbor")
        writing.save(at(service))
        texts = trades.selectExpr("subject", "concat('n', size) AS value")
        texts.write.format("pgm").mode("append").save(at(service))
        wrong = trades.selectExpr("'no slash' AS subject", "size")
        with pytest.raises(PySparkException, match=r"(?s)PGM-SPARK-PUBLISH.*column subject: 'no slash' is no subject"):
            wrong.write.format("pgm").mode("append").option("encode", "json").save(at(service))
    assert [row for table in sent for row in table.to_pylist()] == [
        {"value": cbor2.dumps({"price": 1.5, "size": 7}), "subject": "/a", "to": None},
        {"value": cbor2.dumps({"price": 2.0, "size": 8}), "subject": None, "to": "desk-1"},
        {"value": b"n7", "subject": "/a", "to": None},
        {"value": b"n8", "subject": None, "to": None},
    ]


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ({"subject": "string"}, {"encode": "cbor"}, "these have subject"),
        ({"value": "string", "subject": "integer"}, {}, "column subject is int, no text"),
        ({"value": "integer"}, {}, "the column value, binary or text"),
        ({"price": "double", "to": "string"}, {}, 'option."encode", "cbor"'),
    ],
)
def test_refused_columns_name_the_remedy(columns: dict[str, str], options: dict[str, str], told: str) -> None:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    with pytest.raises(BadOption, match=f"(?s){told}"):
        BatchWriter(read_options({"path": "grpc://127.0.0.1:1", **options}, WRITE), schema)
