"""`pgm.spark.lakehouse`: micro-batches become commits of a table, each row once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pgm.archive.tables.opening import ICEBERG
from pgm.archive.tables.reading import read_table
from pgm.spark import lakehouse, register
from pgm.spark.errors import BadOption
from tests.net.support.pages import blocks, page
from tests.spark.support.archives import at, served, session, writing
from tests.unit.archive.makers import loss, messages
from tests.unit.archive.tables.tables import archive_rows, table_rows, whole_losses

KEY = "1.2.3.4.5.6.7500@1000000/recorder-1"


@pytest.fixture(scope="module")
def spark_pgm(spark: SparkSession) -> SparkSession:
    return register(spark)


def run(spark: SparkSession, recorders: str, root: Path) -> int:
    """Bring a table up to date; return the rows that were read."""
    options = {"retrySeconds": "0", "minPartitions": "2"}  # the border of two partitions cuts the loss
    query = lakehouse(spark, recorders, root, options=options, trigger={"availableNow": True}, least_files=2)
    query.awaitTermination()
    return sum(one.numInputRows for one in query.recentProgress)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_table_equals_the_archive_whatever_is_repeated(
    spark_pgm: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last run, without a checkpoint, and a read of recorders and table are the programs of the page."""
    root, archives = tmp_path / "lake", tmp_path / "archives"
    with writing(archives / "a") as add, served(archives) as service:
        add([messages(0, 250), loss(250, 250), messages(500, 100)])
        run(spark_pgm, at(service), root)
        assert whole_losses(table_rows(ICEBERG, root)) == whole_losses(archive_rows(archives))
        # A driver that was killed between the commit of the table and that of the query repeats a micro-batch.
        last = max((root / "_checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        add([messages(600, 50)], session())
        assert run(spark_pgm, at(service), root) > 50
        assert whole_losses(table_rows(ICEBERG, root)) == whole_losses(archive_rows(archives))
        shutil.rmtree(root / "_checkpoint")
        add([messages(0, 10)], session(tsi="9.9.9.9.9.9.7500", stream=None))
        add([messages(650, 50)], session())
        names: dict[str, Any] = {}
        for program in blocks(page("guide/tables.md"), "python"):
            if "3057" in program:
                exec(program.replace("3057", str(service.port)).replace('"lake"', f'"{root}"'), names)
        assert sum(one.numInputRows for one in names["query"].recentProgress) == 60
        assert whole_losses(table_rows(ICEBERG, root)) == whole_losses(archive_rows(archives))
        content = read_table(root)
        assert content.state.sessions[KEY].next_sqn == 700
        assert sum(one.rows for one in content.files) == 462
    assert "|recorder-1|  461|" in capsys.readouterr().out


def test_options_that_make_no_table_are_refused(spark_pgm: SparkSession, tmp_path: Path) -> None:
    wrong = [
        ({"columns": "sqn"}, "all columns"),
        ({"decode": "cbor"}, "as they came"),
        ({"subjects": "/a"}, "all subjects"),
    ]
    for given, told in wrong:
        with pytest.raises(BadOption, match=told):
            lakehouse(spark_pgm, "grpc://127.0.0.1:1", tmp_path / "t", options=given)
    with pytest.raises(BadOption, match="cannot be of 'orc'"):
        lakehouse(spark_pgm, "grpc://127.0.0.1:1", tmp_path / "t", to="orc")
