"""Whole runs of the simulator: reports of a topology, drawn scenarios and their swarm, simulated telemetry."""
