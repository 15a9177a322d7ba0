"""Grouping of the packets of one read, before they are parsed."""

from __future__ import annotations

import itertools

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

Group = tuple[int, list[int], bool]  # first row, boundaries relative to it, whether the checksums are absent

MOST_ROWS = 1024  # rows that are compared together: packets of the longest read

_DATA_TYPES = frozenset(int(kind) for kind in DATA)
_FRAGMENT_HEAD = DATA_HEADER_OCTETS + FRAGMENT_OCTETS
_KIND_AT, _OFFSET_AT = DATA_HEADER_OCTETS + 4, DATA_HEADER_OCTETS + 12  # of OPT_FRAGMENT after OPT_LENGTH
_OPTIONS_BEGIN = b"\0\4" + FRAGMENT_OCTETS.to_bytes(2, "big")  # OPT_LENGTH of options that have only OPT_FRAGMENT
# Length of options that have room for OPT_FRAGMENT after another option, whose header alone is four octets.
_TWO_OCTETS = FRAGMENT_OCTETS + 4
_STEPS = np.arange(MOST_ROWS, dtype=np.uint32)
_WRONG, _ABSENT = 1, 2  # replace a checksum in compared headers; a right one is replaced by 0
_number = int.from_bytes


def column(rows: Octets, at: int, dtype: str) -> npt.NDArray[np.generic]:
    """Return a header field of all rows as a strided view."""
    return np.ndarray((rows.shape[0],), dtype, rows, at, (rows.strides[0],))


def group_packets(rows: Octets) -> list[Group]:
    """Group packets of one size, of which the first is data.

    The boundaries of a group are the first rows of its pieces, and its number of rows. A piece is one control packet,
    or data packets that differ only in consecutive sqns, trail and the offset of a fragment. A group is one piece, or
    adjacent pieces without options that differ only in sqns. Packets with a wrong checksum are in no group. `rows` is
    a (count, size) array, at least as wide as a data header.
    """
    residues = checksum.residues(rows)
    is_right = not np.count_nonzero(residues)
    count, stride = rows.shape
    if is_right and _is_one_run(rows):
        return [(0, [0, count], False)]
    words = rows[:, :DATA_HEADER_OCTETS].copy().view(np.uint64)
    sums = words.view(np.uint16)[:, CHECKSUM_AT // 2]
    are_present = np.count_nonzero(sums) == count
    sums[:] = 0 if is_right and are_present else np.where(sums == 0, _ABSENT, residues != 0)
    sqn_words = words.view(np.uint32)[:, SQN_AT // 4]
    sqns = sqn_words.view(">u4").astype(np.uint32)
    sqn_words[:] = 0
    breaks = sqns[1:] - sqns[:-1] != 1
    heads = words.tobytes()
    if is_right and not heads[FLAGS_AT] & OPTIONS_PRESENT and heads == heads[:DATA_HEADER_OCTETS] * count:
        return [(0, _cuts_where(breaks, count), not are_present)]
    ports, addresses = words[:, 0], words[:, 1]
    differ = (ports[1:] != ports[:-1]) | (addresses[1:] != addresses[:-1])
    breaks |= differ
    for first, end in itertools.pairwise(_cuts_where(differ, count)):
        at = first * DATA_HEADER_OCTETS
        if heads[at + TYPE_AT] not in _DATA_TYPES:
            breaks[first : end - 1] = True
        elif heads[at + FLAGS_AT] & OPTIONS_PRESENT and end - first > 1 and stride >= DATA_HEADER_OCTETS + 4:
            breaks[first : end - 1] |= _options_differ(rows[first:end])
    return _merge_plain(_cuts_where(breaks, count), heads)


def _cuts_where(breaks: npt.NDArray[np.bool_], count: int) -> list[int]:
    return [0, *(breaks.nonzero()[0] + 1).tolist(), count]


def _merge_plain(cuts: list[int], heads: bytes) -> list[Group]:
    """Return pieces as groups; adjacent pieces without options are one group if their last headers are equal."""
    groups: list[Group] = []
    head_before = b""
    for first, end in itertools.pairwise(cuts):
        head = heads[(end - 1) * DATA_HEADER_OCTETS : end * DATA_HEADER_OCTETS]
        if head[CHECKSUM_AT] == _WRONG:
            pass
        elif head == head_before and head[TYPE_AT] in _DATA_TYPES and not head[FLAGS_AT] & OPTIONS_PRESENT:
            begin, boundaries, _ = groups[-1]
            boundaries.append(end - begin)
        else:
            groups.append((first, [0, end - first], head[CHECKSUM_AT] == _ABSENT))
        head_before = head
    return groups


def _options_differ(rows: Octets) -> npt.NDArray[np.bool_]:
    """Return where options differ from the row before, unless a leading OPT_FRAGMENT continues its fragment."""
    totals = column(rows, DATA_HEADER_OCTETS + 2, ">u2").astype(np.int64)
    end = min(rows.shape[1], DATA_HEADER_OCTETS + max(4, int(totals.max())))
    octets = rows[:, DATA_HEADER_OCTETS:end].copy()
    breaks: npt.NDArray[np.bool_] = np.zeros(len(rows) - 1, np.bool_)
    if octets.shape[1] >= FRAGMENT_OCTETS:
        at = _OFFSET_AT - DATA_HEADER_OCTETS
        are_fragments = octets[:, 4] & 0x7F == Fragment.TYPE
        offsets = column(octets, at, ">u4").astype(np.uint32)
        size = int.from_bytes(rows[0, TSDU_LENGTH_AT:HEADER_OCTETS].tobytes(), "big")
        breaks |= are_fragments[1:] & (offsets[1:] - offsets[:-1] != size)
        if octets.shape[1] >= _TWO_OCTETS:  # OPT_FRAGMENT may come later here; its offsets are not compared
            breaks |= ~are_fragments[1:]
        octets[are_fragments, at : at + 4] = 0
    breaks |= (octets[1:] != octets[:-1]).any(axis=1)
    return breaks


def _run_mask(width: int) -> npt.NDArray[np.uint32]:
    """Return a mask for all headers of a read: ones, but for checksum and trail, which may differ in a run."""
    head = np.full(width, 0xFF, np.uint8)
    head[CHECKSUM_AT : CHECKSUM_AT + 2] = head[TRAIL_AT : TRAIL_AT + 4] = 0
    return np.tile(head.view(np.uint32), MOST_ROWS)


_RUN_MASKS = {width: _run_mask(width) for width in (DATA_HEADER_OCTETS, _FRAGMENT_HEAD)}


def _is_one_run(rows: Octets) -> bool:
    """Return whether all rows are one piece of plain data, or of fragments of one message.

    The headers are copied, the steps of sqns and offsets are subtracted, and the result is compared with the first
    header. False says only that this comparison does not suffice.
    """
    count = len(rows)
    if count > MOST_ROWS:
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
        words[:, _OFFSET_AT // 4] = words[:, _OFFSET_AT // 4].view(">u4") - _STEPS[:count] * size
    masked = words.reshape(-1)
    masked &= _RUN_MASKS[width][: len(masked)]
    octets = masked.tobytes()
    return bool(octets == octets[:width] * count)


def _width(head: bytes) -> int:
    """Return how many octets of each header to compare; 0 if it does not suffice to compare them."""
    if not head[FLAGS_AT] & OPTIONS_PRESENT:
        return DATA_HEADER_OCTETS
    is_fragment = head[DATA_HEADER_OCTETS:_KIND_AT] == _OPTIONS_BEGIN and len(head) == _FRAGMENT_HEAD
    return _FRAGMENT_HEAD if is_fragment and head[_KIND_AT] & 0x7F == Fragment.TYPE else 0
