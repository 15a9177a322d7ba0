"""Kernel filter of a UDP socket: drops packets of a stream whose senders are not listed (classic BPF, socket(7)).

The kernel runs the program before a packet takes room in the socket's queue or wakes the process. A dropped packet costs
the process no time. The program compares the type and data port of the first packet of a datagram train, and the sender's
address. One dropped packet in `SAMPLE` passes, so the node still names the senders. `SO_MEMINFO` counts the drops.
"""

from __future__ import annotations

import ctypes
import ipaddress
import itertools
import socket
import struct
from collections.abc import Mapping, Sequence

import attrs

from pgm.wire.formats import DATA, TYPE_AT, UPSTREAM, Nla, PacketType

SAMPLE = 64  # power of two
_SO_ATTACH_FILTER, _SO_DETACH_FILTER = 26, 27
_MOST_INSTRUCTIONS = 1024  # 8 KiB, within the memory for options of every socket (net.core.optmem_max)
_UDP_HEADER_OCTETS = 8
_INSTRUCTION, _PROGRAM = struct.Struct("=HBBI"), struct.Struct("@HP")
# Opcodes of linux/filter.h.
_LOAD_WORD, _LOAD_HALF, _LOAD_OCTET, _LOAD_LENGTH = 0x20, 0x28, 0x30, 0x80
_AND, _JUMP, _IF_EQUAL, _IF_ABOVE, _IF_NOT_BELOW, _RETURN = 0x54, 0x05, 0x15, 0x25, 0x35, 0x06
_NETWORK_HEADER, _RANDOM = 0xFFF00000, 0xFFFFF038  # SKF_NET_OFF, SKF_AD_OFF + SKF_AD_RANDOM
_SENDER_AT = {4: 12, 6: 8}  # in the IP header
_WHOLE = 0xFFFFFFFF
_SOURCE_TYPES = (PacketType.SPM, *sorted(DATA))
_ANSWER_TYPES = (PacketType.NCF, PacketType.POLL)


@attrs.frozen
class SenderLists:
    """Addresses that may send, by data port. Ports without a list are open to all senders."""

    sources: Mapping[int, frozenset[Nla]] = attrs.field(factory=dict)  # data and SPMs
    members: Mapping[int, frozenset[Nla]] = attrs.field(factory=dict)  # all other packets

    def program(self, own: Nla) -> bytes | None:
        """Return the program for a socket of the own address.

        None if there is no list, or if the lists are too long for the kernel. Packets of the own address pass.
        """
        if not self.sources and not self.members:
            return None
        code = _Code()
        code.load(_LOAD_LENGTH, 0)
        code.branch(_IF_NOT_BELOW, _UDP_HEADER_OCTETS + TYPE_AT + 1, "long")
        code.jump("accept")
        code.label("long")
        code.load(_LOAD_OCTET, _UDP_HEADER_OCTETS + TYPE_AT)
        for types, label in ((_SOURCE_TYPES, "sources"), (_ANSWER_TYPES, "answers"), (sorted(UPSTREAM), "requests")):
            for each in types:
                code.branch(_IF_EQUAL, each, label)
        code.jump("accept")
        places: dict[frozenset[Nla], str] = {}
        for label, port_at, by_port in (
            ("sources", 2, self.sources),
            ("answers", 2, self.members),
            ("requests", 0, self.members),
        ):
            code.label(label)
            code.load(_LOAD_HALF, _UDP_HEADER_OCTETS + port_at)
            for port, listed in sorted(by_port.items()):
                code.branch(_IF_EQUAL, port, places.setdefault(listed, f"list {len(places)}"))
            code.jump("accept")
        for listed, label in places.items():
            code.label(label)
            (_search_v6 if ":" in own else _search_v4)(code, {*listed, own})
        code.label("refuse")
        code.load(_LOAD_WORD, _RANDOM)
        code.load(_AND, SAMPLE - 1)
        code.branch(_IF_EQUAL, 0, "accept")
        code.load(_RETURN, 0)
        code.label("accept")
        code.load(_RETURN, _WHOLE)
        return code.assembled()


ALL_SENDERS = SenderLists()


class _Code:
    """Assembler: instructions with labels instead of distances."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, str]] = []
        self._labels: dict[str, int] = {}
        self._names = itertools.count()

    def load(self, opcode: int, operand: int) -> None:
        """Add an instruction that continues with the next one, or ends the program."""
        self._code.append((opcode, operand, ""))

    def jump(self, label: str) -> None:
        """Continue at a label."""
        self._code.append((_JUMP, 0, label))

    def branch(self, opcode: int, operand: int, label: str) -> None:
        """Continue at a label if the condition holds. The label may be far: a condition jumps 255 instructions at most."""
        self._code.append((opcode, operand, ""))
        self.jump(label)

    def label(self, name: str) -> None:
        """Name the next instruction."""
        self._labels[name] = len(self._code)

    def new_label(self) -> str:
        """Return a label that no other instruction has."""
        return f"place {next(self._names)}"

    def assembled(self) -> bytes | None:
        """Return the octets; None if the program is too long."""
        if len(self._code) > _MOST_INSTRUCTIONS:
            return None
        octets = []
        for index, (opcode, operand, label) in enumerate(self._code):
            distance = self._labels[label] - index - 1 if label else operand
            skips = int(opcode in (_IF_EQUAL, _IF_ABOVE, _IF_NOT_BELOW))
            octets.append(_INSTRUCTION.pack(opcode, 0, skips, distance))
        return b"".join(octets)


def _search_v4(code: _Code, listed: set[Nla]) -> None:
    """Compare the sender with ranges of addresses, by halves."""
    numbers = sorted(int(ipaddress.IPv4Address(address)) for address in listed if ":" not in address)
    code.load(_LOAD_WORD, _NETWORK_HEADER + _SENDER_AT[4])
    _search(code, _ranges(numbers))


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last numbers of runs of consecutive numbers."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def _search(code: _Code, ranges: Sequence[tuple[int, int]]) -> None:
    if len(ranges) == 1:
        [(first, last)] = ranges
        code.branch(_IF_ABOVE, last, "refuse")
        code.branch(_IF_NOT_BELOW, first, "accept")
        code.jump("refuse")
        return
    middle, above = len(ranges) // 2, code.new_label()
    code.branch(_IF_NOT_BELOW, ranges[middle][0], above)
    _search(code, ranges[:middle])
    code.label(above)
    _search(code, ranges[middle:])


def _search_v6(code: _Code, listed: set[Nla]) -> None:
    """Compare the sender with addresses one by one, four words each."""
    for address in sorted(address for address in listed if ":" in address):
        other = code.new_label()
        words = struct.unpack("!4I", ipaddress.IPv6Address(address).packed)
        for index, word in enumerate(words):
            equal = code.new_label()
            code.load(_LOAD_WORD, _NETWORK_HEADER + _SENDER_AT[6] + 4 * index)
            code.branch(_IF_EQUAL, word, equal)
            code.jump(other)
            code.label(equal)
        code.jump("accept")
        code.label(other)
    code.jump("refuse")


def attach(sock: socket.socket, program: bytes) -> bool:
    """Let the kernel filter the packets of a socket from now on. Return False if the kernel refuses the program."""
    octets = ctypes.create_string_buffer(program, len(program))
    head = _PROGRAM.pack(len(program) // _INSTRUCTION.size, ctypes.addressof(octets))
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, head)
    except OSError:
        return False
    return True


def detach(sock: socket.socket) -> None:
    """Let all packets of a socket pass again."""
    sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
