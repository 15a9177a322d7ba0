"""A tree in several parts, which run in their own processes and exchange what crosses the cut."""
