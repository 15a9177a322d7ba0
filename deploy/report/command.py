"""The command `pgm report`: a summary of a tree's telemetry, as an HTML page or as JSON."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.terminal.options import NEW_FILE, PATH, option, predicted_file
from deploy.terminal.output import command, print_json, warn
from deploy.terminal.svg import require_matplotlib
from pgm.errors import UsageError
from pgm.figures.event_rows import files_of, read
from pgm.figures.rules import Summary
from pgm.figures.summary import fits, is_small, summarise
from pgm.prediction.beside import of_report, read_prediction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def steps(is_quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the current step, on a terminal as one changing line. Show nothing if `is_quiet`."""
    if is_quiet or not sys.stderr.isatty():
        yield (lambda _: None) if is_quiet else lambda step: warn(step)
        return
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        yield lambda step: status.update(step)


@contextlib.contextmanager
def quiet_jvm() -> Iterator[None]:
    """Discard the messages of Spark's launcher about modules and profiles. Errors still come as exceptions."""
    keep = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    sys.stderr.flush()
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(keep, 2)
        os.close(keep)
        os.close(nowhere)


def _interrupt_plainly() -> None:
    """Let Ctrl-C end a command without messages.

    Spark's signal handler would send a request to the JVM during another request, and the connection would log both errors.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def require_spark() -> None:
    """Raise `UsageError` if pyspark is missing, without which `pgm.spark` cannot be imported."""
    if find_spec("pyspark") is None:
        raise UsageError("this needs Spark, and pyspark is missing", remedy="pip install 'pgm-repair-network[spark]'")


@contextlib.contextmanager
def spark_session(name: str, master: str, *, quick: bool = False) -> Iterator[SparkSession]:
    """Yield a Spark session for one command.

    A running session is used and stays open. A new session is stopped at the end of the block. Raises `UsageError`,
    `ProcessError`.
    """
    require_spark()
    from pgm.spark import session

    running = session.running()
    if running is not None:
        with session.told_plainly():
            yield running
        return
    with quiet_jvm():
        spark = session.start(name, master=master, quick=quick)
    _interrupt_plainly()
    try:
        with session.told_plainly():
            yield spark
    finally:
        with quiet_jvm():
            spark.stop()


def headline(folder: Path) -> str:
    """Return a headline that tells the folder, whose own name is often no more than `telemetry`."""
    resolved = folder.resolve()
    return f"Losses and repairs in {Path(*resolved.parts[-2:])}"


def summarised(folder: Path, master: str, say: Callable[[str], None]) -> Summary:
    """Return the figures of a folder: in this process if the files are small and no master is named, else by Spark.

    Raises `UsageError`, `ProcessError`.
    """
    if not master and is_small(folder):
        rows = read(files_of(folder))
        if fits(rows):
            return summarise(rows, name=str(folder))
    say("starting Spark")
    with spark_session("pgm report", master) as spark:
        from pgm.spark.jobs import events, summary

        return summary.summarise(events.read(spark, folder), name=str(folder), progress=say)


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@option("--out", type=NEW_FILE, default="report.html", help="File of the page.")
@click.option("--title", default="", help="Headline of the page.")
@click.option("--master", default="", metavar="URL", help="Spark master for telemetry of any size.")
@predicted_file
@command
def report(folder: Path, out: Path, title: str, master: str, predicted: Path | None, as_json: bool) -> None:
    """Summarise the telemetry in DIR on a page.

    The page shows the losses and bursts of each link, and the duration and cost of repairs. It also shows timers that
    fire too early or too late, and nodes with excessive NAKs.

    With --predicted the page has the waits, repairs and NAKs beside their predictions, and marks what differs by more than a
    third. With --json they are "predicted".

    The page is one HTML file that contains its pictures. With --json the same data goes to standard output as one
    object, and the page is only written if --out is given.

    \b
    pgm demo --telemetry events && pgm report events
    pgm report events --json | jq '.links[] | select(.loss > 0.01) | .link'
    pgm plan tree.toml --telemetry events --json > plan.json
    pgm report events --predicted plan.json

    The command needs pip install 'pgm-repair-network[report]'. Telemetry of more than 16 MiB, or a --master, needs
    pip install 'pgm-repair-network[spark]' and Java 17 or later.
    """
    wants_page = (
        not as_json or click.get_current_context().get_parameter_source("out") is not click.core.ParameterSource.DEFAULT
    )
    if wants_page:
        require_matplotlib(extra="report")
    prediction = None if predicted is None else read_prediction(predicted)
    with steps(as_json) as say:
        results = summarised(folder, master, say)
    if prediction is not None:
        results["predicted"] = [one.as_json() for one in of_report(prediction, results)]
    if wants_page:
        from deploy.report.page import page

        out.write_text(page(results, title or headline(folder)))
    if as_json:
        print_json(results)
    else:
        warn(f"wrote {out}")
