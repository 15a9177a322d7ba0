"""Programs of docs/guide/spark.md run unchanged over a small demo; table of options."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pgm.spark import register
from pgm.spark.options import TABLE
from tests.cli.command import pgm
from tests.net.support.pages import blocks, page
from tests.net.support.processes import Process

PAGE = page("guide/spark.md")
MESSAGES = 2000
_PATIENCE_S = 90.0
_BOTH = {"subnet-1": MESSAGES, "subnet-2": MESSAGES}


def _commands(archives: Path) -> tuple[list[str], list[str]]:
    demo, serve = (shlex.split(line)[1:] for line in blocks(PAGE, "sh")[0].splitlines())
    named = {"archives": str(archives), "127.0.0.1:3057": "127.0.0.1:0"}
    return [named.get(word, word) for word in demo], [named.get(word, word) for word in serve]


@contextmanager
def _serving(words: list[str]) -> Iterator[str]:
    service = Process("serve", words)
    try:
        service.line_with("ready:")
        yield re.findall(r"ready: .*:(\d+)$", service.log)[0]
        assert service.stop() == 0
    finally:
        service.close()


def test_every_option_is_told_of() -> None:
    assert TABLE.as_markdown() in PAGE


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_program_prints_what_was_sent(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(spark)
    demo, serve = _commands(tmp_path / "archives")
    done = pgm(*demo, "--json")
    assert done.code == 0, done
    with _serving(serve) as port:
        program = blocks(PAGE, "python")[0].replace("3057", port)
        assert len([line for line in program.splitlines() if line]) == 5
        capsys.readouterr()
        exec(program, {})  # the running session is used
        shown = re.findall(r"\| *(\S+)\| *(\d+)\|", capsys.readouterr().out)
    assert {segment: int(count) for segment, count in shown} == _BOTH


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_live_program_counts_while_the_demo_runs(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    (tmp_path / "archives").mkdir()
    demo, serve = _commands(tmp_path / "archives")
    with _serving(serve) as port:
        running = Process("demo", [*demo, "--json"])
        try:
            program = blocks(PAGE, "python")[1].replace("3057", port).replace("    ", "")
            program = program.replace('format("console")', 'format("memory").queryName("live")')
            names: dict[str, object] = {}
            program, ending = program.split("query.awaitTermination(")
            assert ending.endswith("query.stop()\n")
            exec(program, names)
            query = names["query"]
            counts: dict[str, int] = {}
            until = time.monotonic() + _PATIENCE_S
            while counts != _BOTH and time.monotonic() < until:
                query.processAllAvailable()  # type: ignore[attr-defined]
                counts = {row.segment: row["count"] for row in spark.table("live").collect()}
            query.stop()  # type: ignore[attr-defined]
            assert running.wait() == 0, running.log
        finally:
            running.close()
    assert counts == _BOTH
