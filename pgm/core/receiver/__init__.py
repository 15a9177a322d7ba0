"""The receiver core: sessions, their data path and their feedback (RFC 6)."""
