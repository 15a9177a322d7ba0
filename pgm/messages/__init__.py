"""Formats of messages: batches, ZeroMQ's framing, objects and subjects. Pure; no sockets, no clock."""
