"""`pgm bench`: how fast this is on this machine, beside what others do on the same path in the same run."""
