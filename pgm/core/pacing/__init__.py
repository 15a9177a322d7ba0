"""Rates: token buckets, the pacer, the adaptive rate and the monitor of excessive NAKs."""
