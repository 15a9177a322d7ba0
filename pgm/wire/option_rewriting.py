"""Rewriting of options of finished packets: OPT_NAK_BO_IVL of SPMs, and codes.

The rules for OPT_NAK_BO_IVL are RFC 15.2.1 and W-28. The option holds for one segment only. An element removes it, or
puts in its own value. Every other option stays unchanged, except that OPT_END moves to the last one.

A code (`ControlCode`) is put behind all other options. It covers the octets of the packet without it, with checksum 0.
"""

from __future__ import annotations

from pgm.wire import checksum
from pgm.wire.control_packets import Packet, Spm
from pgm.wire.formats import AFI_IPV4, AFI_IPV6, OPTIONS_NETWORK, OPTIONS_PRESENT, PacketType, decode_nla_untrusted
from pgm.wire.options import (
    CODE_OCTETS,
    OPT_END,
    OPT_LENGTH,
    OPTIONS,
    ControlCode,
    NakBoIvl,
    Option,
    Options,
    encode_options,
    find,
)

_FLAGS_AT = 5
_PATH_AT = 28  # offset of the last of an SPM's fields
_CHECKSUM_AT = 6
_LENGTH_OCTETS = 4  # OPT_LENGTH
_HEAD_OCTETS = 4  # of an option
_TYPE_AT, _NLAS_AT, _NLAS = 4, 20, 2
_NLA_OCTETS: dict[int, int] = {AFI_IPV4: 8, AFI_IPV6: 20}
_FIXED_OCTETS: dict[int, int] = {PacketType.SPMR: 16, PacketType.POLR: 24, PacketType.ACK: 24}  # before options
_POLL_NLA_AT, _POLL_REST = 24, 12


def with_back_off(spm: Spm, octets: bytes, advertised: Options) -> bytes:
    """Return an SPM with the OPT_NAK_BO_IVL of `advertised`, or without. `octets` has the options of `spm`."""
    if not advertised and find(spm.options, NakBoIvl) is None:
        return octets
    _, at = decode_nla_untrusted(memoryview(octets), _PATH_AT, len(octets))  # the path may already be another node's
    own = encode_options(advertised, spm.type)[0][_LENGTH_OCTETS:]
    kept = [option for option in _each(octets[at:], len(spm.options)) if option[0] & ~OPT_END != NakBoIvl.TYPE]
    options = [*([own] if own else []), *kept]  # options for elements come first (W-23)
    flags = octets[_FLAGS_AT] & ~(OPTIONS_PRESENT | OPTIONS_NETWORK)
    if options:
        is_marked = bool(octets[_FLAGS_AT] & OPTIONS_NETWORK)
        concerns = any(_concerns_elements(option[0] & ~OPT_END, is_marked=is_marked) for option in options)
        flags |= OPTIONS_PRESENT | (OPTIONS_NETWORK if concerns else 0)
    tail = b"".join(
        bytes([option[0] & ~OPT_END | (OPT_END if index == len(options) - 1 else 0)]) + option[1:]
        for index, option in enumerate(options)
    )
    head = bytes([OPT_LENGTH, _LENGTH_OCTETS]) + (_LENGTH_OCTETS + len(tail)).to_bytes(2, "big") if options else b""
    packet = octets[:_FLAGS_AT] + bytes([flags, 0, 0]) + octets[_CHECKSUM_AT + 2 : at] + head + tail
    if octets[_CHECKSUM_AT : _CHECKSUM_AT + 2] == b"\0\0":
        return packet
    return packet[:_CHECKSUM_AT] + checksum.checksum(packet) + packet[_CHECKSUM_AT + 2 :]


def _each(options: bytes, count: int) -> list[bytes]:
    """Return the octets of each option after OPT_LENGTH. The options were read before, so they are valid."""
    parts, at = [], _LENGTH_OCTETS
    for _ in range(count):
        parts.append(options[at : at + options[at + 1]])
        at += options[at + 1]
    return parts


def _concerns_elements(number: int, *, is_marked: bool) -> bool:
    """Return whether an option is network-significant. The mark of the packet may be due to an unknown option."""
    known: type[Option] | None = OPTIONS.get(number)
    return is_marked if known is None else known.NETWORK


def with_code(octets: bytes, code: bytes) -> bytes:
    """Return an own control packet with a code, which covers `covered_octets`."""
    option = bytes([ControlCode.TYPE | OPT_END, _HEAD_OCTETS + CODE_OCTETS, 0, 0]) + code
    at = _options_at(octets)
    packet = bytearray(octets)
    if len(octets) == at:
        packet += bytes([OPT_LENGTH, _LENGTH_OCTETS, 0, 0])
    else:
        packet[_last_option_at(octets, at, len(octets))] &= ~OPT_END
    packet += option
    packet[at + 2 : at + _LENGTH_OCTETS] = (len(packet) - at).to_bytes(2, "big")
    packet[_FLAGS_AT] |= OPTIONS_PRESENT
    packet[_CHECKSUM_AT : _CHECKSUM_AT + 2] = b"\0\0"
    packet[_CHECKSUM_AT : _CHECKSUM_AT + 2] = checksum.checksum(bytes(packet))
    return bytes(packet)


def without_code(packet: Packet) -> bytes:
    """Return the octets of a received packet without the code, its last option, and with checksum 0."""
    at = _options_at(packet.octets)
    plain = bytearray(packet.octets[: len(packet.octets) - _HEAD_OCTETS - CODE_OCTETS])
    if len(packet.options) == 1:
        del plain[at:]
        plain[_FLAGS_AT] &= ~OPTIONS_PRESENT
    else:
        plain[_last_option_at(plain, at, len(plain))] |= OPT_END
        plain[at + 2 : at + _LENGTH_OCTETS] = (len(plain) - at).to_bytes(2, "big")
    plain[_CHECKSUM_AT : _CHECKSUM_AT + 2] = b"\0\0"
    return bytes(plain)


def code_of(packet: Packet) -> bytes | None:
    """Return the content of a packet's code; None if there is none, or if it is not the last option."""
    option = packet.options[-1] if packet.options else None
    return option.proof if isinstance(option, ControlCode) else None


def covered_octets(octets: bytes) -> bytes:
    """Return the octets that a code covers: those of the packet without the code, with checksum 0."""
    return octets[:_CHECKSUM_AT] + b"\0\0" + octets[_CHECKSUM_AT + 2 :]


def with_checksum(octets: bytes) -> bytes:
    """Return octets whose checksum is 0 with their checksum."""
    return octets[:_CHECKSUM_AT] + checksum.checksum(octets) + octets[_CHECKSUM_AT + 2 :]


def _options_at(octets: bytes) -> int:
    """Return the offset of the options of a valid packet, which is its length if there are none."""
    fixed = _FIXED_OCTETS.get(octets[_TYPE_AT])
    if fixed is not None:
        return fixed
    if octets[_TYPE_AT] == PacketType.POLL:
        return _POLL_NLA_AT + _NLA_OCTETS[octets[_POLL_NLA_AT + 1]] + _POLL_REST
    at = _NLAS_AT
    for _ in range(_NLAS):
        at += _NLA_OCTETS[octets[at + 1]]
    return at


def _last_option_at(octets: bytes | bytearray, at: int, end: int) -> int:
    """Return the offset of the last option. The options begin at `at`, and are valid."""
    at += _LENGTH_OCTETS
    while at + octets[at + 1] < end:
        at += octets[at + 1]
    return at
