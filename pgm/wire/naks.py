"""NAKs, NNAKs and NCFs as runs.

Packets that differ only in their sqns are one item. A node that has lost thousands of consecutive packets requests them
with lists of 63 sqns. These packets are sent in a train. A handful of numpy calls reads, answers or forwards a train of
NAKs, as for data packets.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import WireError
from pgm.wire import checksum
from pgm.wire.control_packets import (
    Nak,
    decode_control_untrusted,
    fields_of_list_untrusted,
    with_addresses,
)
from pgm.wire.formats import Nla, PacketType, decode_nla_untrusted, encode_nla
from pgm.wire.options import MAX_NAK_LIST, NakList
from pgm.wire.sequence_numbers import HALF, MASK

Octets = npt.NDArray[np.uint8]
Span = tuple[int, int]

LIST_SQNS = MAX_NAK_LIST + 1  # sqns per packet: the header's and the list's
_TYPE_AT, _SQN_AT, _NLAS_AT = 4, 16, 20
_NLAS = 2  # the source's and the group's
_OPTION_HEADS = 8  # OPT_LENGTH, and the head of OPT_NAK_LIST
_CHECKSUM_END = checksum.CHECKSUM_AT + 2
_SQN_OCTETS = 4


@attrs.frozen(kw_only=True)
class Naks(Nak):
    """Several NAKs, NNAKs or NCFs of one read and one sender.

    Each packet has a list of equal length and no other option. The fields are those of the first packet; `sqns` and
    `spans` cover all packets. `rows` are the packets as received, (count, packet size). `lists` are their sqns as on
    the wire, (count, sqns per packet).
    """

    rows: Octets = attrs.field(eq=False, repr=False)
    lists: npt.NDArray[np.uint32] = attrs.field(eq=False, repr=False)

    @property
    def packets(self) -> int:
        """Number of packets."""
        return len(self.rows)

    @property
    def asked(self) -> int:
        """Number of listed sqns."""
        return self.lists.size

    @property
    def sqns(self) -> tuple[int, ...]:
        """All requested sqns, packet by packet."""
        return tuple(self.lists.reshape(-1).tolist())

    @functools.cached_property
    def spans(self) -> tuple[Span, ...]:
        """Requested sqns of all packets as ordered, disjoint, half-open spans, relative to `sqn`."""
        flat = self.lists.reshape(-1)
        if (flat[1:] - flat[:-1] == 1).all():  # a burst; the differences wrap as sqns do
            return ((0, flat.size),)
        near = ((flat.astype(np.int64) - self.sqn + HALF) & MASK) - HALF
        steps = near[1:] - near[:-1]
        if steps.min() <= 0:
            near = np.unique(near)
            steps = near[1:] - near[:-1]
        cuts = np.flatnonzero(steps != 1)
        firsts = [int(near[0]), *near[cuts + 1].tolist()]
        lasts = [*near[cuts].tolist(), int(near[-1])]
        return tuple((first, last + 1) for first, last in zip(firsts, lasts, strict=True))

    def spans_from(self, base: int) -> list[Span]:
        """Return `spans` in 64 bits, where `base` is `sqn`."""
        return [(base + first, base + end) for first, end in self.spans]

    def singles(self) -> Iterator[Nak]:
        """Yield each packet as an item of its own."""
        for row in self.rows:
            nak = decode_control_untrusted(row.tobytes())
            assert isinstance(nak, Nak)
            yield nak

    def each_list(self) -> list[bytes]:
        """Return `listed` of each packet."""
        octets, size = self.lists.astype(">u4").tobytes(), _SQN_OCTETS * self.lists.shape[1]
        return [octets[at : at + size] for at in range(0, len(octets), size)]


def up_to(nak: Nak, end: int, base: int) -> Nak | None:
    """Return a NAK for single packets without the sqns from `end` on, where `base` is its `sqn` in 64 bits.

    Return None if nothing remains.
    """
    kept = [sqn for sqn in nak.sqns if base + ((sqn - nak.sqn + HALF) & MASK) - HALF < end]
    if not kept:
        return None
    # A received packet may have options of other packets, which no encoder writes.
    own = (option for option in nak.options if nak.kind in option.CARRIERS)
    others = tuple(option for option in own if not isinstance(option, NakList))
    options = (NakList(sqns=tuple(kept[1:])), *others) if len(kept) > 1 else others
    return attrs.evolve(nak, sqn=kept[0], options=options, octets=b"")


def naks_untrusted(rows: Octets) -> Naks | None:
    """Return valid packets of one size, with a list alone and encoded as here, as one item; else None."""
    if checksum.residues(rows).any() or not checksum.stored(rows).all():
        return None
    try:
        list_at = _list_at_untrusted(rows[0].tobytes())
    except WireError:
        return None
    heads = rows[:, :list_at].copy()
    heads[:, checksum.CHECKSUM_AT : _CHECKSUM_END] = 0
    heads[:, _SQN_AT : _SQN_AT + _SQN_OCTETS] = 0
    octets = heads.tobytes()
    head = octets[:list_at]
    fields = fields_of_list_untrusted(head, rows.shape[1]) if octets == head * len(rows) else None
    if fields is None:
        return None
    listed = (rows[:, _SQN_AT : _SQN_AT + _SQN_OCTETS], rows[:, list_at:])
    lists = np.concatenate(listed, axis=1).view(">u4").astype(np.uint32)
    first, *more = lists[0].tolist()
    return Naks(sqn=first, options=(NakList(sqns=tuple(more)),), rows=rows.copy(), lists=lists, **fields)


def _list_at_untrusted(packet: bytes) -> int:
    """Return the offset of a NAK's list, if no option precedes it. Raise `WireError`."""
    octets, at = memoryview(packet), _NLAS_AT
    for _ in range(_NLAS):
        _, at = decode_nla_untrusted(octets, at, len(packet))
    if at + _OPTION_HEADS >= len(packet):
        raise WireError("truncated")
    return at + _OPTION_HEADS


def nak_rows(first: bytes, lists: npt.NDArray[np.int64]) -> Octets:
    """Return packets like `first`, which has a list alone, for `lists`: a (count, sqns per packet) array."""
    rows = np.empty((len(lists), len(first)), np.uint8)
    rows[:] = np.frombuffer(first, np.uint8)
    wire = (lists & MASK).astype(">u4")
    rows[:, _SQN_AT : _SQN_AT + _SQN_OCTETS] = wire[:, :1].copy().view(np.uint8)
    rows[:, len(first) - _SQN_OCTETS * (wire.shape[1] - 1) :] = wire[:, 1:].copy().view(np.uint8)
    checksum.fill(rows)
    return rows


def full_lists(spans: Iterable[Span]) -> tuple[npt.NDArray[np.int64], list[int]]:
    """Return the sqns of spans as full lists, (count, LIST_SQNS), and the rest."""
    sqns = np.concatenate([np.arange(first, end) for first, end in spans])
    whole = len(sqns) - len(sqns) % LIST_SQNS
    return sqns[:whole].reshape(-1, LIST_SQNS), sqns[whole:].tolist()


def ncf_rows_for(naks: Naks) -> Octets:
    """Return the NCFs that confirm NAKs, one for each (W-32). Only the type and the order of the ports differ."""
    rows = naks.rows.copy()
    rows[:, 0:2], rows[:, 2:4] = naks.rows[:, 2:4], naks.rows[:, 0:2]
    old = rows[:, _TYPE_AT : _TYPE_AT + 2].copy()
    rows[:, _TYPE_AT] = PacketType.NCF
    checksum.patch(rows, old, _TYPE_AT)
    return rows


def rows_with_addresses(naks: Naks, source_nla: Nla, group_nla: Nla) -> Octets:
    """Return NAKs or NCFs with other addresses; all other octets stay (INT-Q3)."""
    new = np.frombuffer(encode_nla(source_nla) + encode_nla(group_nla), np.uint8)
    if len(new) != len(encode_nla(naks.source_nla) + encode_nla(naks.group_nla)):
        octets = b"".join(with_addresses(nak, source_nla, group_nla) for nak in naks.singles())
        return np.frombuffer(octets, np.uint8).reshape(naks.packets, -1)
    rows = naks.rows.copy()
    place = slice(_NLAS_AT, _NLAS_AT + len(new))
    old = rows[:, place].copy()
    rows[:, place] = new
    checksum.patch(rows, old, _NLAS_AT)
    return rows
