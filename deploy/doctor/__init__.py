"""`pgm doctor`: what of this machine helps or hinders the nodes of a topology."""
