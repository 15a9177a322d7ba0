"""Range service: an archive over Arrow Flight, and publications."""
