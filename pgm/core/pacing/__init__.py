"""Rates: token buckets, pacer, adaptive rate, monitor of excessive NAKs."""
