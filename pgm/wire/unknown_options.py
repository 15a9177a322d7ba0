"""OPX: what a network element does with an option that it does not know (RFC 9, W-26).

Nobody else looks at OPX, and elements only in packets that are marked as carrying something for them. Options that
are known are never judged by it: OpenPGM leaves uninitialised memory in that octet (INT-Q7).
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
    """A packet as an element may handle it: as it came, with unknown options invalidated, or None for one to discard.

    ODATA passes elements untouched (NE-04) and is not judged.
    """
    wishes = {
        option.opx for option in item.options if isinstance(option, UnknownOption) and option.number != OPT_INVALID
    }
    if wishes.isdisjoint((Opx.INVALIDATE, Opx.DISCARD)) or item.type is PacketType.ODATA:
        return item
    octets = item.octets if isinstance(item, Data) else np.frombuffer(item.octets, np.uint8)
    if not octets[FLAGS_AT] & OPTIONS_NETWORK:
        return item
    if Opx.DISCARD in wishes:
        return None
    if isinstance(item, Data):
        rows = octets.reshape(item.count, item.stride).copy()
        _invalidate(rows, DATA_HEADER_OCTETS, len(item.options))
        [found], _ = Train.of(rows.reshape(-1), item.stride).parse_untrusted()
        return found
    rows = octets.reshape(1, -1).copy()
    _invalidate(rows, _options_at(item), len(item.options))
    return decode_control_untrusted(rows.tobytes())


def _options_at(packet: Packet) -> int:
    return HEADER_OCTETS + len(LAYOUTS[type(packet)].encode(packet))


def _invalidate(rows: Octets, options_at: int, count: int) -> None:
    """Give unknown options that ask for it the type OPT_INVALID; OPT_END and all else stay, the checksum follows."""
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
