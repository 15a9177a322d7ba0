"""Checks of simulated runs: invariants, deliveries, NAK timing, latency."""
