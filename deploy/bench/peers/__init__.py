"""Programs that contenders run, one process for each end of a path."""
