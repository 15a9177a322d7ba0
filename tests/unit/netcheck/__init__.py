"""Probes, counts and verdicts of `pgm netcheck`, without a network."""
