"""Job that keeps archives as a table of Parquet files or Iceberg."""
