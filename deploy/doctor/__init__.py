"""`pgm doctor`: checks of this machine for the nodes of a topology."""
