"""Acknowledged streams: window of the source, acks of members, merged acks (JG)."""
