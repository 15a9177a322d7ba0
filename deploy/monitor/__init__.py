"""Looking at running nodes from outside: the screen of `pgm top` and the HTTP service of `pgm monitor`."""
