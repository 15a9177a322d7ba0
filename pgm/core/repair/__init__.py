"""Answers to NAKs: NCFs, repairs, limits and shares (RFC 5.3, 7.2, 9.5)."""
