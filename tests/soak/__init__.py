"""Soak of the whole tree: real processes, losses, restarts, an archive and a Spark query, for hours."""
