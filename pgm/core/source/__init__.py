"""The source core: data, SPMs, answers to NAKs, closing (RFC 5)."""
