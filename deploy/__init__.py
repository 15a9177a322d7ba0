"""Composition root: the `pgm` command, the roles, the supervisor. This package imports all others; none imports it."""
