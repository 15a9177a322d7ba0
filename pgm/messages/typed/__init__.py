"""Typed columns of messages whose values are CBOR, JSON or Arrow, and such values of columns. This package needs pyarrow."""
