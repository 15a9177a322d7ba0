"""Drivers that run one core: trio driver, busy-poll driver, their waits and reads."""
