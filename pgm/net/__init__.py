"""Sockets, links, drivers, sources and receivers; the only package that uses sockets and trio."""
