"""The data pipeline on Spark: how a session starts, jobs over telemetry, sweeps of simulations. DataFrames, no Python per row."""
