"""Grouping of the packets of one read, before they are parsed.

A train is cut wherever adjacent packets differ in more than sqn, trail, checksum and fragment offset. A train is also
cut wherever sqns or offsets are not consecutive.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pgm.wire import checksum
from pgm.wire.checksum import CHECKSUM_AT, Octets
from pgm.wire.formats import (
    DATA,
    DATA_HEADER_OCTETS,
    FLAGS_AT,
    FRAGMENT_OCTETS,
    HEADER_OCTETS,
    OPTIONS_PRESENT,
    SQN_AT,
    TRAIL_AT,
    TSDU_LENGTH_AT,
    TYPE_AT,
)
from pgm.wire.options import Fragment

_DATA_TYPES = frozenset(int(kind) for kind in DATA)


def column(rows: Octets, at: int, dtype: str) -> npt.NDArray[np.generic]:
    """Return a header field of all rows as a strided view."""
    return np.ndarray((rows.shape[0],), dtype, rows, at, (rows.strides[0],))


def group_plain(rows: Octets, residues: npt.NDArray[np.uint64]) -> list[tuple[int, list[int]]] | None:
    """Group valid data packets without options, of one session and size.

    The packets may be new or repairs, and some may be missing. Each part of the result has its first row, and its
    `item_boundaries` relative to that row. The packets of a part have one type, and its pieces have one trail. Return
    None for any other packets. `residues` are the results of `pgm.wire.checksum.residues` for the rows.
    """
    count, stride = rows.shape
    if stride < DATA_HEADER_OCTETS or rows[0, FLAGS_AT] & OPTIONS_PRESENT or np.count_nonzero(residues):
        return None
    words = rows[:, :DATA_HEADER_OCTETS].copy().view(np.uint32)
    sums = words.view(np.uint16)[:, checksum.CHECKSUM_AT // 2]
    if np.count_nonzero(sums) != count:
        return None  # some have no checksum
    sqns = words[:, SQN_AT // 4].view(">u4").astype(np.uint32)
    breaks = sqns[1:] - sqns[:-1] != 1
    sums[:] = words[:, SQN_AT // 4] = 0
    if _are_equal(words):
        return [(0, _cuts_where(breaks, count))]
    octets = words.view(np.uint8)
    kinds, trails = octets[:, TYPE_AT].copy(), words[:, TRAIL_AT // 4].copy()
    octets[:, TYPE_AT] = words[:, TRAIL_AT // 4] = 0
    if not _are_equal(words):
        return None
    return _parts_of(_cuts_where(breaks | (kinds[1:] != kinds[:-1]), count), kinds, trails)


def _are_equal(heads: npt.NDArray[np.uint32]) -> bool:
    octets = heads.tobytes()
    return octets == octets[: heads.strides[0]] * len(heads)


def _parts_of(
    cuts: list[int], kinds: npt.NDArray[np.uint8], trails: npt.NDArray[np.uint32]
) -> list[tuple[int, list[int]]] | None:
    """Group adjacent pieces of one type with the same trail in their last packets.

    Return None if a piece is no data.
    """
    parts: list[tuple[int, list[int]]] = []
    last_key: tuple[int, int] | None = None
    ends = np.array(cuts[1:]) - 1
    for first, end, kind, trail in zip(cuts, cuts[1:], kinds[ends].tolist(), trails[ends].tolist(), strict=False):
        if kind not in _DATA_TYPES:
            return None
        if last_key == (kind, trail):
            begin, cuts_of_part = parts[-1]
            cuts_of_part.append(end - begin)
        else:
            parts.append((first, [0, end - first]))
            last_key = kind, trail
    return parts


def _cuts_where(breaks: npt.NDArray[np.bool_], count: int) -> list[int]:
    return [0, *(breaks.nonzero()[0] + 1).tolist(), count]


def alike(head: Octets, bad: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield half-open row ranges with equal headers, without rows of bad checksum."""
    count = head.shape[0]
    if not bad.any() and head.tobytes() == head[0].tobytes() * count:
        yield 0, count
        return
    cuts = np.flatnonzero((head[1:] != head[:-1]).any(axis=1) | (bad[1:] != bad[:-1])) + 1
    for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), count], strict=True):
        if not bad[first]:
            yield first, end


def item_boundaries(rows: Octets) -> list[int]:
    """Return the first rows of items, and the number of rows.

    An item is one control packet, or data packets with consecutive sqns and the same options.
    """
    count, stride = rows.shape
    if count == 1:
        return [0, 1]
    if int(rows[0, TYPE_AT]) not in _DATA_TYPES or stride < DATA_HEADER_OCTETS:
        return list(range(count + 1))
    sqns = column(rows, SQN_AT, ">u4").astype(np.uint32)
    breaks = sqns[1:] - sqns[:-1] != 1
    if rows[0, FLAGS_AT] & OPTIONS_PRESENT and stride >= DATA_HEADER_OCTETS + 4:
        breaks |= _options_differ(rows)
    return _cuts_where(breaks, count)


# Length of options that have room for OPT_FRAGMENT after another option, whose header alone is four octets.
_TWO_OCTETS = FRAGMENT_OCTETS + 4
_OFFSET_AT = 4 + 8  # of OPT_FRAGMENT's offset, in options that begin with OPT_LENGTH and OPT_FRAGMENT


def _options_differ(rows: Octets) -> npt.NDArray[np.bool_]:
    """Return where a row's options differ from those of the row before.

    A leading OPT_FRAGMENT that continues the fragment before does not count as a difference.
    """
    totals = column(rows, DATA_HEADER_OCTETS + 2, ">u2").astype(np.int64)
    end = min(rows.shape[1], DATA_HEADER_OCTETS + max(4, int(totals.max())))
    octets = rows[:, DATA_HEADER_OCTETS:end].copy()
    breaks: npt.NDArray[np.bool_] = np.zeros(len(rows) - 1, np.bool_)
    if octets.shape[1] >= FRAGMENT_OCTETS:
        are_fragments = octets[:, 4] & 0x7F == Fragment.TYPE
        offsets = column(octets, _OFFSET_AT, ">u4").astype(np.uint32)
        size = int.from_bytes(rows[0, TSDU_LENGTH_AT:HEADER_OCTETS].tobytes(), "big")
        breaks |= are_fragments[1:] & (offsets[1:] - offsets[:-1] != size)
        if octets.shape[1] >= _TWO_OCTETS:  # OPT_FRAGMENT may come later here; its offsets are not compared
            breaks |= ~are_fragments[1:]
        octets[are_fragments, _OFFSET_AT : _OFFSET_AT + 4] = 0
    breaks |= (octets[1:] != octets[:-1]).any(axis=1)
    return breaks


def is_plain_data(rows: Octets) -> bool:
    """Return whether packets with equal headers are plain data of one trail.

    Plain data has no options. The packets may be one item regardless of their sqns.
    """
    if int(rows[0, TYPE_AT]) not in _DATA_TYPES or rows.shape[1] < DATA_HEADER_OCTETS:
        return False
    trails = column(rows, TRAIL_AT, "u4").tobytes()
    return not rows[0, FLAGS_AT] & OPTIONS_PRESENT and trails == trails[:4] * len(rows)


MOST_ROWS = 1024  # rows that are compared together: packets of the longest read


_FRAGMENT_HEAD = DATA_HEADER_OCTETS + FRAGMENT_OCTETS


_KIND_AT, _FRAGMENT_OFFSET_AT = DATA_HEADER_OCTETS + 4, DATA_HEADER_OCTETS + 12  # of OPT_FRAGMENT after OPT_LENGTH


_OPTIONS_BEGIN = b"\0\4" + FRAGMENT_OCTETS.to_bytes(2, "big")  # OPT_LENGTH of options that have only OPT_FRAGMENT


_STEPS = np.arange(MOST_ROWS, dtype=np.uint32)


_number = int.from_bytes


def _run_mask(width: int) -> npt.NDArray[np.uint32]:
    """Return a mask for as many headers of `width` octets as a read may have.

    The mask is ones, except for checksum and trail, in which packets of a run may differ.
    """
    head = np.full(width, 0xFF, np.uint8)
    head[CHECKSUM_AT : CHECKSUM_AT + 2] = head[TRAIL_AT : TRAIL_AT + 4] = 0
    return np.tile(head.view(np.uint32), MOST_ROWS)


_RUN_MASKS = {width: _run_mask(width) for width in (DATA_HEADER_OCTETS, _FRAGMENT_HEAD)}


def is_one_run(rows: Octets, residues: npt.NDArray[np.uint64]) -> bool:
    """Return whether all rows form one run.

    The rows, two at least, must be data packets without options, or fragments of one message. Only sqns and offsets may
    differ, and must be consecutive. `rows` is a (count, size) array of data packets. `residues` are the results of
    `pgm.wire.checksum.residues`. The headers are copied, the steps are subtracted, and the result is compared with the
    first header.
    """
    count, stride = rows.shape
    if stride < DATA_HEADER_OCTETS or count > MOST_ROWS or np.count_nonzero(residues):
        return False
    head = rows[0, :_FRAGMENT_HEAD].tobytes()
    width = _width(head)
    last = rows[-1, SQN_AT:TRAIL_AT].tobytes()
    # This test detects missing packets without a comparison of all headers.
    if not width or _number(last, "big") - _number(head[SQN_AT:TRAIL_AT], "big") != count - 1:
        return False
    words = rows[:, :width].copy().view(np.uint32)
    if np.count_nonzero(words.view(np.uint16)[:, CHECKSUM_AT // 2]) != count:
        return False  # some have no checksum
    words[:, SQN_AT // 4] = words[:, SQN_AT // 4].view(">u4") - _STEPS[:count]
    if width == _FRAGMENT_HEAD:
        size = np.uint32(_number(head[TSDU_LENGTH_AT:HEADER_OCTETS], "big"))
        words[:, _FRAGMENT_OFFSET_AT // 4] = words[:, _FRAGMENT_OFFSET_AT // 4].view(">u4") - _STEPS[:count] * size
    masked = words.reshape(-1)
    masked &= _RUN_MASKS[width][: len(masked)]
    octets = masked.tobytes()
    return bool(octets == octets[:width] * count)


def _width(head: bytes) -> int:
    """Return how many octets of each header to compare; 0 for the general path."""
    if not head[FLAGS_AT] & OPTIONS_PRESENT:
        return DATA_HEADER_OCTETS
    is_fragment = head[DATA_HEADER_OCTETS:_KIND_AT] == _OPTIONS_BEGIN and len(head) == _FRAGMENT_HEAD
    return _FRAGMENT_HEAD if is_fragment and head[_KIND_AT] & 0x7F == Fragment.TYPE else 0
