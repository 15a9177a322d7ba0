"""`pgm netcheck` between namespaces."""
