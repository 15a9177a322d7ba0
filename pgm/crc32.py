"""CRC-32 as in zlib; the package isal, part of the extras, uses the processor's own instructions."""

from __future__ import annotations

from collections.abc import Callable

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:  # on executors of a cluster, or on a processor without support
    from zlib import crc32 as _crc32

crc32: Callable[..., int] = _crc32  # octets, and the checksum of the preceding octets
__all__ = ["crc32"]
