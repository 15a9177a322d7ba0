"""The erasure code itself: k rows of octets in, parity rows out, and any k of them back to the originals (RFC 11.1).

The code is Reed-Solomon over GF(2^8) with Rizzo's matrix, made systematic; zfec and OpenPGM build the same one. Row `k + j` of
that matrix makes parity packet `j`, whatever the number of parity packets, so a source may go on making new ones.

zfec is an extra, not a base dependency: it is small, but its licences are the GPL and the TGPPL, and most streams have no parity.
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
except ImportError:  # the extra is not installed; whoever needs it is told
    zfec = None

MOST_ROWS = 256  # data and parity together: the points of the field. OpenPGM leaves out the last
LARGEST_GROUP = 128  # the largest power of two that leaves as many parity packets as there are data packets

REMEDY = "pip install 'pgm-repair-network[fec]', which brings zfec"


def is_available() -> bool:
    """Whether zfec is there."""
    return zfec is not None


def require() -> None:
    """Raise `UsageError` with the remedy where zfec is missing."""
    if not is_available():
        raise UsageError("parity needs zfec, which is not installed", remedy=REMEDY)


@functools.lru_cache(maxsize=8)
def _coders(size: int) -> tuple[Any, Any]:
    require()
    return zfec.Encoder(size, MOST_ROWS), zfec.Decoder(size, MOST_ROWS)


def parity_limit(size: int) -> int:
    """How many different parity rows there are for groups of `size`."""
    return MOST_ROWS - size


def encode(rows: Octets, indexes: Sequence[int]) -> Octets:
    """The parity rows `indexes`, counted from 0, of a (k, width) array: a (len(indexes), width) array."""
    size, width = rows.shape
    if not width or not indexes:
        return np.zeros((len(indexes), width), np.uint8)
    encoder, _ = _coders(size)
    made = encoder.encode(tuple(rows), tuple(size + index for index in indexes))
    return np.frombuffer(b"".join(made), np.uint8).reshape(len(indexes), width)


def decode(rows: Octets, numbers: Sequence[int]) -> Octets:
    """The k originals, a (k, width) array, of any k different rows of the code.

    `numbers` says which row each is: below k an original, above it parity row `number - k`.
    """
    size, width = rows.shape
    if not width:
        return np.zeros((size, 0), np.uint8)
    _, decoder = _coders(size)
    found = decoder.decode(tuple(row.tobytes() for row in rows), tuple(numbers))
    return np.frombuffer(b"".join(found), np.uint8).reshape(size, width)
