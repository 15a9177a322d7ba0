"""Polls: a parent counts its children, and children learn their back-off (RFC 14, 15.2)."""
