"""Recovery of missing packets: gaps, back-off, NAKs, response timeouts, parents (RFC 6.3)."""
