"""Tapes: the inputs of a node's core, kept while it runs, and replayed bit for bit."""
