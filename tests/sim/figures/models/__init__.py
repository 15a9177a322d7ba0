"""Simulated trees beside the formulas of `pgm.models`: `python -m tests.sim.figures.models` prints tables and pictures."""
