"""Tables of an archive's rows: plain Arrow columns, Parquet files and Iceberg, for programs that know nothing of pgm."""
