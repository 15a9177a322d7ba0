"""Command `pgm bundle`: one archive with all that support needs, without secrets."""
