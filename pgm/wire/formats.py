"""Tables of RFC 3208 section 8: packet types, common header, field formats.

A packet or option class declares its fields with `u16()`, `u32()`, `u32s()` and `nla()`. The class itself is the table
row. The codec, `docs/reference/wire.md` and the test strategies come from the same declarations.

Offsets count from the first octet of the PGM header. All multi-octet fields are big-endian.

The RFC numbers the bits of the Options octet from the wrong end, and states some lengths wrongly. This codec follows
the readings E-01 to E-06 of the checklist, like every implementation.
"""

from __future__ import annotations

import enum
import functools
import ipaddress
import struct
from typing import Any

import attrs

from pgm.errors import WireError

Tsi = bytes  # GSI (6 octets) and data-source port (2): names a session, W-12
Nla = str  # a network-layer address in its usual spelling

HEADER_OCTETS = 16
DATA_HEADER_OCTETS = 24  # common header, sqn, trail
PROOFS_BIT = 0x4000  # by which the ports of a session of proofs differ from those of its stream
KEY_RECORDS_BIT = 0x2000  # the same for the key records of a sealed stream
FRAGMENT_OCTETS = 20  # OPT_LENGTH and OPT_FRAGMENT, which follow that header

# Offsets of header fields.
TYPE_AT, FLAGS_AT, TSDU_LENGTH_AT, SQN_AT, TRAIL_AT = 4, 5, 14, 16, 20

# Options octet of the header (E-01).
OPTIONS_PRESENT = 0x01
OPTIONS_NETWORK = 0x02
OPTIONS_VAR_PKTLEN = 0x40
OPTIONS_PARITY = 0x80

AFI_IPV4 = 1
AFI_IPV6 = 2

# An SPM with this pair carries no window information (RFC 8.1, W-20).
NO_WINDOW_TRAIL = 0
NO_WINDOW_LEAD = 0x80000000


class PacketType(enum.IntEnum):
    """Low nibble of the type octet (RFC 8). ACK is OpenPGM's for PGMCC, used for acknowledged streams too."""

    __hash__ = int.__hash__  # the hash of Enum hashes the name, in Python, for every packet

    SPM = 0x00
    POLL = 0x01
    POLR = 0x02
    ODATA = 0x04
    RDATA = 0x05
    NAK = 0x08
    NNAK = 0x09
    NCF = 0x0A
    SPMR = 0x0C
    ACK = 0x0D


UPSTREAM = frozenset({PacketType.POLR, PacketType.NAK, PacketType.NNAK, PacketType.SPMR, PacketType.ACK})
"""Types that travel towards the source, with the ports swapped (W-14).

The set cannot be derived from the nibble (W-04).
"""

DATA = frozenset({PacketType.ODATA, PacketType.RDATA})

# source port, destination port, type, options, checksum, GSI, TSDU length
HEADER = struct.Struct(">HHBBH6sH")


class Kind(enum.Enum):
    """Format of one field."""

    U16 = "u16"
    U32 = "u32"
    PAD16 = "reserved u16"
    U32S = "u32 list"  # to the end of the option
    NLA = "AFI, reserved, NLA"
    BARE_NLA = "NLA without AFI"  # to the end of the option, E-04
    RAW = "octets"  # to the end of the option


_STRUCT = {Kind.U16: "H", Kind.U32: "I", Kind.PAD16: "2x"}


def _field(kind: Kind, doc: str, **kwargs: Any) -> Any:
    return attrs.field(metadata={"kind": kind, "doc": doc}, **kwargs)


def u16(doc: str, **kwargs: Any) -> Any:
    """Declare a 16-bit unsigned field."""
    return _field(Kind.U16, doc, **kwargs)


def u32(doc: str, **kwargs: Any) -> Any:
    """Declare a 32-bit unsigned field."""
    return _field(Kind.U32, doc, **kwargs)


def pad16() -> Any:
    """Declare two reserved octets, sent as zero (W-25)."""
    return _field(Kind.PAD16, "reserved", default=0, init=False, repr=False, eq=False)


def u32s(doc: str) -> Any:
    """Declare 32-bit fields up to the end of the option."""
    return _field(Kind.U32S, doc)


def nla(doc: str) -> Any:
    """Declare an AFI, two reserved octets, and an address (W-16)."""
    return _field(Kind.NLA, doc)


def bare_nla(doc: str) -> Any:
    """Declare an address without AFI, whose family follows from the length (E-04)."""
    return _field(Kind.BARE_NLA, doc)


def raw(doc: str, **kwargs: Any) -> Any:
    """Declare uninterpreted octets up to the end of the option."""
    return _field(Kind.RAW, doc, **kwargs)


@functools.lru_cache(maxsize=4096)
def pack_nla(address: Nla) -> bytes:
    """Return the 4 or 16 octets of an address. Raise ValueError if `address` is no address."""
    return ipaddress.ip_address(address).packed


@functools.lru_cache(maxsize=4096)
def unpack_nla(octets: bytes) -> Nla:
    """Return the usual spelling of 4 or 16 octets."""
    return str(ipaddress.ip_address(octets))


_AFI_OCTETS = {AFI_IPV4: 4, AFI_IPV6: 16}
_AFI_HEAD = struct.Struct(">HH")


def encode_nla(address: Nla) -> bytes:
    """Return AFI, two reserved octets and the address."""
    packed = pack_nla(address)
    return _AFI_HEAD.pack(AFI_IPV4 if len(packed) == 4 else AFI_IPV6, 0) + packed


def decode_nla_untrusted(octets: memoryview, at: int, end: int) -> tuple[Nla, int]:
    """Read AFI, reserved octets and address at `at`. Raise `WireError`. Return the address and the offset after it."""
    if at + 4 > end:
        raise WireError("truncated")
    afi, _ = _AFI_HEAD.unpack_from(octets, at)
    size = _AFI_OCTETS.get(afi)
    if size is None:
        raise WireError("unknown_afi")
    if at + 4 + size > end:
        raise WireError("truncated")
    return unpack_nla(bytes(octets[at + 4 : at + 4 + size])), at + 4 + size


class Layout:
    """Codec of a class's field declarations: a step per run of fixed fields, and one per special field."""

    def __init__(self, cls: type[attrs.AttrsInstance]) -> None:
        self.names: list[str] = []
        self._steps: list[tuple[struct.Struct | Kind, int]] = []  # (format, number of fields)
        fixed, count = ">", 0
        for field in attrs.fields(cls):
            kind = field.metadata.get("kind")
            if kind is None:
                continue
            if kind is not Kind.PAD16:
                self.names.append(field.name)
            if kind in _STRUCT:
                fixed += _STRUCT[kind]
                count += kind is not Kind.PAD16
                continue
            if fixed != ">":
                self._steps.append((struct.Struct(fixed), count))
            self._steps.append((kind, 1))
            fixed, count = ">", 0
        if fixed != ">":
            self._steps.append((struct.Struct(fixed), count))

    def encode(self, value: object) -> bytes:
        """Return the octets of the declared fields of `value`."""
        values = [getattr(value, name) for name in self.names]
        parts, at = [], 0
        for step, count in self._steps:
            chunk = values[at : at + count]
            at += count
            parts.append(step.pack(*chunk) if isinstance(step, struct.Struct) else _encode_special(step, chunk[0]))
        return b"".join(parts)

    def decode_untrusted(self, octets: memoryview, at: int, end: int) -> tuple[list[Any], int]:
        """Return the values of the declared fields at `at`, and the offset after them. Raise `WireError`."""
        values: list[Any] = []
        for step, _ in self._steps:
            if isinstance(step, struct.Struct):
                if at + step.size > end:
                    raise WireError("truncated")
                values.extend(step.unpack_from(octets, at))
                at += step.size
            else:
                value, at = _decode_special_untrusted(step, octets, at, end)
                values.append(value)
        return values, at


def _encode_special(kind: Kind, value: Any) -> bytes:
    if kind is Kind.NLA:
        return encode_nla(value)
    if kind is Kind.BARE_NLA:
        return pack_nla(value)
    if kind is Kind.U32S:
        return struct.pack(f">{len(value)}I", *value)
    return bytes(value)


def _decode_special_untrusted(kind: Kind, octets: memoryview, at: int, end: int) -> tuple[Any, int]:
    if kind is Kind.NLA:
        return decode_nla_untrusted(octets, at, end)
    rest = octets[at:end]
    if kind is Kind.BARE_NLA:
        if len(rest) not in (4, 16):
            raise WireError("option_length")
        return unpack_nla(bytes(rest)), end
    if kind is Kind.U32S:
        if len(rest) % 4:
            raise WireError("option_length")
        return struct.unpack(f">{len(rest) // 4}I", rest), end
    return bytes(rest), end


def companion_tsi(tsi: Tsi, bit: int) -> Tsi:
    """Return the TSI of a session that goes with a stream, or that of the stream: the source port differs in `bit`."""
    port = int.from_bytes(tsi[-2:], "big")
    return tsi[:-2] + (port ^ bit).to_bytes(2, "big")


def tsi_text(tsi: Tsi) -> str:
    """Return the usual spelling of a TSI (INT-U14): six decimal octets of the GSI, and the data-source port."""
    return ".".join(str(octet) for octet in tsi[:6]) + f".{int.from_bytes(tsi[6:], 'big')}"
