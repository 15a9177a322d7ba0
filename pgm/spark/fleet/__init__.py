"""Event logs of a fleet on Spark: the source "pgm_fleet", and the tables that a job keeps of it."""
