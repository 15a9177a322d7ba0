"""Parity repairs at sources, repairers and receivers (RFC 11)."""
