"""Recovery of missing packets: gaps, back-off, NAKs, timeouts, parents (RFC 6.3)."""
