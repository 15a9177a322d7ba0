"""Views of running nodes: `pgm top` and the HTTP service of `pgm monitor`."""
