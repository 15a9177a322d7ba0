"""Errors of Spark's Python processes: one line, and nothing for a connection that the JVM has closed."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import pgm.spark
from pgm.spark.errors import QueryFailed, RecorderDown
from pgm.spark.faults.worker import early_end, end_quietly, plain_errors


def test_a_closed_connection_prints_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException | None] = []

    def rows() -> Iterator[int]:
        with early_end():
            yield from range(9)

    monkeypatch.setattr(sys, "excepthook", lambda _kind, error, _trace: told.append(error))
    monkeypatch.setattr(traceback, "print_exc", lambda: told.append(sys.exc_info()[1]))
    former = sys.excepthook
    end_quietly()
    assert sys.excepthook is former, "in no process of Spark"
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")
    taking = rows()
    assert next(taking) == 0
    assert sys.excepthook is former
    taking.close()
    for error in (BrokenPipeError(), ConnectionResetError(), ValueError("real")):
        sys.excepthook(type(error), error, None)
        try:
            raise error
        except (OSError, ValueError):
            traceback.print_exc()
    assert [str(error) for error in told] == ["real", "real"]


def test_workers_hide_the_traceback_of_our_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_PORT", raising=False)
    for mark, error, value in (("", RecorderDown("x"), ""), ("1", ValueError(), ""), ("1", RecorderDown("x"), "1")):
        if mark:
            monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", mark)
        with pytest.raises(type(error)), plain_errors():
            raise error
        assert os.environ["SPARK_HIDE_TRACEBACK"] == value


def test_a_service_that_is_away_is_told_in_one_line(spark: SparkSession) -> None:
    pgm.spark.register(spark)
    options = {"recorders": "grpc://127.0.0.1:1", "retrySeconds": "0"}
    with pytest.raises(QueryFailed) as caught, pgm.spark.told_plainly():
        spark.readStream.format("pgm").options(**options).load().writeStream.format("noop").start().awaitTermination()
    assert caught.value.code == "PGM-SPARK-RECORDER"
    assert caught.value.message == "grpc://127.0.0.1:1 does not answer: nothing listens there"
    assert caught.value.remedy.startswith("start it (pgm serve)")
    with pytest.raises(Exception, match="PGM-SPARK-RECORDER: grpc") as whole:
        spark.read.format("pgm").options(**options).load().collect()
    assert "Traceback" not in str(whole.value)
