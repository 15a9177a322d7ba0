"""Structures of the C library's `recvmsg` and `recvmmsg`, for direct calls; see `recvmsg(2)`."""

from __future__ import annotations

import ctypes
import functools
import socket
import struct
import sys

NAME_OCTETS = 28  # of sockaddr_in6, the longest
CONTROL_OCTETS = socket.CMSG_SPACE(4) * 2  # the size of a train's packets, and the drop count
CONTROL_HEADER = struct.Struct("@Nii")  # cmsghdr

ControlMessage = tuple[int, int, bytes]  # level, kind, octets: as `recvmsg` gives it


class IoVec(ctypes.Structure):
    """C structure `iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class MsgHdr(ctypes.Structure):
    """C structure `msghdr`."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("iov", ctypes.c_void_p),
        ("iov_length", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


@functools.lru_cache(maxsize=4096)
def host_of(name: bytes) -> tuple[str, int]:
    """Return address and port of a sockaddr."""
    family = int.from_bytes(name[:2], sys.byteorder)
    port = int.from_bytes(name[2:4], "big")
    if family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, name[8:24]), port
    return socket.inet_ntop(socket.AF_INET, name[4:8]), port


def ancillary_of(octets: bytes) -> list[ControlMessage]:
    """Return the control messages of a datagram."""
    messages, at = [], 0
    while at + CONTROL_HEADER.size <= len(octets):
        length, level, kind = CONTROL_HEADER.unpack_from(octets, at)
        if length < CONTROL_HEADER.size:
            break
        messages.append((level, kind, octets[at + CONTROL_HEADER.size : at + length]))
        at += socket.CMSG_SPACE(length - CONTROL_HEADER.size)
    return messages
