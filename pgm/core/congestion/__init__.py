"""PGMCC congestion control: election of the acker, window, loss reports (RFC 12)."""
