"""Offsets of queries: beginnings and ends, and the next micro-batch by receive times."""

from pgm.spark.offsets.positions import narrowed, spans_of, starts_of

__all__ = ["narrowed", "spans_of", "starts_of"]
