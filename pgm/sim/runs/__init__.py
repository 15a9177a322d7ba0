"""Whole runs of the simulator: reports, drawn scenarios, simulated telemetry."""
