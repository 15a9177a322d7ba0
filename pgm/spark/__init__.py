"""The data pipeline on Spark: the data source "pgm", jobs over telemetry, sweeps of simulations. DataFrames, no Python per row.

`start` gives a session, `register` makes `spark.read.format("pgm")` known to any session; `without_repeats` leaves out of a
recording what a publishing service has sent twice.
"""

from pgm.spark.duplicate_rows import without_repeats
from pgm.spark.register import register
from pgm.spark.session import start

__all__ = ["register", "start", "without_repeats"]
