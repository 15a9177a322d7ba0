"""Changes of interfaces and addresses that the kernel announces on a netlink socket (rtnetlink(7))."""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterator

import attrs

_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, change
_ADDRESS = struct.Struct("=BBBBi")  # family, prefix length, flags, scope, index
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_NEW_LINK, _DEL_LINK, _NEW_ADDRESS, _DEL_ADDRESS = 16, 17, 20, 21
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_UP, _LOWER_UP = 0x1, 0x10000  # by an operator; and with a carrier below


@attrs.frozen
class LinkChange:
    """State of an interface after a change."""

    index: int
    is_up: bool


@attrs.frozen
class AddressChange:
    """Address that an interface has got or lost."""

    index: int
    address: str
    is_there: bool


def open_netlink() -> socket.socket | None:
    """Return a non-blocking socket for changes; None where the system gives none, as in a sandbox."""
    try:
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    except OSError:
        return None
    try:
        sock.bind((0, _GROUPS))
    except OSError:
        sock.close()
        return None
    sock.setblocking(False)
    return sock


def changes_untrusted(octets: bytes) -> Iterator[LinkChange | AddressChange]:
    """Yield the changes in a datagram of the kernel. Anything else in it is skipped."""
    at = 0
    while at + _HEADER.size <= len(octets):
        length, kind, *_ = _HEADER.unpack_from(octets, at)
        if length < _HEADER.size or at + length > len(octets):
            return
        body = octets[at + _HEADER.size : at + length]
        if kind in (_NEW_LINK, _DEL_LINK) and len(body) >= _LINK.size:
            _, _, index, flags, _ = _LINK.unpack_from(body)
            yield LinkChange(index, kind == _NEW_LINK and flags & (_UP | _LOWER_UP) == _UP | _LOWER_UP)
        elif kind in (_NEW_ADDRESS, _DEL_ADDRESS) and len(body) >= _ADDRESS.size:
            index = _ADDRESS.unpack_from(body)[4]
            address = _address_of(body[_ADDRESS.size :])
            if address:
                yield AddressChange(index, address, kind == _NEW_ADDRESS)
        at += (length + 3) & ~3


def _address_of(attributes: bytes) -> str:
    """Return the own address in the attributes of a message; empty if there is none."""
    found: dict[int, bytes] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind] = attributes[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    octets = found.get(_IFA_LOCAL, found.get(_IFA_ADDRESS, b""))  # on a point-to-point link the other is the peer's
    return str(ipaddress.ip_address(octets)) if len(octets) in (4, 16) else ""
