"""The benchmarks of `pgm bench`, one module each."""
