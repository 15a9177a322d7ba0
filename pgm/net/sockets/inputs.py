"""Inputs of a segment: sockets, and objects that read like sockets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pgm.net.sockets.msghdr import ControlMessage


class Input(Protocol):
    """Descriptor to wait on, with reads of single datagrams. A UDP socket is one."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = ..., flags: int = ..., /
    ) -> tuple[int, list[ControlMessage], int, Any]:
        """Read a datagram, as `socket.recvmsg_into` does, without blocking."""
