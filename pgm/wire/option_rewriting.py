"""Rewriting of options of finished packets: OPT_NAK_BO_IVL of SPMs, and codes of requests.

The rules for OPT_NAK_BO_IVL are RFC 15.2.1 and W-28. The option holds for one segment only. An element removes it, or
puts in its own value. Every other option stays unchanged, except that OPT_END moves to the last one.

A code (`ControlCode`) is put behind all other options. It covers the octets of the packet without it, with checksum 0.
"""

from __future__ import annotations

from pgm.wire import checksum
from pgm.wire.control_packets import LAYOUTS, Packet, Spm, decode_control_untrusted
from pgm.wire.formats import HEADER_OCTETS, OPTIONS_NETWORK, OPTIONS_PRESENT, decode_nla_untrusted
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
    at, last = _options_of(decode_control_untrusted(octets))
    flags = octets[_FLAGS_AT] | OPTIONS_PRESENT
    packet = bytearray(octets[:_FLAGS_AT] + bytes([flags, 0, 0]) + octets[_CHECKSUM_AT + 2 : at])
    options = bytearray(octets[at:]) or bytearray([OPT_LENGTH, _LENGTH_OCTETS, 0, 0])
    if last:
        options[last - at] &= ~OPT_END
    packet += _with_length(options + option)
    packet[_CHECKSUM_AT : _CHECKSUM_AT + 2] = checksum.checksum(bytes(packet))
    return bytes(packet)


def without_code(packet: Packet) -> tuple[bytes, bytes] | None:
    """Return the content of a received packet's code, and the octets of the packet without the code.

    Return None if the packet has no code, or if a code is not its last option.
    """
    *kept, option = packet.options or (None,)
    if not isinstance(option, ControlCode):
        return None
    at, _ = _options_of(packet)
    octets = packet.octets[: len(packet.octets) - _HEAD_OCTETS - CODE_OCTETS]
    flags, rest = octets[_FLAGS_AT], octets[at:]
    if kept:
        options = bytearray(rest)
        options[_LENGTH_OCTETS + sum(map(len, _each(rest, len(kept) - 1)))] |= OPT_END
        rest = bytes(_with_length(options))
    else:
        flags, rest = flags & ~OPTIONS_PRESENT, b""
    plain = octets[:_FLAGS_AT] + bytes([flags, 0, 0]) + octets[_CHECKSUM_AT + 2 : at] + rest
    return option.proof, plain[:_CHECKSUM_AT] + checksum.checksum(plain) + plain[_CHECKSUM_AT + 2 :]


def covered_octets(octets: bytes) -> bytes:
    """Return the octets that a code covers: those of the packet without the code, with checksum 0."""
    return octets[:_CHECKSUM_AT] + b"\0\0" + octets[_CHECKSUM_AT + 2 :]


def _options_of(packet: Packet) -> tuple[int, int]:
    """Return the offsets of OPT_LENGTH and of the last option of a decoded packet; the second is 0 without options."""
    octets = packet.octets
    _, at = LAYOUTS[type(packet)].decode_untrusted(memoryview(octets), HEADER_OCTETS, len(octets))
    if not packet.options:
        return at, 0
    return at, at + _LENGTH_OCTETS + sum(map(len, _each(octets[at:], len(packet.options) - 1)))


def _with_length(options: bytearray) -> bytearray:
    """Return OPT_LENGTH and options with the length of both."""
    options[2:_LENGTH_OCTETS] = len(options).to_bytes(2, "big")
    return options
