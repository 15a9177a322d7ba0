"""`pgm tune`: search for better timers and repairer places."""
