"""`pgm status` and `pgm ctl`: the state of running nodes, and changes to it."""
