"""Commands for running nodes: `pgm status` shows the state, `pgm ctl` changes settings."""
