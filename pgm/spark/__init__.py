"""Data pipeline on Spark: the data source "pgm", telemetry jobs, parallel runs.

All jobs use DataFrames, without Python for each row. `start` returns a session. `register` adds
`spark.read.format("pgm")` to any session. `without_repeats` removes rows from a recording that a publishing service has
sent twice. `lakehouse` keeps archives as a table. `fleet_tables` keeps tables of the events of all nodes.
"""

from pgm.spark.duplicate_rows import without_repeats
from pgm.spark.fleet.tables import fleet_tables
from pgm.spark.progress import observed, progress_of
from pgm.spark.register import register
from pgm.spark.session import start, told_plainly
from pgm.spark.tables.lakehouse import lakehouse

__all__ = [
    "fleet_tables",
    "lakehouse",
    "observed",
    "progress_of",
    "register",
    "start",
    "told_plainly",
    "without_repeats",
]
