"""Parity packets: numbering, construction and parsing (RFC 3208 section 11).

A transmission group is `size` sqns that start at a multiple of `size`. Parity packet `index` of a group has the sqn of
the group's packet `index mod size`, and has OPT_PARITY_GRP if `index >= size`. In NAKs and NCFs with OPT_PARITY, the
low part of the sqn is a count minus one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from pgm.wire import checksum
from pgm.wire.formats import (
    DATA_HEADER_OCTETS,
    FLAGS_AT,
    HEADER,
    OPTIONS_NETWORK,
    OPTIONS_PARITY,
    OPTIONS_PRESENT,
    OPTIONS_VAR_PKTLEN,
    PacketType,
    Tsi,
)
from pgm.wire.options import (
    OP_ENCODED,
    OP_ENCODED_NULL,
    CurrTgsize,
    Fragment,
    Option,
    ParityGrp,
    UnknownOption,
    encode_options,
    find,
)
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Data, Octets

LENGTH_OCTETS = 2  # octets of the encoded TSDU length, for packets of several sizes
ENCODED_FRAGMENT_OCTETS = 13  # of OPT_FRAGMENT, from its fourth octet on: all that is encoded (FEC-11)
# Octets by which a parity packet may exceed the longest data packet of its group: the encoded length, OPT_LENGTH,
# OPT_FRAGMENT, OPT_PARITY_GRP, OPT_CURR_TGSIZE, OPT_SYN and OPT_FIN.
MOST_EXTRA_OCTETS = LENGTH_OCTETS + 4 + 16 + 8 + 8 + 4 + 4

_FRAGMENT_AT = 3  # in the option: the octets before it are not encoded


@attrs.frozen
class ParityPacket:
    """One parity packet of the group whose first sqn is `group`, in 64 bits."""

    group: int
    index: int
    payload: bytes = attrs.field(repr=False)
    is_variable: bool  # the packets of the group differ in size, so their lengths are encoded too
    actual: int | None = None  # packets in a short group; None for a full group
    fragment: bytes | None = attrs.field(default=None, repr=False)  # the encoded OPT_FRAGMENT


def group_of(sqn: int, size: int) -> int:
    """Return the first sqn of the group of a sqn (FEC-03)."""
    return sqn - sqn % size


def request_sqn(group: int, count: int) -> int:
    """Return the sqn of a NAK that requests `count` packets of a group (FEC-08)."""
    return group + count - 1


def requested(sqn: int, size: int) -> tuple[int, int]:
    """Return the group and the count of a parity NAK or NCF."""
    return group_of(sqn, size), sqn % size + 1


def fragment_at(head: memoryview | bytes, payload_at: int) -> int | None:
    """Return the offset of the first OPT_FRAGMENT of a packet with valid options (FEC-12), or None."""
    at = DATA_HEADER_OCTETS + 4
    while at < payload_at:
        if head[at] & 0x7F == Fragment.TYPE:
            return at
        at += head[at + 1]
    return None


def encoded_fragment(row: memoryview | bytes, payload_at: int) -> bytes | None:
    """Return the octets of OPT_FRAGMENT that parity encodes; None without the option."""
    at = fragment_at(row, payload_at) if payload_at > DATA_HEADER_OCTETS else None
    return None if at is None else bytes(row[at + _FRAGMENT_AT : at + _FRAGMENT_AT + ENCODED_FRAGMENT_OCTETS])


def fragment_rows(rows: Octets, payload_at: int) -> Octets | None:
    """Return the encoded OPT_FRAGMENT octets of one run, as a (count, 13) view."""
    at = fragment_at(rows[0].tobytes(), payload_at) if payload_at > DATA_HEADER_OCTETS else None
    return None if at is None else rows[:, at + _FRAGMENT_AT : at + _FRAGMENT_AT + ENCODED_FRAGMENT_OCTETS]


NO_FRAGMENT = bytes([OP_ENCODED_NULL]) + bytes(ENCODED_FRAGMENT_OCTETS - 1)  # of a packet without the option


def fragment_of_encoded(octets: bytes) -> Fragment | None:
    """Decode OPT_FRAGMENT from parity; None if the packet had none (FEC-12)."""
    if octets[0] & OP_ENCODED_NULL:
        return None
    first_sqn, offset, apdu_length = (int.from_bytes(octets[at : at + 4], "big") for at in (1, 5, 9))
    return Fragment(first_sqn=first_sqn, offset=offset, apdu_length=apdu_length)


def build_parity(
    kind: PacketType,
    packet: ParityPacket,
    *,
    tsi: Tsi,
    data_port: int,
    size: int,
    trail: int,
    marks: Iterable[Option] = (),
) -> bytes:
    """Return parity as octets: ODATA if unrequested, else RDATA. `marks` are OPT_SYN and OPT_FIN (FEC-13)."""
    options: list[Option] = [*marks]
    if packet.actual is not None:
        options.append(CurrTgsize(size=packet.actual))
    if packet.index >= size:
        options.append(ParityGrp(group=packet.index // size))
    if packet.fragment is not None:
        options.append(
            UnknownOption(number=Fragment.TYPE, octet2=OP_ENCODED, octet3=packet.fragment[0], value=packet.fragment[1:])
        )
    octets, network = encode_options(options, kind)
    flags = OPTIONS_PARITY | (OPTIONS_VAR_PKTLEN if packet.is_variable else 0)
    flags |= (OPTIONS_PRESENT if octets else 0) | (OPTIONS_NETWORK if network else 0)
    head = HEADER.pack(int.from_bytes(tsi[6:], "big"), data_port, kind, flags, 0, tsi[:6], len(packet.payload))
    sqn = wrap(packet.group + packet.index % size)
    whole = head + sqn.to_bytes(4, "big") + wrap(trail).to_bytes(4, "big") + octets + packet.payload
    return whole[: checksum.CHECKSUM_AT] + checksum.checksum(whole) + whole[checksum.CHECKSUM_AT + 2 :]


def read_parity(data: Data, first: int, size: int) -> list[ParityPacket]:
    """Return the parity packets of an item whose first sqn is `first` in 64 bits."""
    octets = data.octets.tobytes()
    more, short = find(data.options, ParityGrp), find(data.options, CurrTgsize)
    base = 0 if more is None else more.group * size
    is_variable = bool(octets[FLAGS_AT] & OPTIONS_VAR_PKTLEN)
    actual = short.size if short is not None and short.size < size else None
    packets = []
    for at in range(data.count):
        row = octets[at * data.stride : (at + 1) * data.stride]
        sqn = first + at
        packets.append(
            ParityPacket(
                group=group_of(sqn, size),
                index=base + sqn % size,
                payload=row[data.payload_at :],
                is_variable=is_variable,
                actual=actual,
                fragment=encoded_fragment(row, data.payload_at),
            )
        )
    return packets


def counts_of(sqns: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Return the groups and counts of a parity NAK's 64-bit sqns, the largest count of each group."""
    largest: dict[int, int] = {}
    for sqn in sqns:
        group, count = requested(sqn, size)
        largest[group] = max(count, largest.get(group, 0))
    return list(largest.items())
