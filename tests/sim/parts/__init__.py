"""Trees in several parts."""
