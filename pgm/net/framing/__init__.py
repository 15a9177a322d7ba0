"""Framings between messages and packets: plain, batches, ZeroMQ."""
