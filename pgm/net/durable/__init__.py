"""Durable receivers: positions of applications, their file, and what the archive adds to a stream."""
