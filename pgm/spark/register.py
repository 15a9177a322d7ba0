"""The one line that makes the format "pgm" known to a session, and brings it to executors that lack it."""

from __future__ import annotations

import atexit
import importlib
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What executors import: the rest of pgm needs packages that they may lack. attrs is pure Python and goes along.
_MODULES = ("errors", "units", "parameters", "archive", "spark")
_PACKAGES = ("attr", "attrs")
_INIT = '"""The part of pgm that Spark\'s executors need; install all of it where you want more."""\n'


def register(spark: SparkSession, *, ship: bool | None = None) -> SparkSession:
    """Make `spark.read.format("pgm")` and the others known; returns the session.

    On a cluster the modules that executors need are sent to them; they need Python, pyspark, pyarrow and numpy. `ship=False` leaves that
    out where pgm is installed on all of them.
    """
    from pgm.spark.source import PgmDataSource

    context = spark.sparkContext
    if ship if ship is not None else not str(context.master).startswith("local"):
        folder = Path(tempfile.mkdtemp(prefix="pgm-spark-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors that come later fetch it from there
        context.addPyFile(str(packed(folder / "pgm-for-spark.zip")))
    spark.dataSource.register(PgmDataSource)
    return spark


def packed(file: Path) -> Path:
    """Write what executors need as a zip that Python imports from."""
    root = Path(__file__).resolve().parents[1]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pgm/__init__.py", _INIT)
        for name in _MODULES:
            single = root / f"{name}.py"
            for path in [single] if single.exists() else sorted((root / name).rglob("*.py")):
                archive.write(path, str(Path("pgm") / path.relative_to(root)))
        for name in _PACKAGES:
            package = Path(str(importlib.import_module(name).__file__)).parent
            for path in sorted(package.rglob("*.py")):
                archive.write(path, str(Path(name) / path.relative_to(package)))
    return file
