"""Polls: count of children, and back-off of children (RFC 14, 15.2)."""
