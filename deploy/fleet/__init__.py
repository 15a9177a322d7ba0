"""`pgm fleet`: tables of all nodes' events, changes of regime, and the logs that an agent serves."""
