"""Search for the process that holds a UDP address, for the message about an address in use.

The kernel lists UDP sockets with their inodes in /proc/net/udp. The descriptors of a process name the inodes that the
process has open. Other users' descriptors are not readable, so only processes of the same user are found.
"""

from __future__ import annotations

import os
import shlex
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

_PROC = Path("/proc")
_MOST_S = 0.5  # a host may run many processes with many descriptors
_MOST_CHARACTERS = 160  # of a command line in a message
_PGM = ("pgm", "deploy")  # names of the command: installed, and by `python -m`
_WORD = 4  # octets, in the byte order of the host


@attrs.frozen
class Holder:
    """Process that holds an address. `node` is the node that a command of this project runs, or empty."""

    pid: int
    command: str
    node: str = ""

    @property
    def text(self) -> str:
        """Return the process in words."""
        if self.pid == os.getpid():
            return f"this process, {self.pid}"
        node = f" (node {self.node})" if self.node else ""
        return f"another process: process {self.pid}{node}, {self.command}"


def find_holder(address: str, port: int, proc: Path = _PROC) -> Holder | None:
    """Return the process of this user that holds a UDP port of an address; None if no such process is found in time."""
    deadline = time.monotonic() + _MOST_S
    try:
        inodes = set(_inodes(address, port, proc))
        if not inodes:
            return None
        names = {f"socket:[{inode}]" for inode in inodes}
        for process in sorted(proc.iterdir(), key=lambda path: path.name):
            if time.monotonic() >= deadline:
                break
            if process.name.isdecimal() and _has_open(process, names):
                return _holder_of(process)
    except OSError:
        pass  # /proc is not mounted, or hidden
    return None


def _inodes(address: str, port: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of the UDP sockets bound to the port, on the address or on all addresses."""
    is_v6 = ":" in address
    own = socket.inet_pton(socket.AF_INET6 if is_v6 else socket.AF_INET, address.partition("%")[0])
    wanted = {f"{_words(octets)}:{port:04X}" for octets in (own, bytes(len(own)))}
    for line in (proc / "net" / ("udp6" if is_v6 else "udp")).read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[1] in wanted:
            yield fields[9]


def _words(octets: bytes) -> str:
    """Return an address as the kernel prints it: 32-bit words in the byte order of the host."""
    words = struct.unpack(f"={len(octets) // _WORD}I", octets)
    return "".join(f"{word:08X}" for word in words)


def _has_open(process: Path, names: set[str]) -> bool:
    try:
        return any(os.readlink(link) in names for link in (process / "fd").iterdir())
    except OSError:
        return False  # another user's process, or one that has ended


def _holder_of(process: Path) -> Holder | None:
    try:
        words = (process / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
    except OSError:
        return None
    command = shlex.join(words)
    if len(command) > _MOST_CHARACTERS:
        command = command[:_MOST_CHARACTERS] + " ..."
    return Holder(int(process.name), command, _node_of(words))


def _node_of(words: Sequence[str]) -> str:
    """Return the node that a command of this project runs; empty for other commands."""
    if not any(word.rpartition("/")[2] in _PGM for word in words[:4]):
        return ""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--node":
            return following
        if word.startswith("--node="):
            return word.partition("=")[2]
    return ""
