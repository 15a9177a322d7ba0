"""A missing part is reported in one line, with the package to install."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from deploy.report.command import require_spark
from pgm.errors import ProcessError, UsageError
from pgm.figures import gilbert_elliott as fit
from pgm.spark import session
from pgm.spark.jobs import events
from tests.cli.command import invoked

_FILE = "deploy/topologies/lossy-hall.toml"


def test_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError, match="none is installed") as told:
        session.require_java()
    assert "openjdk-17" in told.value.remedy


def test_a_java_that_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r'17 or later.*version "1.8'):
        session.require_java()


@pytest.mark.parametrize(
    ("text", "reason", "remedy"),
    [
        (
            "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
            ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n",
            "the master does not answer",
            "this host reaches",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.", "Java ended", "local[*]"),
        ("An error occurred while calling None.JavaSparkContext.\n: java.lang.OutOfMemoryError\n", "java.lang.Out", ""),
        ("no room", "no room", "master and Java"),
    ],
)
def test_start_fault_names_the_cause(text: str, reason: str, remedy: str) -> None:
    told, advice = session.start_fault(text)
    assert told.startswith(reason)
    assert remedy in advice


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Could not read footer for file: a.parquet.", "incomplete"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at or near 'string'. SQLSTATE: 42601", ""),
    ],
)
def test_told_plainly_blames_only_unreadable_files(text: str, remedy: str) -> None:
    with pytest.raises(ProcessError, match=r"Spark cannot do this: \[") as told, session.told_plainly():
        raise PySparkException(text)
    assert remedy in told.value.remedy
    assert bool(told.value.remedy) == bool(remedy)


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(UsageError, match="pyspark is missing") as told:
        require_spark()
    assert "[spark]" in told.value.remedy


def test_a_folder_without_telemetry(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no telemetry in"):
        events.read(None, tmp_path)  # type: ignore[arg-type]  # never reached


def test_a_link_that_loses_nothing_or_all() -> None:
    assert fit.gilbert_elliott(1000, 0, {1: 0, 2: 0, 4: 0, 8: 0}).is_lossless
    assert fit.gilbert_elliott(0, 0, {1: 0, 2: 0, 4: 0, 8: 0}).is_lossless
    assert fit.gilbert_elliott(10, 10, {1: 9, 2: 8, 4: 6, 8: 2}).loss == 1


@pytest.mark.parametrize(
    "words",
    [
        ("sim", _FILE, "--messages", "10", "--parts", "2", "--spark"),
        ("tune", _FILE, "--messages", "20", "--size", "100", "--out", "TMP/tuned.toml", "--master"),
        ("report", "TMP", "--out", "TMP/report.html", "--master"),
    ],
    ids=lambda words: words[0],
)
def test_dead_master_ends_a_command_in_one_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "running", lambda: None)  # else the session of other tests is used
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # without listen, so connections are refused
        address = "{}:{}".format(*unheard.getsockname())
        done = invoked(*(one.replace("TMP", str(tmp_path)) for one in words), f"spark://[::1]:1,{address}")
    assert (done.code, done.out) == (1, ""), done
    message, remedy = done.err.splitlines()[-2:]
    assert message.startswith("pgm: no Spark master answers at [::1]:1: ")  # the reason depends on IPv6 here
    assert message.endswith(f", {address}: Connection refused")
    assert remedy == "  remedy: start the master, or correct its address"
