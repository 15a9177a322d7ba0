"""Progress of streaming queries for people: description, lag, octets and losses.

Python data sources have no custom metrics and no description of their own (looked at in pyspark 4.3.0): `sources[].metrics`
stays empty, and `description` is the name of a class of the JVM. The source puts its figures into `latestOffset` of
`lastProgress`, which serves monitoring alone. Losses are counted by Spark's own `observe`.
"""

from pgm.spark.progress.observed import observed
from pgm.spark.progress.source_progress import SourceProgress, progress_of

__all__ = ["SourceProgress", "observed", "progress_of"]
