"""`pgm report`: a page about recorded telemetry."""
