"""The programs that run this project's ends of a benchmark path."""
