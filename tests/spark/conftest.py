"""One Spark session for all tests of a process, since its start is slow."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pgm.spark.session import start

    folder: Path = tmp_path_factory.mktemp("spark")
    # Spark's own warnings, which tests cannot mend: old numpy names, sockets that the JVM closes.
    warnings.simplefilter("ignore", ResourceWarning)
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        # Tables of a few thousand rows: compiling an expression takes longer than interpreting it.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        # Fewer syncs, without guarantees over crashes of the machine.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    session = start("tests", master="local[2]", settings=settings, quick=True)
    yield session
    session.stop()
