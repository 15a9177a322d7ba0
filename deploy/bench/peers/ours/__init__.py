"""Programs that run pgm's ends of a benchmark path."""
