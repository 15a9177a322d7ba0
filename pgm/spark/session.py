"""Start of Spark, with one clear error line if a part is missing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pgm.errors import ProcessError, UsageError
from pgm.spark.errors import QueryFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODED = re.compile(r"\b(PGM-[A-Z]+(?:-[A-Z]+)+): ([^\n]+)(?:\n\s*remedy: ([^\n]+))?")  # an error of this project
_QUERY_LOGGER = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
# Spark's name of an error, such as [FAILED_READ_FILE.NO_HINT], and its meaning.
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
# Spark's words for an application that its master, or the lack of one, has ended.
_ENDED = re.compile(
    "All masters are unresponsive|Master removed our application|stopped SparkContext|SparkContext was shut down"
)
_MASTER_S = 10.0  # for a connection to a master: time for three repeats of the first packet
_MIN_JAVA = 17  # that Spark 4 runs on
_JAVA_S = 30.0  # time limit for the version of Java, on a busy machine

# Arrow's own checks of every value cost a tenth of the JVM's reading time. Recorded rows have a checksum already.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.driver.memory": "4g",
    # A Python task starts faster over a local socket than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Start of a Python worker; Spark's 15 s are too few if many processes start at once on few cores.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.driver.extraJavaOptions": _UNCHECKED,
    "spark.executor.extraJavaOptions": _UNCHECKED,
}
# For many small jobs: the compiler that starts fast, and the collector without threads.
_QUICK_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
}


def running() -> SparkSession | None:
    """Return the running session of this program, if any."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def start(
    name: str = "pgm", *, master: str = "", settings: Mapping[str, str] | None = None, quick: bool = False
) -> SparkSession:
    """Return the running Spark session, or start one on `master`.

    The default is all cores of this machine. `settings` override ours. `quick` suits many small jobs, as in tests.
    Workers use the interpreter of this process. Raises `UsageError` if Java is missing, `ProcessError` if
    Spark does not start: within 10 s without a listener at `master`, and after Spark's own 60 s with a silent one.
    """
    active = running()
    if active is not None:
        return active
    from pyspark.sql import SparkSession

    master_url = master or os.environ.get("SPARK_MASTER", "local[*]")
    _require_master(master_url)
    require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master_url)
    if master_url.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * len(os.sched_getaffinity(0))))
    for key, value in (_SETTINGS | (_QUICK_SETTINGS if quick else {}) | dict(settings or {})).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # errors of the JVM have a dozen types
        reason, remedy = start_fault(str(error) or type(error).__name__)
        raise ProcessError(f"Spark does not start on {master_url}: {reason}", remedy=remedy) from error


def start_fault(text: str) -> tuple[str, str]:
    """Return the reason and the remedy for the error of a session that does not start, by the text of the error."""
    if _ENDED.search(text):  # Spark ends its context after a minute without a master
        return "the master does not answer", "check the address, and that this host reaches a running master there"
    if "JAVA_GATEWAY_EXITED" in text:
        return "Java ended before Spark began", "write the master as local[*] or spark://HOST:PORT"
    return _problem(text), "check the master and Java"


@contextlib.contextmanager
def told_plainly() -> Iterator[None]:
    """Reduce the error of a job or a streaming query to one line and its remedy, without the JVM's stack.

    Inside of the block Spark logs no stack of a streaming query either. Raises `QueryFailed` with the code of an error of
    this project, `ProcessError` for others.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        with _no_stacks():
            yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        coded = _CODED.search(text)
        if coded is not None:
            raise QueryFailed(coded[2], failure=coded[1], remedy=coded[3] or "") from None
        ended = _ENDED.search(text)
        if ended is not None:
            raise ProcessError(
                f"Spark has ended before its jobs: {ended[0]}", remedy="look for the reason in the log of the master"
            ) from error
        condition = _CONDITION.search(text)
        told = condition[0] if condition else _problem(text)
        is_file = any(word in told for word in ("READ_FILE", "INFER_SCHEMA"))
        raise ProcessError(
            f"Spark cannot do this: {told}",
            remedy="a file named here is incomplete or no telemetry: remove it" if is_file else "",
        ) from error


@contextlib.contextmanager
def _no_stacks() -> Iterator[None]:
    """Turn off the log of failing streaming queries for a block, in which their errors are raised anyway."""
    spark = running()
    if spark is None:
        yield
        return
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001  # no other way to it
    level = log4j.LogManager.getLogger(_QUERY_LOGGER).getLevel()
    log4j.core.config.Configurator.setLevel(_QUERY_LOGGER, log4j.Level.OFF)
    try:
        yield
    finally:
        log4j.core.config.Configurator.setLevel(_QUERY_LOGGER, level)


def _problem(text: str) -> str:
    """Return the line of an error that has a meaning. The first line of py4j names its own call."""
    lines = text.strip().splitlines() or [text]
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


def _require_master(url: str) -> None:
    """Raise `ProcessError` if no master of a standalone cluster accepts a connection. Spark needs 60 s to tell that."""
    if not url.startswith("spark://"):
        return
    problems = []
    for address in url.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            return  # Spark refuses such an address at once
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_MASTER_S).close()
        except OSError as error:
            problems.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise ProcessError(
        f"no Spark master answers at {', '.join(problems)}", remedy="start the master, or correct its address"
    )


def require_java() -> None:
    """Raise `UsageError` unless Spark will find a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = f"install Java {_MIN_JAVA} or later, such as openjdk-17-jre-headless, or let JAVA_HOME name one"
    if java is None or not os.access(java, os.X_OK):
        raise UsageError("Spark needs Java, and none is installed", remedy=remedy)
    result = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)', result.stderr)
    if version is None or int(version[1]) < _MIN_JAVA:
        problem = version[0] if version else "no version"
        raise UsageError(f"Spark needs Java {_MIN_JAVA} or later, and {java} says {problem}", remedy=remedy)
