"""Options that network elements may change in packets they pass on: OPT_NAK_BO_IVL of SPMs (RFC 15.2.1, W-28).

It holds for one segment only: an element takes it out or puts its own value in. Every other option stays octet for octet,
but for OPT_END, which moves to the last one.
"""

from __future__ import annotations

from pgm.wire import checksum
from pgm.wire.control_packets import Spm
from pgm.wire.formats import OPTIONS_NETWORK, OPTIONS_PRESENT, decode_nla_untrusted
from pgm.wire.options import OPT_END, OPT_LENGTH, OPTIONS, NakBoIvl, Option, Options, encode_options, find

_FLAGS_AT = 5
_PATH_AT = 28  # the last of an SPM's fields
_CHECKSUM_AT = 6
_LENGTH_OCTETS = 4  # OPT_LENGTH


def with_back_off(spm: Spm, octets: bytes, advertised: Options) -> bytes:
    """The SPM in `octets`, which has the options of `spm`, with the OPT_NAK_BO_IVL in `advertised`, or with none."""
    if not advertised and find(spm.options, NakBoIvl) is None:
        return octets
    _, at = decode_nla_untrusted(memoryview(octets), _PATH_AT, len(octets))  # the path may be another's by now
    own = encode_options(advertised, spm.type)[0][_LENGTH_OCTETS:]
    kept = [one for one in _each(octets[at:], len(spm.options)) if one[0] & ~OPT_END != NakBoIvl.TYPE]
    options = [*([own] if own else []), *kept]  # what concerns elements comes first (W-23)
    flags = octets[_FLAGS_AT] & ~(OPTIONS_PRESENT | OPTIONS_NETWORK)
    if options:
        is_marked = bool(octets[_FLAGS_AT] & OPTIONS_NETWORK)
        concerns = any(_concerns_elements(one[0] & ~OPT_END, is_marked=is_marked) for one in options)
        flags |= OPTIONS_PRESENT | (OPTIONS_NETWORK if concerns else 0)
    tail = b"".join(
        bytes([one[0] & ~OPT_END | (OPT_END if index == len(options) - 1 else 0)]) + one[1:]
        for index, one in enumerate(options)
    )
    head = bytes([OPT_LENGTH, _LENGTH_OCTETS]) + (_LENGTH_OCTETS + len(tail)).to_bytes(2, "big") if options else b""
    packet = octets[:_FLAGS_AT] + bytes([flags, 0, 0]) + octets[_CHECKSUM_AT + 2 : at] + head + tail
    if octets[_CHECKSUM_AT : _CHECKSUM_AT + 2] == b"\0\0":
        return packet
    return packet[:_CHECKSUM_AT] + checksum.checksum(packet) + packet[_CHECKSUM_AT + 2 :]


def _each(options: bytes, count: int) -> list[bytes]:
    """The options behind OPT_LENGTH, each with its octets. They have been read before, so they are sound."""
    found, at = [], _LENGTH_OCTETS
    for _ in range(count):
        found.append(options[at : at + options[at + 1]])
        at += options[at + 1]
    return found


def _concerns_elements(number: int, *, is_marked: bool) -> bool:
    """Whether an option is network-significant; one that is not known may be what the packet was marked for."""
    known: type[Option] | None = OPTIONS.get(number)
    return is_marked if known is None else known.NETWORK
