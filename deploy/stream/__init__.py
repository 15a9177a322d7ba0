"""`pgm send` and `pgm recv`: streams, files and formats on the command line."""
