"""Parity: the erasure code of RFC 3208, appendix A, over zfec."""
