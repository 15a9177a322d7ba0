"""`pgm bench`: speed of pgm beside other transports on the same path."""
