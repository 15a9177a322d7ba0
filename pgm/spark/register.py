"""Registration of the format "pgm" with a session, and its delivery to executors."""

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

# Modules that executors import: the rest of pgm needs packages that may be absent there. attrs is pure Python and is
# delivered, too.
_MODULES = (
    "crc32",
    "errors",
    "units",
    "own_files",
    "parameters",
    "wire",
    "trust",
    "mutual_tls",
    "messages",
    "archive",
    "impairments",
    "telemetry",
    "figures",
    "spark",
)
_PACKAGES = ("attr", "attrs")
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"  # without it Spark refuses a data source that takes filters
_INIT = '"""Part of pgm that Spark\'s executors need; the full package has the rest."""\n'


def register(spark: SparkSession, *, ship: bool | None = None) -> SparkSession:
    """Add the formats "pgm" and "pgm_fleet" to a session; return the session.

    From then on the session tells the formats its filters (`spark.sql.python.filterPushdown.enabled`). The formats serve
    `spark.read` and the other readers and writers. On a cluster the needed modules are sent to the executors, which must
    have Python, pyspark, pyarrow and numpy. `ship=False` omits this if pgm is installed on all executors.
    """
    from pgm.spark.fleet.source import FleetDataSource
    from pgm.spark.source import PgmDataSource

    context = spark.sparkContext
    if ship if ship is not None else not str(context.master).startswith("local"):
        folder = Path(tempfile.mkdtemp(prefix="pgm-spark-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)  # later executors fetch the file from there
        context.addPyFile(str(packed(folder / "pgm-for-spark.zip")))
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(PgmDataSource)
    spark.dataSource.register(FleetDataSource)
    return spark


def packed(file: Path) -> Path:
    """Write the modules of the executors as a zip that Python imports from."""
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
