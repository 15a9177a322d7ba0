"""Modules of `pgm.net` without sockets."""
