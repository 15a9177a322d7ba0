"""`pgm netcheck`: probes between the hosts of a tree, sent and heard by their agents."""
