"""Building data packets: ODATA for what the application sends, RDATA from what was kept.

Headers of a whole train are written by one assignment per field, and the checksums of all its packets
come from one sum.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pgm.wire import checksum
from pgm.wire.alike import column
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
from pgm.wire.serial import wrap
from pgm.wire.train import Octets, Run


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
    """Write headers, options and checksums of ODATA into `rows`, a contiguous (count, size) array whose payloads are in place.

    `option_octets` go on every packet; with `fragment_offsets` they begin with OPT_FRAGMENT, whose
    second field is set row by row.
    """
    count, size = rows.shape
    tsdu_length = size - DATA_HEADER_OCTETS - len(option_octets)
    head = _odata_head(tsi, data_port, tsdu_length, trail, option_octets, network_significant)
    np.ndarray((count,), head.dtype, rows, 0, (size,))[...] = head  # one item a row, which is faster than its octets
    column(rows, SQN_AT, ">u4")[...] = np.arange(first, first + count)  # the lower half
    if fragment_offsets is not None:
        offsets = np.arange(fragment_offsets.start, fragment_offsets.stop, fragment_offsets.step, dtype=np.uint32)
        column(rows, DATA_HEADER_OCTETS + 12, ">u4")[:] = offsets
    checksum.fill_empty(rows)


@functools.lru_cache(maxsize=64)  # of batch after batch it is the same, until the trail moves
def _odata_head(
    tsi: Tsi, data_port: int, tsdu_length: int, trail: int, option_octets: bytes, network_significant: bool
) -> npt.NDArray[np.void]:
    """Header and options as one item, without sqn and checksum."""
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


_WORDS_AT = (TYPE_AT // 2, TRAIL_AT // 2, TRAIL_AT // 2 + 1)  # of the header, that a repair changes


def build_rdata(runs: Sequence[Run], trail: int) -> Octets:
    """RDATA for kept packets of one size: copies with type, trail and checksum changed and nothing else (W-31).

    The checksum is patched, not recomputed: damage to the kept octets stays visible to the receiver.
    """
    if len(runs) == 1 and runs[0].count == 1:
        return _rdata_alone(runs[0], trail)
    stride = runs[0].stride
    rows = np.empty((sum([run.count for run in runs]), stride), np.uint8)
    octets, at = rows.reshape(-1).data, 0
    for run in runs:
        end = at + run.count * stride
        octets[at:end] = run.buffer.data[run.offset : run.offset + end - at]
        at = end
    words = np.ndarray((len(rows), DATA_HEADER_OCTETS // 2), np.uint16, rows, 0, (stride, 2))
    value = words[:, checksum.CHECKSUM_AT // 2].astype(np.int64)
    for word in _WORDS_AT:
        value += words[:, word]
    rows[:, TYPE_AT] = PacketType.RDATA
    rows[:, TRAIL_AT : TRAIL_AT + 4] = np.frombuffer(wrap(trail).to_bytes(4, "big"), np.uint8)
    for word in _WORDS_AT:
        value -= words[:, word]
    value %= 0xFFFF
    value[value == 0] = 0xFFFF
    words[:, checksum.CHECKSUM_AT // 2] = value
    return rows


def _rdata_alone(run: Run, trail: int) -> Octets:
    """One packet, without the calls of numpy that cost more than all else: whoever lost it waits for this."""
    packet = bytearray(run.buffer.data[run.offset : run.offset + run.stride])
    old = bytes(packet[TYPE_AT : TYPE_AT + 2] + packet[TRAIL_AT : TRAIL_AT + 4])
    packet[TYPE_AT] = PacketType.RDATA
    packet[TRAIL_AT : TRAIL_AT + 4] = wrap(trail).to_bytes(4, "big")
    new = bytes(packet[TYPE_AT : TYPE_AT + 2] + packet[TRAIL_AT : TRAIL_AT + 4])
    field = slice(checksum.CHECKSUM_AT, checksum.CHECKSUM_AT + 2)
    packet[field] = checksum.patched(bytes(packet[field]), old, new)
    return np.frombuffer(packet, np.uint8).reshape(1, run.stride)


def build_first_sending(run: Run) -> Octets:
    """ODATA for packets that a relay got as repairs and never sent down: on that segment they are new."""
    return _retyped(run, PacketType.ODATA)
