"""Data structures of the cores: ranges of sqns, stored runs, memory arenas."""
