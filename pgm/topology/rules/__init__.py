"""The rules of `pgm check`, by subject."""
