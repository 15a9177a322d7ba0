"""OPX: handling of unknown options by network elements (RFC 9, W-26).

Only elements evaluate OPX, and only in packets that are marked as network-significant. OPX of known options is ignored:
OpenPGM leaves uninitialised memory in that octet (INT-Q7).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pgm.wire import checksum
from pgm.wire.control_packets import LAYOUTS, Packet, decode_control_untrusted
from pgm.wire.formats import DATA_HEADER_OCTETS, FLAGS_AT, HEADER_OCTETS, OPTIONS_NETWORK, PacketType
from pgm.wire.options import OPT_INVALID, OPTIONS, Opx, UnknownOption
from pgm.wire.train import Data, Item, Octets, Train

_OPT_LENGTH_OCTETS = 4


def apply_opx(item: Item) -> Item | None:
    """Apply OPX to a packet, and return the packet that an element may handle.

    Unknown options that request it are invalidated. Return None for a packet to discard. ODATA passes elements
    unchanged (NE-04), and its OPX is ignored.
    """
    requests = {
        option.opx for option in item.options if isinstance(option, UnknownOption) and option.number != OPT_INVALID
    }
    if requests.isdisjoint((Opx.INVALIDATE, Opx.DISCARD)) or item.type is PacketType.ODATA:
        return item
    octets = item.octets if isinstance(item, Data) else np.frombuffer(item.octets, np.uint8)
    if not octets[FLAGS_AT] & OPTIONS_NETWORK:
        return item
    if Opx.DISCARD in requests:
        return None
    if isinstance(item, Data):
        rows = octets.reshape(item.count, item.stride).copy()
        _invalidate(rows, DATA_HEADER_OCTETS, len(item.options))
        [data], _ = Train.of(rows.reshape(-1), item.stride).parse_untrusted()
        return data
    rows = octets.reshape(1, -1).copy()
    _invalidate(rows, _options_at(item), len(item.options))
    return decode_control_untrusted(rows.tobytes())


def _options_at(packet: Packet) -> int:
    return HEADER_OCTETS + len(LAYOUTS[type(packet)].encode(packet))


def _invalidate(rows: Octets, options_at: int, count: int) -> None:
    """Set the type of unknown options with OPX INVALIDATE, not OPT_END, to OPT_INVALID; patch the checksum."""
    for at in _option_places(rows[0], options_at + _OPT_LENGTH_OCTETS, count):
        number, opx = int(rows[0, at]) & OPT_INVALID, int(rows[0, at + 2]) & 0x03
        if number in OPTIONS or opx != Opx.INVALIDATE:
            continue
        word = at & ~1
        old = rows[:, word : word + 2].copy()
        rows[:, at] |= OPT_INVALID
        if checksum.stored(rows)[0]:
            checksum.patch(rows, old, word)


def _option_places(octets: Octets, at: int, count: int) -> Iterator[int]:
    for _ in range(count):
        yield at
        at += int(octets[at + 1])
