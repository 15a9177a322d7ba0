"""Commands for a topology file: `pgm check`, `pgm plan` and `pgm render`."""
