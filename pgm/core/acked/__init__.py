"""Acknowledged streams: the source's window, acks of members, merged acks of elements (JG rows)."""
