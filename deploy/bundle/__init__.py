"""Command `pgm bundle`: one archive with all that a helper needs, without secrets."""
