"""Drivers that run one core: trio and busy-poll, and how each of them waits and reads."""
