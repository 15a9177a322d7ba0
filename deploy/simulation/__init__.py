"""The command `pgm sim`: a topology in virtual time."""
