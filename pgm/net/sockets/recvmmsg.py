"""Reads of many datagrams by one `recvmmsg` call, which Python does not offer.

With GRO a train arrives as one read, and `recvmmsg` is not needed. Other senders, and lines that split trains, fill a
socket with single packets. A system call for each of them would be most of their cost.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import socket
import sys

import attrs
import numpy as np
import numpy.typing as npt

from pgm.core.structures.arena import ROOM
from pgm.net.sockets.inputs import Input
from pgm.net.sockets.msghdr import (
    CONTROL_HEADER,
    CONTROL_OCTETS,
    NAME_OCTETS,
    ControlMessage,
    IoVec,
    MsgHdr,
    ancillary_of,
    host_of,
)
from pgm.net.sockets.open import SO_RXQ_OVFL
from pgm.wire.train import Octets

MOST = 128  # datagrams a call: with half as many a receiver of single packets uses some 3 % more CPU
_DONTWAIT, _TRUNCATED = int(socket.MSG_DONTWAIT), int(socket.MSG_TRUNC)  # plain ints: enum operators run in Python
# Control message beside every packet after the kernel has dropped one: the drop count so far.
_DROPS = np.frombuffer(CONTROL_HEADER.pack(socket.CMSG_LEN(4), socket.SOL_SOCKET, SO_RXQ_OVFL), np.uint8)


class _Message(ctypes.Structure):
    """C structure `mmsghdr`."""

    _fields_ = (("header", MsgHdr), ("length", ctypes.c_uint32))


_recvmmsg = getattr(ctypes.CDLL(None, use_errno=True), "recvmmsg", None)


@attrs.frozen(eq=False)
class DatagramBatch:
    """Datagrams of one `recvmmsg` call: a row of octets, a length and a sender for each."""

    rows: Octets  # (count, ROOM)
    lengths: npt.NDArray[np.uint32]
    names: Octets  # (count, 28), sockaddr
    is_odd: (
        npt.NDArray[np.bool_] | None
    )  # has control messages beside the drop count, or was truncated; None if no datagram is
    drops: int | None  # drop count so far, if the kernel reports it
    _controls: Octets
    _control_lengths: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.lengths)

    def host(self, index: int) -> tuple[str, int]:
        """Return the address and port of a sender."""
        return host_of(self.names[index].tobytes())

    def are_uniform(self, octets: int) -> bool:
        """Return whether all have this length, come from one sender, and none is odd."""
        if self.is_odd is not None or np.count_nonzero(self.lengths == octets) != len(self):
            return False
        return self.are_of_one_sender

    @property
    def are_of_one_sender(self) -> bool:
        """Return whether all come from the same address and port."""
        names = self.names.tobytes()
        return names == names[:NAME_OCTETS] * len(self)

    def uniform_from(self, index: int) -> int:
        """Count the datagrams from `index` on of its length and sender, none of them odd; 0 if that one is odd."""
        uniform = (self.lengths[index:] == self.lengths[index]) & (self.names[index:] == self.names[index]).all(axis=1)
        if self.is_odd is not None:
            uniform &= ~self.is_odd[index:]
        return len(uniform) if uniform.all() else int(uniform.argmin())

    def ancillary(self, index: int) -> list[ControlMessage]:
        """Return the control messages of a datagram, as `recvmsg` gives them."""
        return ancillary_of(self._controls[index, : int(self._control_lengths[index])].tobytes())


def _drop_count(control: Octets) -> int:
    return int.from_bytes(control[len(_DROPS) : len(_DROPS) + 4].tobytes(), sys.byteorder)


def _allocate_rows() -> Octets:
    """Return memory with a row for each datagram; only pages that datagrams reach are touched.

    numpy would ask for huge pages. The kernel takes up to 5 ms for each, and 32 rows need one. The first single packets
    at a high rate come after a full buffer, and would fill it again in that time.
    """
    memory = mmap.mmap(-1, MOST * ROOM, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.ndarray((MOST, ROOM), np.uint8, memory)


class Recvmmsg:
    """Buffers for the datagrams of one call; the result of a call is valid until the next one."""

    def __init__(self) -> None:
        self._allocate_rows: Octets = _allocate_rows()
        self._names: Octets = np.zeros((MOST, NAME_OCTETS), np.uint8)
        self._controls: Octets = np.zeros((MOST, CONTROL_OCTETS), np.uint8)
        self._vectors = (IoVec * MOST)()
        self._messages = (_Message * MOST)()
        for index in range(MOST):
            self._vectors[index] = IoVec(self._allocate_rows[index].ctypes.data, ROOM)
            self._messages[index].header = MsgHdr(
                name=self._names[index].ctypes.data,
                iov=ctypes.addressof(self._vectors[index]),
                iov_length=1,
                control=self._controls[index].ctypes.data,
            )
        fields = np.frombuffer(memoryview(self._messages).cast("B"), np.dtype(_Message))
        headers, self._lengths = fields["header"], fields["length"]
        self._name_lengths, self._control_lengths = headers["name_length"], headers["control_length"]
        self._flags = headers["flags"]

    @staticmethod
    def or_none() -> Recvmmsg | None:
        """Return buffers for `recvmmsg`; None if the system has no such call."""
        return Recvmmsg() if _recvmmsg is not None else None

    def read(self, sock: Input, most: int) -> DatagramBatch:
        """Read up to `most` datagrams without blocking; none from an empty socket. Raises OSError."""
        assert _recvmmsg is not None
        most = min(most, MOST)
        self._name_lengths[:most] = NAME_OCTETS
        self._control_lengths[:most] = CONTROL_OCTETS
        count = _recvmmsg(sock.fileno(), self._messages, most, _DONTWAIT, None)
        if count < 0:
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR):
                raise OSError(number, os.strerror(number))
            count = 0
        control_lengths, is_odd, drops = self._control_lengths[:count], None, None
        if np.count_nonzero(control_lengths):
            is_odd, drops = self._drops_of(control_lengths)
        is_cut = self._flags[:count] & _TRUNCATED
        if np.count_nonzero(is_cut):
            is_odd = is_cut != 0 if is_odd is None else is_odd | (is_cut != 0)
        return DatagramBatch(
            self._allocate_rows[:count],
            self._lengths[:count],
            self._names[:count],
            is_odd,
            drops,
            self._controls[:count],
            control_lengths,
        )

    def _drops_of(self, lengths: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.bool_] | None, int | None]:
        """Return marks of odd datagrams (with more control messages) and the newest drop count; None for none."""
        controls, count = self._controls[: len(lengths)], len(lengths)
        if np.count_nonzero(lengths == socket.CMSG_SPACE(4)) == count:
            heads = controls[:, : len(_DROPS)].tobytes()
            if heads == _DROPS.tobytes() * count:  # the usual case after the first drop
                return None, _drop_count(controls[-1])
        has_drops = (lengths == socket.CMSG_SPACE(4)) & (controls[:, : len(_DROPS)] == _DROPS).all(axis=1)
        places = np.flatnonzero(has_drops)
        if not len(places):
            return lengths > 0, None
        is_odd = (lengths > 0) & ~has_drops
        return is_odd if np.count_nonzero(is_odd) else None, _drop_count(controls[places[-1]])
