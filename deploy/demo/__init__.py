"""`pgm demo`: a whole tree on the loopback interface, with injected loss and an account."""
