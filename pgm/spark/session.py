"""One way to start Spark, with one clear line when something is missing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pgm.errors import ProcessError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What Spark names: [FAILED_READ_FILE.NO_HINT] and what it means.
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
_OLDEST_JAVA = 17  # that Spark 4 runs on
_JAVA_S = 30.0  # that it may take to say its version, on a busy machine

# Arrow's own checks of every value that the JVM reads take a tenth of its time; what a recorder wrote has a checksum.
_UNCHECKED = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.driver.memory": "4g",
    # A Python task costs 9 ms by a local socket and 25 by TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # What a Python worker may take to start; Spark's 15 s are too few where many processes start at once on few cores.
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.driver.extraJavaOptions": _UNCHECKED,
    "spark.executor.extraJavaOptions": _UNCHECKED,
}
# For many small jobs: the compiler that starts fast, and the collector without threads.
_QUICK = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData",
}


def running() -> SparkSession | None:
    """The session of this program that runs already. Raises `UsageError` where pyspark is missing."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError(
            "this needs Spark, and pyspark is missing", remedy="pip install 'pgm-repair-network[spark]'"
        ) from None
    return SparkSession.getActiveSession()


def start(
    name: str = "pgm", *, master: str = "", settings: Mapping[str, str] | None = None, quick: bool = False
) -> SparkSession:
    """A Spark session: the running one, or a new one on `master` (all cores of this machine by default).

    `settings` go before ours; `quick` suits many small jobs, as in tests. Workers run this very interpreter.
    Raises `UsageError` where pyspark or Java is missing, `ProcessError` where Spark does not start.
    """
    found = running()
    if found is not None:
        return found
    from pyspark.sql import SparkSession

    _require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    where = master or os.environ.get("SPARK_MASTER", "local[*]")
    builder = SparkSession.builder.appName(name).master(where)
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * len(os.sched_getaffinity(0))))
    for key, value in (_SETTINGS | (_QUICK if quick else {}) | dict(settings or {})).items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except Exception as error:  # of the JVM, in a dozen types
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ProcessError(f"Spark does not start on {where}: {first}", remedy="check the master and Java") from error


@contextlib.contextmanager
def told_plainly() -> Iterator[None]:
    """Say of a job that fails what Spark says first: the rest is what the JVM was doing. Raises `ProcessError`."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        found = _CONDITION.search(text)
        raise ProcessError(
            f"Spark cannot do this: {found[0] if found else text.partition(os.linesep)[0]}",
            remedy="if it names a file, that was cut short or is no telemetry: take it away",
        ) from error


def _require_java() -> None:
    """Raise `UsageError` unless Spark will find a Java that is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = f"install Java {_OLDEST_JAVA} or later, such as openjdk-17-jre-headless, or let JAVA_HOME name one"
    if java is None or not os.access(java, os.X_OK):
        raise UsageError("Spark needs Java, and there is none", remedy=remedy)
    told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    if found is None or int(found[1]) < _OLDEST_JAVA:
        what = found[0] if found else "no version"
        raise UsageError(f"Spark needs Java {_OLDEST_JAVA} or later, and {java} says {what}", remedy=remedy)
