"""Construction of data packets: ODATA from messages, RDATA from kept packets.

One assignment per field writes the headers of a whole train, and one sum gives the checksums of all its packets.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgm.wire import checksum
from pgm.wire.formats import (
    DATA_HEADER_OCTETS,
    HEADER,
    OPTIONS_NETWORK,
    OPTIONS_PRESENT,
    SQN_AT,
    TRAIL_AT,
    TYPE_AT,
    PacketType,
    Tsi,
)
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Octets, Run
from pgm.wire.train_grouping import column


def write_odata(
    rows: Octets,
    *,
    tsi: Tsi,
    data_port: int,
    first: int,
    trail: int,
    option_octets: bytes = b"",
    network_significant: bool = False,
    fragment_offsets: range | None = None,
) -> None:
    """Write headers, options and checksums of ODATA into `rows`.

    `rows` is a contiguous (count, size) array whose payloads are in place. `option_octets` go on every packet. With
    `fragment_offsets`, the options begin with OPT_FRAGMENT, whose second field is set row by row.
    """
    count, size = rows.shape
    tsdu_length = size - DATA_HEADER_OCTETS - len(option_octets)
    head = _odata_head(tsi, data_port, tsdu_length, trail, option_octets, network_significant)
    np.ndarray((count,), head.dtype, rows, 0, (size,))[...] = head  # one item per row is faster than its octets
    column(rows, SQN_AT, ">u4")[...] = np.arange(first, first + count)  # the lower half
    if fragment_offsets is not None:
        offsets = np.arange(fragment_offsets.start, fragment_offsets.stop, fragment_offsets.step, dtype=np.uint32)
        column(rows, DATA_HEADER_OCTETS + 12, ">u4")[:] = offsets
    checksum.fill_empty(rows)


@functools.lru_cache(maxsize=64)  # the head is the same batch after batch, until the trail moves
def _odata_head(
    tsi: Tsi, data_port: int, tsdu_length: int, trail: int, option_octets: bytes, network_significant: bool
) -> npt.NDArray[np.void]:
    """Return header and options as one item, without sqn and checksum."""
    flags = (OPTIONS_PRESENT if option_octets else 0) | (OPTIONS_NETWORK if network_significant else 0)
    sport = int.from_bytes(tsi[6:], "big")
    head = HEADER.pack(sport, data_port, PacketType.ODATA, flags, 0, tsi[:6], tsdu_length)
    head += bytes(TRAIL_AT - SQN_AT) + wrap(trail).to_bytes(4, "big") + option_octets
    return np.frombuffer(head, f"V{len(head)}")


def _retyped(run: Run, kind: PacketType) -> Octets:
    rows = run.rows.copy()
    old = rows[:, TYPE_AT : TYPE_AT + 2].copy()
    rows[:, TYPE_AT] = kind
    checksum.patch(rows, old, TYPE_AT)
    return rows


# Up to this many rows are patched one by one. With cold caches, that costs about as much as the calls of numpy.
_FEW = 40
# Type, flags and checksum; the octets in between; the trail. The trail as one number has the residue of the sum of its
# words.
_TYPE_TO_TRAIL = struct.Struct(f"<BBH{TRAIL_AT - TYPE_AT - 4}sI")
_KIND, _FIELD, _TRAIL = np.dtype(np.uint8), np.dtype("<u2"), np.dtype("<u4")


def build_rdata(runs: Sequence[Run], trail: int) -> Octets:
    """Return RDATA for kept packets of one size (W-31).

    The rows are copies in which only type, trail and checksum differ. The checksum is patched, not recomputed, so that
    the receiver detects damage to the kept octets.
    """
    stride = runs[0].stride
    rows = np.empty((sum([run.count for run in runs]), stride), np.uint8)
    octets, at = rows.reshape(-1).data, 0
    for run in runs:
        end = at + run.count * stride
        octets[at:end] = run.buffer.data[run.offset : run.offset + end - at]
        at = end
    return as_rdata(rows, trail)


def as_rdata(rows: Octets, trail: int) -> Octets:
    """Turn copies of kept packets, a contiguous (count, packet size) array, into RDATA in place: see `build_rdata`."""
    count, stride = rows.shape
    new = int.from_bytes(wrap(trail).to_bytes(4, "big"), "little")
    rdata = int(PacketType.RDATA)
    less = rdata + new + 1
    if count <= _FEW:
        _patch_each(rows.reshape(-1).data, stride, rdata, new, less)
        return rows
    shape, strides = (count,), (stride,)
    kinds = np.ndarray(shape, _KIND, rows, TYPE_AT, strides)
    fields = np.ndarray(shape, _FIELD, rows, checksum.CHECKSUM_AT, strides)
    trails = np.ndarray(shape, _TRAIL, rows, TRAIL_AT, strides)
    value = trails.astype(np.int64)
    value += fields
    value += kinds
    value -= less
    value %= 0xFFFF
    value += 1  # never 0, which would mean no checksum
    fields[...] = value
    trails.fill(new)
    kinds.fill(rdata)
    return rows


def _patch_each(octets: memoryview, stride: int, rdata: int, new: int, less: int) -> None:
    """Patch rows one by one, faster for a few rows: caches hold this loop's memory, but not that of numpy."""
    unpack_from, pack_into = _TYPE_TO_TRAIL.unpack_from, _TYPE_TO_TRAIL.pack_into
    for at in range(TYPE_AT, len(octets), stride):
        kind, flags, value, middle, old = unpack_from(octets, at)
        pack_into(octets, at, rdata, flags, (value + kind + old - less) % 0xFFFF + 1, middle, new)


def build_first_sending(run: Run) -> Octets:
    """Return ODATA for recovered packets that a relay never sent downstream, where they are new."""
    return _retyped(run, PacketType.ODATA)
