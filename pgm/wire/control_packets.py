"""Control packets: all types of RFC 3208 section 8 without payload.

Each row of the table is a class. The classes hold wire values: sqns are 32-bit. `tsi` and `data_port` mean the same in
both directions. The codec puts the ports in the order of the direction (W-14).
"""

from __future__ import annotations

import functools
import operator
import struct
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from pgm.errors import WireError
from pgm.wire import checksum
from pgm.wire.formats import (
    AFI_IPV4,
    AFI_IPV6,
    HEADER,
    HEADER_OCTETS,
    OPTIONS_NETWORK,
    OPTIONS_PARITY,
    OPTIONS_PRESENT,
    OPTIONS_VAR_PKTLEN,
    UPSTREAM,
    Layout,
    Nla,
    PacketType,
    Tsi,
    encode_nla,
    nla,
    pad16,
    u16,
    u32,
)
from pgm.wire.options import NO_OPTIONS, NakList, Options, decode_options_untrusted, encode_options, find
from pgm.wire.sequence_numbers import HALF, MASK, spans_of


@attrs.frozen(kw_only=True)
class Packet:
    """Fields of all control packets. `octets` is the packet as received, or empty."""

    tsi: Tsi
    data_port: int
    options: Options = NO_OPTIONS
    parity: bool = False
    octets: bytes = attrs.field(default=b"", eq=False, repr=False)

    TYPE: ClassVar[PacketType]

    @property
    def type(self) -> PacketType:
        """The packet type."""
        return self.TYPE

    @property
    def packets(self) -> int:
        """Number of packets: 1, except for `pgm.wire.naks.Naks`."""
        return 1


@attrs.frozen(kw_only=True)
class Spm(Packet):
    """Source path message (8.1): window edges, and the address that NAKs go to."""

    TYPE = PacketType.SPM
    spm_sqn: int = u32("sequence number of SPMs")
    trail: int = u32("TXW_TRAIL")
    lead: int = u32("TXW_LEAD, the newest sqn sent")
    path_nla: Nla = nla("SPM_PATH: the upstream PGM neighbour")


@attrs.frozen(kw_only=True)
class Poll(Packet):
    """Poll (14.7.1): asks the PGM children on one interface to answer at random."""

    TYPE = PacketType.POLL
    poll_sqn: int = u32("sequence number of the poll")
    poll_round: int = u16("round of that poll")
    sub_type: int = u16("0 general, 1 DLR")
    path_nla: Nla = nla("POLL_PATH: where POLRs go")
    bo_ivl_us: int = u32("bound of the random delay of answers, microseconds")
    rand: int = u32("random string")
    mask: int = u32("which bits of the random string must match")


@attrs.frozen(kw_only=True)
class Polr(Packet):
    """Poll response (14.7.2)."""

    TYPE = PacketType.POLR
    poll_sqn: int = u32("POLL_SQN of the poll")
    poll_round: int = u16("POLL_ROUND of the poll")
    reserved: int = pad16()


@attrs.frozen(kw_only=True)
class Nak(Packet):
    """NAK, null NAK or NAK confirmation (8.3): one body, three types."""

    TYPE = PacketType.NAK
    kind: PacketType = PacketType.NAK
    sqn: int = u32("requested sqn, or group and count with parity")
    source_nla: Nla = nla("NAK_SRC: address of the original source")
    group_nla: Nla = nla("NAK_GRP: address of the group")

    @property
    def type(self) -> PacketType:
        """NAK, NNAK or NCF."""
        return self.kind

    @property
    def says_more(self) -> bool:
        """Whether options say more than the requested sqns."""
        return bool(self.options) and (len(self.options) > 1 or type(self.options[0]) is not NakList)

    @property
    def sqns(self) -> tuple[int, ...]:
        """All requested sqns: the header's, then the list's."""
        more = find(self.options, NakList)
        return (self.sqn, *more.sqns) if more else (self.sqn,)

    @property
    def asked(self) -> int:
        """Number of listed sqns."""
        more = find(self.options, NakList)
        return 1 + len(more.sqns) if more else 1

    @property
    def listed(self) -> bytes:
        """All requested sqns as on the wire."""
        options, octets = self.options, self.octets
        if octets and not self.parity and len(options) == 1 and type(more := options[0]) is NakList:
            return octets[_SQN_AT:_SQN_END] + octets[len(octets) - 4 * len(more.sqns) :]
        sqns = self.sqns
        return _words(len(sqns)).pack(*sqns)

    @functools.cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The requested sqns as ordered, disjoint, half-open spans, relative to `sqn`; cached for simulations."""
        base = self.sqn - HALF
        near = [(wire_sqn - base & MASK) - HALF for wire_sqn in self.sqns]
        ends = [sqn + 1 for sqn in near]
        if all(map(operator.gt, near[1:], ends)):  # the usual case: in order, and no two adjacent
            return tuple(zip(near, ends, strict=True))
        return tuple(spans_of(near))

    def spans_from(self, base: int) -> list[tuple[int, int]]:
        """Return `spans` in 64 bits, where `base` is `sqn`."""
        sqns = self.sqns
        ends = [sqn + 1 for sqn in sqns]
        if base == sqns[0] and sqns[-1] - base < HALF and all(map(operator.gt, sqns[1:], ends)):
            return list(zip(sqns, ends, strict=True))  # the session has not wrapped, so no arithmetic is needed
        return [(base + first, base + end) for first, end in self.spans]


@attrs.frozen(kw_only=True)
class Spmr(Packet):
    """SPM request (13.6): a header and nothing else."""

    TYPE = PacketType.SPMR


@attrs.frozen(kw_only=True)
class Ack(Packet):
    """Acknowledgement of PGMCC, with OPT_PGMCC_FEEDBACK, or of an acknowledged stream, with OPT_PGM_MEMBERS."""

    TYPE = PacketType.ACK
    rx_max: int = u32("newest sqn received; with OPT_PGM_MEMBERS everything up to it was")
    bitmap: int = u32("receive map, least bit is rx_max")


CONTROL: dict[PacketType, type[Packet]] = {
    PacketType.SPM: Spm,
    PacketType.POLL: Poll,
    PacketType.POLR: Polr,
    PacketType.NAK: Nak,
    PacketType.NNAK: Nak,
    PacketType.NCF: Nak,
    PacketType.SPMR: Spmr,
    PacketType.ACK: Ack,
}
LAYOUTS: dict[type[Packet], Layout] = {cls: Layout(cls) for cls in set(CONTROL.values())}

_TYPES = {int(kind): kind for kind in PacketType}
_TYPE_AT, _SQN_AT, _SQN_END = 4, 16, 20
_MOST_FORMS = 256  # Number of cached packet forms, by session and length of list.
# Offset of the sqns in OPT_NAK_LIST as first option, by type and address family.
_LIST_AT = {
    bytes((kind, 0, afi)): _SQN_END + 2 * nla_octets + 8
    for kind in (PacketType.NAK, PacketType.NNAK, PacketType.NCF)
    for afi, nla_octets in ((AFI_IPV4, 8), (AFI_IPV6, 20))
}


@functools.cache
def _words(count: int) -> struct.Struct:
    return struct.Struct(f">{count}I")


def packet_type_untrusted(octet: int) -> PacketType:
    """Return the type of a type octet (W-03). Raise `WireError`. Version and reserved bits must be 0."""
    kind = _TYPES.get(octet)
    if kind is None:
        raise WireError("type")
    return kind


def encode(packet: Packet) -> bytes:
    """Return the packet as octets, including the checksum."""
    if type(packet) is Nak and packet.options and not packet.says_more and not packet.parity:
        ends = packet.tsi, packet.data_port, packet.source_nla, packet.group_nla
        return encode_list(packet.kind, *ends, packet.sqns)
    return _encode(packet)


def encode_list(
    kind: PacketType, tsi: Tsi, data_port: int, source_nla: Nla, group_nla: Nla, sqns: Sequence[int]
) -> bytes:
    """Return a NAK, NNAK or NCF with a list and no other option, as `encode` does. `sqns` are two wire sqns or more."""
    return _encode_listed(kind, (tsi, data_port, source_nla, group_nla), _words(len(sqns)).pack(*sqns))


def _encode_listed(kind: PacketType, ends: tuple[Tsi, int, Nla, Nla], listed: bytes) -> bytes:
    head, middle = _form_of_list(kind, *ends, len(listed) // 4 - 1)
    return _sealed(head + listed[:4] + middle + listed[4:])


@functools.lru_cache(maxsize=_MOST_FORMS)
def _form_of_list(
    kind: PacketType, tsi: Tsi, data_port: int, source_nla: Nla, group_nla: Nla, count: int
) -> tuple[bytes, bytes]:
    """Return the octets up to the first sqn, and from there to the list of `count` further sqns, with checksum 0."""
    options = (NakList(sqns=(0,) * count),)
    first = Nak(
        tsi=tsi, data_port=data_port, kind=kind, sqn=0, source_nla=source_nla, group_nla=group_nla, options=options
    )
    octets = _encode(first)
    return octets[:6] + b"\0\0" + octets[8:_SQN_AT], octets[_SQN_END : len(octets) - 4 * count]


def _encode(packet: Packet) -> bytes:
    kind = packet.type
    option_octets, network = encode_options(packet.options, kind)
    flags = (OPTIONS_PRESENT if option_octets else 0) | (OPTIONS_NETWORK if network else 0)
    flags |= OPTIONS_PARITY if packet.parity else 0
    sport = int.from_bytes(packet.tsi[6:], "big")
    ports = (packet.data_port, sport) if kind in UPSTREAM else (sport, packet.data_port)
    head = HEADER.pack(*ports, kind, flags, 0, packet.tsi[:6], 0)
    return _sealed(head + LAYOUTS[type(packet)].encode(packet) + option_octets)


def _sealed(packet: bytes) -> bytes:
    return packet[:6] + checksum.checksum(packet) + packet[8:]


def decode_control_untrusted(octets: bytes) -> Packet:
    """Decode one control packet, whose checksum was verified. Raise `WireError`."""
    list_at = _LIST_AT.get(octets[_TYPE_AT : _TYPE_AT + 1] + octets[_NAK_NLAS_AT : _NAK_NLAS_AT + 2])
    if list_at is not None and len(octets) > list_at:
        head = octets[:6] + b"\0\0" + octets[8:_SQN_AT] + b"\0\0\0\0" + octets[_SQN_END:list_at]
        fields = fields_of_list_untrusted(head, len(octets))
        if fields is not None:
            more = _words(len(octets) - list_at >> 2).unpack_from(octets, list_at)
            sqn = int.from_bytes(octets[_SQN_AT:_SQN_END], "big")
            return Nak(sqn=sqn, options=(NakList(sqns=more),), octets=octets, **fields)
    return _decode_untrusted(octets)


@functools.lru_cache(maxsize=_MOST_FORMS)
def fields_of_list_untrusted(head: bytes, octets: int) -> dict[str, Any] | None:
    """Return the fields of a NAK, NNAK or NCF except its sqns.

    Return None unless the packet has `octets` octets, a list and no other option, and is encoded as this codec would.
    `head` is everything before the list, with checksum and sqn 0. A child sends the same head each time, so the result
    is cached.
    """
    packet = head + bytes(octets - len(head))
    try:
        first = _decode_untrusted(packet)
    except WireError:
        return None
    if not isinstance(first, Nak) or first.parity or len(first.options) != 1 or type(first.options[0]) is not NakList:
        return None
    written = _encode(first)
    if octets != len(head) + 4 * len(first.options[0].sqns) or written[:6] + b"\0\0" + written[8:] != packet:
        return None
    left_out = {"octets", "sqn", "options"}
    return {field.name: getattr(first, field.name) for field in attrs.fields(Nak) if field.name not in left_out}


def _decode_untrusted(octets: bytes) -> Packet:
    if len(octets) < HEADER_OCTETS:
        raise WireError("truncated")
    sport, dport, type_octet, flags, _, gsi, tsdu_length = HEADER.unpack_from(octets)
    kind = packet_type_untrusted(type_octet)
    cls = CONTROL.get(kind)
    if cls is None:
        raise WireError("type")
    if flags & OPTIONS_VAR_PKTLEN and not flags & OPTIONS_PARITY:
        raise WireError("flags")
    view, end = memoryview(octets), len(octets)
    layout = LAYOUTS[cls]
    values, at = layout.decode_untrusted(view, HEADER_OCTETS, end)
    options = NO_OPTIONS
    if flags & OPTIONS_PRESENT:
        options, at = decode_options_untrusted(view, at, end)
    if at != end or tsdu_length:
        raise WireError("length")
    if kind in UPSTREAM:
        sport, dport = dport, sport
    fields = dict(zip(layout.names, values, strict=True))
    if cls is Nak:
        fields["kind"] = kind
    return cls(
        tsi=gsi + sport.to_bytes(2, "big"),
        data_port=dport,
        options=options,
        parity=bool(flags & OPTIONS_PARITY),
        octets=octets,
        **fields,
    )


_SPM_PATH_AT = 28  # AFI of the path NLA
_NAK_NLAS_AT = 20  # AFI of the source NLA; the group's follows


def _replace(octets: bytes, at: int, size: int, new: bytes) -> bytes:
    """Return received octets with `size` of them replaced, and a checksum patched; an absent one stays absent."""
    field = octets[6:8]
    if field != b"\0\0":
        field = checksum.patched(field, octets[at : at + size], new)
    return octets[:6] + field + octets[8:at] + new + octets[at + size :]


def with_path(spm: Spm, path_nla: Nla) -> bytes:
    """Return an SPM with another SPM_PATH; all other octets stay (NE-02, W-28)."""
    if not spm.octets:
        return encode(attrs.evolve(spm, path_nla=path_nla))
    return _replace(spm.octets, _SPM_PATH_AT, len(encode_nla(spm.path_nla)), encode_nla(path_nla))


def with_addresses(nak: Nak, source_nla: Nla, group_nla: Nla) -> bytes:
    """Return a NAK with the source and the group of the upstream segment (INT-Q3). All other octets stay."""
    if not nak.octets:
        return encode(attrs.evolve(nak, source_nla=source_nla, group_nla=group_nla))
    size = len(encode_nla(nak.source_nla) + encode_nla(nak.group_nla))
    return _replace(nak.octets, _NAK_NLAS_AT, size, encode_nla(source_nla) + encode_nla(group_nla))


def ncf_for(nak: Nak, options: Options = NO_OPTIONS) -> bytes:
    """Return the NCF of a NAK (W-32) with own `options`: its sqns, addresses and list, with the ports swapped."""
    if nak.options and not nak.says_more and not nak.parity and not options:
        return _encode_listed(PacketType.NCF, (nak.tsi, nak.data_port, nak.source_nla, nak.group_nla), nak.listed)
    kept = find(nak.options, NakList)
    ncf = Nak(
        tsi=nak.tsi,
        data_port=nak.data_port,
        options=((kept,) if kept else NO_OPTIONS) + options,
        parity=nak.parity,
        kind=PacketType.NCF,
        sqn=nak.sqn,
        source_nla=nak.source_nla,
        group_nla=nak.group_nla,
    )
    return encode(ncf)
