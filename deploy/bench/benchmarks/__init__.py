"""Benchmarks of `pgm bench`, one module each."""
