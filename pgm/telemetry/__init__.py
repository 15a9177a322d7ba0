"""Counters outward: snapshots of a node for operators and tools. No protocol, no sockets."""
