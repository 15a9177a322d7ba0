"""What trains mostly are, found out by a handful of calls: sound data packets that follow each other and look alike.

Whatever is not so plain is for `pgm.wire.train`, which says what is right.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgm.wire.checksum import CHECKSUM_AT
from pgm.wire.formats import (
    DATA_HEADER_OCTETS,
    FLAGS_AT,
    FRAGMENT_OCTETS,
    HEADER_OCTETS,
    OPTIONS_PRESENT,
    SQN_AT,
    TRAIL_AT,
    TSDU_LENGTH_AT,
)
from pgm.wire.options import Fragment

Octets = npt.NDArray[np.uint8]

MOST_ROWS = 1024  # that are looked at together: packets of the longest read
_FRAGMENT_HEAD = DATA_HEADER_OCTETS + FRAGMENT_OCTETS
_KIND_AT, _OFFSET_AT = DATA_HEADER_OCTETS + 4, DATA_HEADER_OCTETS + 12  # of OPT_FRAGMENT behind OPT_LENGTH
_OPTIONS_BEGIN = b"\0\4" + FRAGMENT_OCTETS.to_bytes(2, "big")  # OPT_LENGTH, where OPT_FRAGMENT is all that follows
_STEPS = np.arange(MOST_ROWS, dtype=np.uint32)
_number = int.from_bytes


def _agreeing(width: int) -> npt.NDArray[np.uint32]:
    """For as many heads of `width` octets as there may be: ones but for checksum and trail, in which packets of a run may differ."""
    head = np.full(width, 0xFF, np.uint8)
    head[CHECKSUM_AT : CHECKSUM_AT + 2] = head[TRAIL_AT : TRAIL_AT + 4] = 0
    return np.tile(head.view(np.uint32), MOST_ROWS)


_AGREEING = {width: _agreeing(width) for width in (DATA_HEADER_OCTETS, _FRAGMENT_HEAD)}


def is_one_run(rows: Octets, residues: npt.NDArray[np.uint64]) -> bool:
    """Whether all rows, two at least, are data packets without options, or fragments of one message, and have the same but
    for sqns and offsets, which follow each other.

    `rows` is a (count, size) array of data packets, `residues` what `pgm.wire.checksum` says of them. Their heads are copied,
    the steps taken out of them, and what is left is compared with the first.
    """
    count, stride = rows.shape
    if stride < DATA_HEADER_OCTETS or count > MOST_ROWS or np.count_nonzero(residues):
        return False
    head = rows[0, :_FRAGMENT_HEAD].tobytes()
    width = _width(head)
    last = rows[-1, SQN_AT:TRAIL_AT].tobytes()
    # Where some are missing that is seen without looking at all of them.
    if not width or _number(last, "big") - _number(head[SQN_AT:TRAIL_AT], "big") != count - 1:
        return False
    words = rows[:, :width].copy().view(np.uint32)
    if np.count_nonzero(words.view(np.uint16)[:, CHECKSUM_AT // 2]) != count:
        return False  # some have no checksum
    words[:, SQN_AT // 4] = words[:, SQN_AT // 4].view(">u4") - _STEPS[:count]
    if width == _FRAGMENT_HEAD:
        size = np.uint32(_number(head[TSDU_LENGTH_AT:HEADER_OCTETS], "big"))
        words[:, _OFFSET_AT // 4] = words[:, _OFFSET_AT // 4].view(">u4") - _STEPS[:count] * size
    alike = words.reshape(-1)
    alike &= _AGREEING[width][: len(alike)]
    octets = alike.tobytes()
    return bool(octets == octets[:width] * count)


def _width(head: bytes) -> int:
    """How many octets to compare of each packet that begins like this; 0 if they are not so plain."""
    if not head[FLAGS_AT] & OPTIONS_PRESENT:
        return DATA_HEADER_OCTETS
    is_fragment = head[DATA_HEADER_OCTETS:_KIND_AT] == _OPTIONS_BEGIN and len(head) == _FRAGMENT_HEAD
    return _FRAGMENT_HEAD if is_fragment and head[_KIND_AT] & 0x7F == Fragment.TYPE else 0
