"""Figures of telemetry that fits in memory, by pyarrow and numpy. The jobs of `pgm.spark.jobs` give the same for any size."""
