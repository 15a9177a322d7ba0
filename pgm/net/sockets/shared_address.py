"""Address and UDP port that several processes of one user share.

The first process on an address binds the UDP socket of the address. It also listens on an abstract unix socket, named
after user, address and port. A further process connects there. It receives the UDP socket itself (SCM_RIGHTS), so it
sends from the same address and port. It also tells the sources and data ports that it has. Only the owner, which is the
process that listens, reads the UDP socket. The owner forwards the packets of other members, each with its sender.

The UDP socket stays open as long as any member has it, and the kernel keeps its queue. When the owner ends, even by
SIGKILL, its connections close. Every member then tries to bind the name. The kernel lets one of them succeed: that one
reads the UDP socket from then on, and the others connect to it.

Both ends of a connection compare the user of the other (SO_PEERCRED). The kernel refuses the UDP port to other users as
well, because SO_REUSEPORT is for sockets of one user.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from pgm.net.sockets.msghdr import ControlMessage
from pgm.net.sockets.trusted_folders import peer_of
from pgm.wire.formats import HEADER, HEADER_OCTETS, UPSTREAM, Nla, PacketType, Tsi

# Time in which an owner must answer a process that opens: a loop that stands still holds up all others of the address.
_PATIENCE_S = 2.0
_SUCCESSION_S = 0.2  # in which a member takes over from an owner that has ended: it still has the UDP port until then
_RETRY_S = 0.001  # while a process has bound the name and does not listen yet
_BACKLOG = 512  # connections that wait: every member connects at once to a new owner
_MOST_MEMBERS = 1024
_MOST_EVENTS = 64  # of one read; others follow in the next
_MOST_OCTETS = 1 << 17  # of a message about sources and ports
_UPSTREAM = frozenset(map(int, UPSTREAM))

_CONCERNS = struct.Struct(">??HH")  # wants the UDP socket, hears all ports, numbers of TSIs and of ports
_SENDER = struct.Struct("46s")  # address of a forwarded packet's sender, as text
_TSI_OCTETS = 8
_PORT_OCTETS = 2


@attrs.frozen
class Concerns:
    """Packets that concern one process: requests to its sources, and packets to the data ports of its receivers."""

    tsis: frozenset[Tsi] = frozenset()
    ports: frozenset[int] = frozenset()
    hears_all: bool = False  # a receiver without data ports of its own

    def hears(self, port: int) -> bool:
        """Return whether a receiver of the process takes packets to a data port."""
        return self.hears_all or port in self.ports

    def pack(self, *, wants_socket: bool = False) -> bytes:
        """Return the message to an owner."""
        head = _CONCERNS.pack(wants_socket, self.hears_all, len(self.tsis), len(self.ports))
        return head + b"".join(self.tsis) + b"".join(port.to_bytes(_PORT_OCTETS, "big") for port in self.ports)

    @classmethod
    def unpack(cls, octets: bytes) -> tuple[Concerns, bool]:
        """Return the content of a message, and whether its sender wants the UDP socket. Raises `struct.error`."""
        wants_socket, hears_all, tsis, ports = _CONCERNS.unpack_from(octets)
        middle = _CONCERNS.size + tsis * _TSI_OCTETS
        pairs = _cut(octets[middle : middle + ports * _PORT_OCTETS], _PORT_OCTETS)
        known = frozenset(int.from_bytes(pair, "big") for pair in pairs)
        return cls(frozenset(_cut(octets[_CONCERNS.size : middle], _TSI_OCTETS)), known, hears_all), wants_socket


def _cut(octets: bytes, size: int) -> list[bytes]:
    return [octets[at : at + size] for at in range(0, len(octets), size)]


@attrs.define(eq=False)
class _Member:
    """Another process of the address, seen by the owner."""

    channel: socket.socket
    concerns: Concerns = Concerns()


class SharedAddress:
    """Membership of this process in an address. It is an input of the node beside the UDP socket, or in its place.

    `fileno` is an epoll descriptor of all connections. A read serves them, and returns a forwarded packet if one waits.
    A process that was not the first reads the UDP socket by this object as well, once it is the owner.
    """

    def __init__(
        self,
        name: str,
        own: socket.socket,
        *,
        listener: socket.socket | None = None,
        channel: socket.socket | None = None,
        tsis_of_others: frozenset[Tsi] = frozenset(),
    ) -> None:
        """Begin as the owner with `listener`, or as a member with a `channel` to the owner, or else alone."""
        self.own = own
        self.was_first = channel is None
        self.on_company: Callable[[], None] = lambda: None  # is told that `has_company` or `owner_pid` may have changed
        self._name = name
        self.thread = threading.get_ident()  # the only one that reads
        self._epoll = select.epoll()
        self._listener: socket.socket | None = None
        self._channel: socket.socket | None = None  # to the owner
        self._members: dict[int, _Member] = {}
        self._sources: dict[Tsi, _Member] = {}
        self._concerns = Concerns()
        self._tsis_at_start = tsis_of_others  # as the owner told
        self._sender = bytearray(_SENDER.size)
        _SHARED.add(self)
        if channel is not None:
            self._join(channel)
        else:
            self._lead(listener)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with a connection, a message or a packet."""
        return self._epoll.fileno()

    @property
    def has_company(self) -> bool:
        """Return whether other processes share the address now."""
        return bool(self._members) or self._channel is not None

    @property
    def routes(self) -> bool:
        """Return whether packets of the UDP socket may belong to another process."""
        return bool(self._members)

    @property
    def tsis_of_others(self) -> frozenset[Tsi]:
        """Return the known TSIs of other processes on the address."""
        return frozenset(self._sources) | self._tsis_at_start

    @property
    def owner_pid(self) -> int:
        """Return the process that reads the UDP socket."""
        return os.getpid() if self._channel is None else peer_of(self._channel)[0]

    def close(self) -> None:
        """Leave the address; another process becomes the owner if this one is."""
        self.abandon()
        self._epoll.close()

    def abandon(self) -> None:
        """Close the connections alone, as a forked process must: they end with their first process."""
        _SHARED.discard(self)
        if _OWNERS.get(self._name) is self:
            del _OWNERS[self._name]
        channels = [member.channel for member in self._members.values()]
        for sock in (self._listener, self._channel, *channels):
            if sock is not None:
                sock.close()

    def concern(self, concerns: Concerns) -> None:
        """Take the packets of these sources and data ports from now on."""
        self._concerns = concerns
        if self._channel is None:
            return
        try:
            self._channel.send(concerns.pack())
        except BlockingIOError:
            self._channel.shutdown(socket.SHUT_RDWR)  # the owner's queue is full: the next connection tells it
        except OSError:
            pass  # the owner has ended: the next one is told

    # Reads

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[ControlMessage], int, Any]:
        """Read a packet as a UDP socket does. Serve the connections. Raises `BlockingIOError` if no packet waits."""
        if self._channel is None:
            self.serve()
            if not self.was_first:
                return self.own.recvmsg_into(buffers, ancbufsize, flags)
        else:
            try:
                octets, _, _, _ = self._channel.recvmsg_into((self._sender, *buffers))
            except ConnectionResetError:  # the owner ended with unread messages; packets that it forwarded may wait
                octets = _SENDER.size
            if octets > _SENDER.size:
                return octets - _SENDER.size, [], 0, (self._sender.rstrip(b"\0").decode(), 0)
            if not octets:
                self._succeed()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def serve(self) -> None:
        """Serve the connections of an owner: newcomers, changes of their sources and ports, and ends."""
        for number, _ in self._epoll.poll(0, _MOST_EVENTS):
            if number in self._members:
                self._hear(self._members[number])
            elif self._listener is not None and number == self._listener.fileno():
                self._accept(self._listener)

    def forward(self, packet: memoryview, sender: bytes) -> tuple[bool, int]:
        """Give a packet of the UDP socket to the processes that it concerns. `sender` is from `sender_head`.

        Returns whether the packet concerns this process, and the number of copies that a full queue dropped. A request
        to a source is for the process of that source. Another packet is for all processes that hear its data port; if
        none does, this process counts the packet. An SPMR is for both: a late joiner's question, or the answer.
        """
        if len(packet) < HEADER_OCTETS:
            return True, 0
        first, second, kind, _, _, gsi, _ = HEADER.unpack_from(packet)
        port, is_ours, source = second, False, None
        if kind in _UPSTREAM:
            port, tsi = first, gsi + second.to_bytes(_PORT_OCTETS, "big")
            is_ours, source = tsi in self._concerns.tsis, self._sources.get(tsi)
        takers = [] if source is None else [source]
        if kind == PacketType.SPMR or not (is_ours or takers):
            is_ours = is_ours or self._concerns.hears(port)
            members = self._members.values()
            takers += [member for member in members if member.concerns.hears(port) and member is not source]
        drops = sum(self._send(member, packet, sender) for member in takers)
        return is_ours or not takers, drops

    @staticmethod
    def _send(member: _Member, packet: memoryview, sender: bytes) -> int:
        """Forward a packet. Return 1 if the member's queue is full: senders repeat what they ask for."""
        try:
            member.channel.sendmsg((sender, packet))
        except OSError:
            return 1
        return 0

    # Owner

    def _lead(self, listener: socket.socket | None) -> None:
        """Become the owner. There is no listener, and there are no members, if another user has the name."""
        self._listener = listener
        if listener is not None:
            listener.setblocking(False)
            self._epoll.register(listener, select.EPOLLIN)
            _OWNERS[self._name] = self
        if not self.was_first:
            self._epoll.register(self.own, select.EPOLLIN)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                channel, _ = listener.accept()
            except OSError:
                return
            if _is_foreign(channel) or len(self._members) >= _MOST_MEMBERS:
                channel.close()
                continue
            channel.setblocking(False)
            self._members[channel.fileno()] = _Member(channel)
            self._epoll.register(channel, select.EPOLLIN)
            if len(self._members) == 1:
                self.on_company()
            self._hear(self._members[channel.fileno()])  # its message is mostly there already

    def _hear(self, member: _Member) -> None:
        try:
            octets = member.channel.recv(_MOST_OCTETS)
        except BlockingIOError:
            return
        except ConnectionResetError:
            octets = b""
        try:
            member.concerns, wants_socket = Concerns.unpack(octets)  # an ended connection gives no octets, and an error
        except struct.error:
            self._part_from(member)
            return
        if wants_socket:
            others = self._concerns.tsis | frozenset(self._sources)
            try:
                socket.send_fds(member.channel, [Concerns(others).pack()], [self.own.fileno()])
            except OSError:
                self._part_from(member)
                return
        self._note_sources()

    def _part_from(self, member: _Member) -> None:
        self._epoll.unregister(member.channel)
        del self._members[member.channel.fileno()]
        member.channel.close()
        self._note_sources()
        if not self._members:
            self.on_company()

    def _note_sources(self) -> None:
        self._sources = {tsi: member for member in self._members.values() for tsi in member.concerns.tsis}

    # Member

    def _join(self, channel: socket.socket) -> None:
        """Take packets from the owner at the other end of `channel`."""
        channel.setblocking(False)
        self._channel = channel
        self._epoll.register(channel, select.EPOLLIN)

    def _succeed(self) -> None:
        """Become the owner, or join the process that was faster. Otherwise the ended connection brings another try."""
        assert self._channel is not None
        listener, channel = _claim(self._name), None
        is_foreign = False
        if listener is None:
            channel = _connect(self._name)
            is_foreign = channel is not None and _is_foreign(channel)
            if channel is None:
                os.sched_yield()  # the faster one has bound the name, and will listen
                return
        self._epoll.unregister(self._channel)
        self._channel.close()
        self._channel = None
        if channel is None or is_foreign:
            if channel is not None:
                channel.close()
            self._lead(listener)
            self.on_company()
        else:
            self._join(channel)
            self.concern(self._concerns)


_OWNERS: dict[str, SharedAddress] = {}  # of this process, by name
_SHARED = weakref.WeakSet[SharedAddress]()


def _abandon_all() -> None:
    for shared in tuple(_SHARED):
        shared.abandon()


os.register_at_fork(after_in_child=_abandon_all)


def open_shared(place: str, bind: Callable[[], socket.socket]) -> SharedAddress:
    """Open a place (address and port), with a socket from `bind` unless a process of this user has it.

    The place is this process's alone if another user has the name. Raises OSError: EADDRINUSE if the owner does not
    answer, and errors of `bind`.
    """
    name = f"\0pgm-udp/{os.geteuid()}/{place}"
    now = time.monotonic()
    give_up_at, succeeded_at = now + _PATIENCE_S, now + _SUCCESSION_S
    while True:
        listener = _claim(name)
        if listener is not None:
            try:
                return SharedAddress(name, bind(), listener=listener)
            except BaseException as error:
                listener.close()
                if not _is_in_use(error) or time.monotonic() >= succeeded_at:
                    raise
        channel = None if listener is not None else _connect(name)
        if channel is not None:
            if _is_foreign(channel):
                channel.close()
                return SharedAddress(name, bind())
            try:
                welcome = _ask(name, channel, give_up_at)
            except BaseException:
                channel.close()
                raise
            if welcome is not None:
                own, others = welcome
                return SharedAddress(name, own, channel=channel, tsis_of_others=others)
            channel.close()
        if time.monotonic() >= give_up_at:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        time.sleep(_RETRY_S)


def sender_head(sender: Nla) -> bytes:
    """Return what stands before a forwarded packet."""
    return _SENDER.pack(sender.encode())


def _is_in_use(error: BaseException) -> bool:
    return any(isinstance(one, OSError) and one.errno == errno.EADDRINUSE for one in (error, error.__cause__))


def _ask(name: str, channel: socket.socket, give_up_at: float) -> tuple[socket.socket, frozenset[Tsi]] | None:
    """Ask the owner for the UDP socket. Return it with the TSIs of others, or None if the owner has ended."""
    try:
        channel.send(Concerns().pack(wants_socket=True))
        owner = _OWNERS.get(name)
        if owner is not None and owner.thread == threading.get_ident():
            owner.serve()  # the owner's loop stands still while this thread opens
        channel.settimeout(max(_RETRY_S, give_up_at - time.monotonic()))
        octets, descriptors, _, _ = socket.recv_fds(channel, _MOST_OCTETS, 1, socket.MSG_CMSG_CLOEXEC)
    except TimeoutError:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)) from None
    except (ConnectionError, BlockingIOError):
        return None
    if not octets or not descriptors:
        return None
    return socket.socket(fileno=descriptors[0]), Concerns.unpack(octets)[0].tsis


def _claim(name: str) -> socket.socket | None:
    """Listen under a name of the abstract namespace; None if another process does."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(name)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        return None
    return listener


def _connect(name: str) -> socket.socket | None:
    """Connect to the process that listens; None if none does any more, or yet, or if too many connect at once."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.setblocking(False)
    try:
        channel.connect(name)
    except OSError:
        channel.close()
        return None
    return channel


def _is_foreign(channel: socket.socket) -> bool:
    return peer_of(channel)[1] != os.geteuid()
