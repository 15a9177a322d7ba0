"""Reasons of `WireError` for invalid packets, each with a counter of its name."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "truncated": "The datagram ends inside the header, a field or an option.",
    "type": "Version or reserved bits are set, or the type is unknown (W-03).",
    "flags": "OPT_VAR_PKTLEN without OPT_PARITY (W-07).",
    "length": "Header, options and TSDU length do not add up to the datagram (W-15).",
    "checksum": "The checksum is wrong.",
    "no_checksum": "A data packet without checksum (W-10).",
    "unknown_afi": "An address family other than IPv4 and IPv6 (W-16).",
    "no_opt_length": "Options that do not begin with OPT_LENGTH (W-21).",
    "option_total": "The total length of the options disagrees with the options or the packet.",
    "option_length": "An option shorter than its head, longer than the rest, or of a wrong size (W-29).",
    "too_many_options": "More than 16 options (W-24).",
    "no_opt_end": "The last option lacks OPT_END (W-22).",
    "nak_list": "A NAK list that is empty or longer than 62 (W-33).",
    "parity": "An invalid parity option: no parity offered, a group size that is no power of two, or a number 0.",
}
