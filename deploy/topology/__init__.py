"""`pgm check`, `pgm plan` and `pgm render`: work on a topology file."""
