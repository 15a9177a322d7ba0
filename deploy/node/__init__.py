"""Nodes as processes: `pgm run`, `pgm up`, their supervision and their runtime folders."""
