"""Erasure code: parity rows from k rows of octets, and the originals from any k rows (RFC 11.1).

The code is Reed-Solomon over GF(2^8) with Rizzo's matrix in systematic form. zfec and OpenPGM build the same matrix. Row
`k + j` of the matrix makes parity packet `j`, for any number of parity packets, so a source can always make further ones.

zfec is an extra, not a base dependency. Its licences are the GPL and the TGPPL, and most streams have no parity.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pgm.errors import UsageError
from pgm.wire.train import Octets

try:
    import zfec
except ImportError:  # the extra is not installed; `require` reports that
    zfec = None

MOST_ROWS = 256  # data and parity together: the points of the field. OpenPGM omits the last
LARGEST_GROUP = 128  # the largest power of two with at least as many parity packets as data packets

REMEDY = "pip install 'pgm-repair-network[fec]', which brings zfec"


def is_available() -> bool:
    """Return whether zfec is installed."""
    return zfec is not None


def require() -> None:
    """Raise `UsageError` with a remedy if zfec is missing."""
    if not is_available():
        raise UsageError("parity needs zfec, which is not installed", remedy=REMEDY)


@functools.lru_cache(maxsize=8)
def _coders(size: int) -> tuple[Any, Any]:
    require()
    return zfec.Encoder(size, MOST_ROWS), zfec.Decoder(size, MOST_ROWS)


def parity_limit(size: int) -> int:
    """Return the number of different parity rows for groups of `size`."""
    return MOST_ROWS - size


def encode(rows: Octets, indexes: Sequence[int]) -> Octets:
    """Return the parity rows `indexes`, from 0, of a (k, width) array, as a (len(indexes), width) array."""
    size, width = rows.shape
    if not width or not indexes:
        return np.zeros((len(indexes), width), np.uint8)
    encoder, _ = _coders(size)
    parity = encoder.encode(tuple(rows), tuple(size + index for index in indexes))
    return np.frombuffer(b"".join(parity), np.uint8).reshape(len(indexes), width)


def decode(rows: Octets, numbers: Sequence[int]) -> Octets:
    """Return the k originals, a (k, width) array, from any k different rows of the code.

    `numbers` identifies each row: a number below k is an original, any other is parity row `number - k`.
    """
    size, width = rows.shape
    if not width:
        return np.zeros((size, 0), np.uint8)
    _, decoder = _coders(size)
    originals = decoder.decode(tuple(row.tobytes() for row in rows), tuple(numbers))
    return np.frombuffer(b"".join(originals), np.uint8).reshape(size, width)
