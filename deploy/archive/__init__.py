"""`pgm record`, `pgm archive` and `pgm serve`: recorded streams on the command line."""
