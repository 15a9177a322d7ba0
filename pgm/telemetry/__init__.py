"""Telemetry: snapshots and protocol events of a node for operators and tools. No protocol, no sockets."""
