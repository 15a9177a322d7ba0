"""Rewriting of options that network elements may change: OPT_NAK_BO_IVL of SPMs.

The rules are RFC 15.2.1 and W-28. The option holds for one segment only. An element removes it, or puts in its own
value. Every other option stays unchanged, except that OPT_END moves to the last one.
"""

from __future__ import annotations

from pgm.wire import checksum
from pgm.wire.control_packets import Spm
from pgm.wire.formats import OPTIONS_NETWORK, OPTIONS_PRESENT, decode_nla_untrusted
from pgm.wire.options import OPT_END, OPT_LENGTH, OPTIONS, NakBoIvl, Option, Options, encode_options, find

_FLAGS_AT = 5
_PATH_AT = 28  # offset of the last of an SPM's fields
_CHECKSUM_AT = 6
_LENGTH_OCTETS = 4  # OPT_LENGTH


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
