"""The data pipeline on Spark: the data source "pgm", jobs over telemetry, sweeps of simulations. DataFrames, no Python per row.

`start` gives a session, `register` makes `spark.read.format("pgm")` known to any session.
"""

from pgm.spark.registering import register
from pgm.spark.session import start

__all__ = ["register", "start"]
