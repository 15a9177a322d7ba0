"""The command `pgm plan`: the tree of a file, and what the formulas predict of it."""
