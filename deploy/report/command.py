"""`pgm report`: what telemetry says of a tree, as a page for people or as JSON."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deploy.terminal.output import command, print_json, warn
from deploy.terminal.svg import require_matplotlib

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def steps(is_quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show what is being done, on a terminal as one line that changes."""
    if is_quiet or not sys.stderr.isatty():
        yield (lambda _: None) if is_quiet else lambda what: warn(what)
        return
    from rich.console import Console

    with Console(stderr=True).status("starting Spark") as status:
        yield lambda what: status.update(what)


@contextlib.contextmanager
def quiet_jvm() -> Iterator[None]:
    """Keep what Spark's launcher says, of modules and profiles, from people; errors come as exceptions."""
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
    """Let Ctrl-C end a command in silence. Spark's handler would ask the JVM something in the middle of another question, and its
    connection log what became of both.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def spark_session(name: str, master: str, *, quick: bool = False) -> Iterator[SparkSession]:
    """Spark for one command: a session that runs already, which goes on, or one of its own, which ends with it."""
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


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default="report.html", show_default=True, help="The page."
)
@click.option("--title", default="", help="Its headline.")
@click.option("--master", default="", metavar="URL", help="Where Spark runs; all cores of this machine by default.")
@command
def report(folder: Path, out: Path, title: str, master: str, as_json: bool) -> None:
    """Say what the telemetry in DIR tells: which links lose how much and in which bursts, what repairs take and cost, which timers
    fire too early or too late, who asks too much.

    The page is one HTML file with its pictures in it. With --json the same goes to standard output as one object, and
    no page is written unless --out says so.

    \b
    pgm demo --telemetry events && pgm report events
    pgm report events --json | jq '.links[] | select(.loss > 0.01) | .link'

    It needs pip install 'pgm-repair-network[spark]' and Java 17 or later.
    """
    wants_page = (
        not as_json or click.get_current_context().get_parameter_source("out") is not click.core.ParameterSource.DEFAULT
    )
    if wants_page:
        require_matplotlib()
    with steps(as_json) as say, spark_session("pgm report", master) as spark:
        from pgm.spark.jobs import events, summary

        found = summary.summarise(events.read(spark, folder), name=str(folder), progress=say)
    if wants_page:
        from deploy.report.page import page

        out.write_text(page(found, title or f"Telemetry of {folder.resolve().name}"))
    if as_json:
        print_json(found)
    else:
        warn(f"wrote {out}")
