"""What comes in on one segment: the reads of its sockets, each of which gives a train, or several that go together."""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import get_errno

import attrs
import numpy as np

from pgm.core.counters import Counters
from pgm.core.segment import Channel, Segment
from pgm.core.structures.arena import READING_OCTETS, ROOM, Arena
from pgm.impairments import Injector
from pgm.net.sockets.msghdr import CONTROL_OCTETS
from pgm.net.sockets.open import SO_RXQ_OVFL, SOL_UDP, UDP_GRO, SegmentSockets
from pgm.net.sockets.raw_ip import Ancillary, strip_header
from pgm.net.sockets.recvmmsg import MOST, DatagramBatch, Recvmmsg
from pgm.net.sockets.recvmsg import CONTROL_WORD, Recvmsg, receive_message
from pgm.parameters import Parameters
from pgm.wire.formats import TYPE_AT, Nla, PacketType
from pgm.wire.train import MAX_READ_OCTETS, MAX_READ_PACKETS, Octets, Train

_INT = struct.Struct("=i")
_U32 = struct.Struct("=I")
_MASK = 0xFFFFFFFF
_TRUNCATED, _DONTWAIT = int(socket.MSG_TRUNC), int(socket.MSG_DONTWAIT)  # the flags themselves compute in Python
# What a driver refuses for a while: a full queue.
BUSY = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})
_NOTHING_THERE = BUSY | {errno.EINTR}
_MOST_APART = 8  # NCFs among the data of one call: of so many more NAKs than losses need, each may cut it
_LEAST_CHUNK = 4 * ROOM  # of what a receiver reads to: for a read, one gathered behind it, and room for what is missing
_WINDOW_CHUNKS = 8  # that a window holds at least, where chunks may be so small
# Datagrams of the first call for many, and of one behind which a train was found. Each may be a train of 64 KB, to be copied twice.
_FEW = 8


@functools.lru_cache(maxsize=4096)
def _spelled(host: str) -> Nla:
    """An IPv6 address as all else spells it, without the scope that the kernel adds."""
    return str(ipaddress.ip_address(host.partition("%")[0]))


def receiving_arena(parameters: Parameters) -> Arena:
    """What a receiver reads to, as much of it touched as `rxw_warm_bytes` says. A packet that waits keeps a whole chunk: a small window has small ones."""
    chunk_octets = max(_LEAST_CHUNK, min(READING_OCTETS, parameters.rxw_bytes // _WINDOW_CHUNKS))
    return Arena(chunk_octets, warm_octets=min(parameters.rxw_warm_bytes, parameters.rxw_bytes))


@attrs.define
class SocketRead:
    """One read: a train, how it came, and from whom; and whether the socket was found empty behind it."""

    train: Train
    channel: Channel
    peer: str
    is_last: bool


TakeAlone = Callable[[bytes, Nla], bool]  # is offered a packet and its sender, and says whether it took it


@attrs.define
class _Read:
    """What one system call gave."""

    octets: int
    stride: int
    peer: Nla
    # The sender, as the kernel gave it, and what came beside, where the same again would say the same of so many octets.
    name: tuple[str, int] | None = None
    beside: list[Ancillary] | None = None

    def goes_on(self, first: _Read) -> bool:
        """Whether this is of the same sender and packets of the same size, or a shorter one, which may end a train."""
        is_short = self.octets == self.stride < first.stride
        return self.peer == first.peer and (self.stride == first.stride or is_short)


_NOTHING = _Read(0, 0, "")


class SegmentReader:
    """The sockets of one segment of one node, as far as they are read."""

    def __init__(
        self, sockets: SegmentSockets, segment: Segment, arena: Arena, injector: Injector | None, *, is_raw: bool
    ) -> None:
        # Whether nobody but one receiver's core has to do with what is read, so that it may make room for what is missing.
        self.has_single_consumer = False
        self.sockets = sockets
        self.segment = segment
        self.injector = injector
        self._arena = arena
        self.counters = Counters()  # until a driver puts the core's here
        self._is_raw = is_raw
        self._is_v6 = sockets.family == socket.AF_INET6
        self._own_name: tuple[str, int] = sockets.own.getsockname()[:2]
        self._group_channel = Channel(segment, True)
        self._unicast_channel = Channel(segment, False)
        self._kernel_drops: dict[socket.socket, int] = {}
        self._held: dict[socket.socket, deque[tuple[Octets, _Read]]] = {}
        self._many = None if is_raw else Recvmmsg.or_none()
        self._asks_many = _FEW  # datagrams of the next call for many
        self._singles: dict[socket.socket, Recvmsg] = {}  # of those that were looked at for single packets

    @property
    def inputs(self) -> tuple[socket.socket, ...]:
        """The sockets to wait on."""
        return self.sockets.inputs

    def read(self, sock: socket.socket, *, gathers: bool = True, take: TakeAlone | None = None) -> SocketRead | None:
        """What waits, as one train, or None when nothing does. Own echoes and what injected losses leave nothing of are passed over.

        With `gathers` several reads become one train where they fit together, at the cost of a call in vain when there is but one.
        The octets lie in the arena at a place that the next read reuses, unless `keep` is called. A packet that came alone is
        offered to `take` before: None also if that takes it.
        """
        while True:
            chunk, at, room = self._arena.reading_room(self._room_behind)
            read = self._receive(sock, chunk, at, room)
            if read is None:
                return None
            length, stride = read.octets, read.stride
            if not length:
                continue
            is_last = False
            if gathers and length % stride == 0:
                length, is_last = self._gather(sock, chunk, at, read)
            if self.injector is not None:
                left = self._impair(Train(chunk, at, length, stride))
            elif take is not None and length == stride and take(room[:length].tobytes(), read.peer):
                self.counters.trains_in += 1
                self.counters.packets_in += 1
                return None
            else:
                left = Train(chunk, at, length, stride)
            if left is not None:
                if self.has_single_consumer:
                    left.has_room_behind()
                return self._arrival(sock, left, read.peer, is_last=is_last)
            if is_last:
                return None

    @property
    def _room_behind(self) -> int:
        """Octets to leave behind a read: what is missing wants room there."""
        return ROOM if self.has_single_consumer else 0

    @property
    def reads_alone(self) -> bool:
        """Whether `read_alone` is of use: not where octets of IP come first, nor where losses are drawn."""
        return not self._is_raw and self.injector is None

    def read_alone(self, sock: socket.socket, take: TakeAlone, most: int = 1) -> int:
        """Read so often at most where a single packet is looked for, and offer what came to `take`; returns which look brought something, 0 for none.

        Less than 0: what it brought is not one packet, or was not taken, and is held for `read`, which costs a long train a copy.
        """
        single = self._singles.get(sock) or self._single(sock)
        number, header = single.number, single.header
        for look in range(1, most + 1):
            octets = receive_message(number, header, _DONTWAIT)
            if octets >= 0:
                break
            error = get_errno()
            if error not in _NOTHING_THERE and not self._is_busy(OSError(error, os.strerror(error))):
                return look
        else:
            return 0
        if octets and single.told == single.usual:
            single.told[CONTROL_WORD] = CONTROL_OCTETS
            read, packet = None, single.data[:octets].tobytes()
            is_taken = take(packet, single.peer)
        else:
            read = self._judged_single(sock, octets, single)
            if not read.octets:
                return look
            packet = single.data[: read.octets].tobytes()
            is_taken = read.octets == read.stride and take(packet, read.peer)
        if is_taken:
            counters = self.counters
            counters.trains_in += 1
            counters.packets_in += 1
            return look
        read = read or _Read(octets, octets, single.peer)
        self._held.setdefault(sock, deque()).append((np.frombuffer(packet, np.uint8), read))
        return -look

    def _single(self, sock: socket.socket) -> Recvmsg:
        single = self._singles[sock] = Recvmsg(sock)
        return single

    def _judged_single(self, sock: socket.socket, octets: int, single: Recvmsg) -> _Read:
        """As `_judged`; where it is a packet, what was told of it is what is told of the next of its sender most likely."""
        ancillary, flags, name = single.beside()
        read = self._judged(sock, octets, ancillary, flags, name)
        if read.octets and not flags and not any(kind == UDP_GRO and level == SOL_UDP for level, kind, _ in ancillary):
            single.expect(read.peer)
        single.told[CONTROL_WORD] = CONTROL_OCTETS
        return read

    def _arrival(self, sock: socket.socket, train: Train, peer: Nla, *, is_last: bool) -> SocketRead:
        self.counters.trains_in += 1
        self.counters.packets_in += train.count
        channel = self._group_channel if sock is self.sockets.group else self._unicast_channel
        return SocketRead(train, channel, peer, is_last)

    def holds(self, sock: socket.socket) -> bool:
        """Whether a packet of this socket was read and not given yet, so that nobody should wait for more."""
        return sock in self._held

    def _gather(self, sock: socket.socket, chunk: Octets, at: int, first: _Read) -> tuple[int, bool]:
        """Read on behind a packet or train while what comes looks like it: for all together work is done but once.

        Returns the octets of all, and whether nothing waits behind them. What looks otherwise is held for the next read.
        """
        length, stride = first.octets, first.stride
        end = chunk.nbytes - self._room_behind
        most = min(MAX_READ_OCTETS - ROOM, MAX_READ_PACKETS * stride - stride, end - at - ROOM)
        view = chunk.data
        was_single = first.octets == stride
        while length <= most:
            start = at + length
            if sock in self._held and not self._held[sock][0][1].goes_on(first):
                break
            read = self._receive(sock, chunk, start, view[start : start + ROOM], first)
            if read is first and first.octets > stride:
                length += first.octets
                was_single = False
                continue
            if read is None:
                return length, True
            if not read.octets:
                continue
            if not read.goes_on(first):
                # Before what is held behind it.
                self._held.setdefault(sock, deque()).appendleft((chunk[start : start + read.octets].copy(), read))
                break
            length += read.octets
            if read.octets % stride:
                break
            is_single = read.octets == stride
            if self._many is not None and is_single and was_single and length <= most and sock not in self._held:
                return self._gather_singles(self._many, sock, chunk[at:end], length, first)
            was_single = is_single  # among trains one alone: others follow
        return length, False

    def _gather_singles(
        self, many: Recvmmsg, sock: socket.socket, room: Octets, length: int, first: _Read
    ) -> tuple[int, bool]:
        """Read on where packets come one by one, many by a call: the same as `_gather`."""
        stride = first.stride
        most = min(MAX_READ_OCTETS, MAX_READ_PACKETS * stride, len(room)) - stride
        while length <= most:
            asked = min(self._asks_many, (most - length) // stride + 1)
            found = many.read(sock, asked)
            if found.is_odd is not None:
                self._asks_many = _FEW
            elif len(found) == self._asks_many:
                self._asks_many = min(2 * asked, MOST)
            if found.drops is not None:
                self._note_drops(sock, found.drops)
            fits = self._fitting(found, first)
            if sock in self._held and PacketType.NCF in found.rows[:fits, TYPE_AT]:
                fits = 0  # an earlier call has set NCFs apart, and this one came behind them
            apart = self._ncfs_between(found, fits, first) if self.has_single_consumer and fits < len(found) else []
            if apart:
                fits = len(found)
            begin = 0
            for end in (*apart, fits):
                octets = (end - begin) * stride
                room[length : length + octets].reshape(-1, stride)[:] = found.rows[begin:end, :stride]
                length, begin = length + octets, end + 1
            for index in apart:
                self._hold(sock, found, index, index + 1)
            if fits < len(found):
                # Behind what an earlier call had set apart nothing may end the train: it may be an NCF as well.
                tail = 0 if sock in self._held else self._tail_of(found, fits, first)
                room[length : length + tail] = found.rows[fits, :tail]
                self._hold(sock, found, fits + (tail > 0), len(found))
                return length + tail, len(found) < asked and sock not in self._held
            if len(found) < asked:
                length += self._held_tail(sock, room[length:], stride)
                return length, sock not in self._held
        return length + self._held_tail(sock, room[length:], stride), False

    def _held_tail(self, sock: socket.socket, room: Octets, stride: int) -> int:
        """Let an NCF that was set apart end the train; returns its octets."""
        if sock not in self._held:
            return 0
        octets, read = self._held[sock][0]
        if not read.octets == read.stride < stride or read.octets > len(room):
            return 0
        room[: read.octets] = octets
        self._held[sock].popleft()
        if not self._held[sock]:
            del self._held[sock]
        return read.octets

    def _ncfs_between(self, found: DatagramBatch, fits: int, first: _Read) -> list[int]:
        """Where NCFs lie between packets that go on with a train, of whose sender they are, and nothing else does; empty where that is not so.

        They are given behind the train, which they would cut: what an NCF says is no less true behind what came after it.
        """
        others: list[int] = np.flatnonzero(found.lengths != first.stride).tolist()
        are_few = len(others) <= _MOST_APART and found.is_odd is None
        if not (are_few and found.are_of_one_sender and self._is_of(found.host(0), first.peer)):
            return []
        are_ncfs = found.rows[:, TYPE_AT] == PacketType.NCF  # none of which may be among what goes on
        return others if np.count_nonzero(are_ncfs) == np.count_nonzero(are_ncfs[others]) == len(others) else []

    def _tail_of(self, found: DatagramBatch, index: int, first: _Read) -> int:
        """Octets of a shorter packet of the same sender's, which may end a train; 0 if it is something else."""
        is_odd = found.is_odd is not None and index < len(found) and found.is_odd[index]
        is_there = index < len(found) and not is_odd and found.lengths[index] < first.stride
        return int(found.lengths[index]) if is_there and self._is_of(found.host(index), first.peer) else 0

    def _fitting(self, found: DatagramBatch, first: _Read) -> int:
        """How many of what was read, from its beginning, go on with a train."""
        if not len(found) or not self._is_of(found.host(0), first.peer):
            return 0
        if found.are_alike(first.stride):
            return len(found)
        return found.alike_from(0) if found.lengths[0] == first.stride else 0

    def _hold(self, sock: socket.socket, found: DatagramBatch, index: int, end: int) -> None:
        """Hold what was read from this one to before another for the next reads, those that are alike as a train."""
        while index < end:
            read, count = self._odd_one(sock, found, index), 1
            if read.octets:
                count = max(1, min(found.alike_from(index), end - index, ROOM // read.octets))
                octets = found.rows[index : index + count, : read.octets].reshape(-1).copy()
                held = self._held.setdefault(sock, deque())
                held.append((octets, _Read(len(octets), read.stride, read.peer)))
            index += count

    def _odd_one(self, sock: socket.socket, found: DatagramBatch, index: int) -> _Read:
        """One of several that were read, as if it had been read alone."""
        name, octets = found.host(index), int(found.lengths[index])
        stride = self._read_ancillary(sock, found.ancillary(index)) or octets
        return _NOTHING if not octets or self._is_own(name) else _Read(octets, stride, self._peer_of(name))

    def _is_of(self, name: tuple[str, int], peer: Nla) -> bool:
        """Whether a sender is this one: others on our address are, we are not."""
        return self._peer_of(name) == peer and not self._is_own(name)

    def _peer_of(self, name: tuple[str, int]) -> Nla:
        return _spelled(name[0]) if self._is_v6 else name[0]

    def _receive(
        self, sock: socket.socket, chunk: Octets, at: int, room: memoryview, first: _Read = _NOTHING
    ) -> _Read | None:
        """One datagram, or a train of them if the kernel gathers; without octets if it is nothing for us. None: none waits.

        `room` is the chunk's octets from `at` on, as many as are read at most; `first` the first read of the train, given again where this is the same.
        """
        if sock in self._held:
            octets, read = self._held[sock].popleft()
            if not self._held[sock]:
                del self._held[sock]
            chunk[at : at + read.octets] = octets
            return read
        try:
            count, ancillary, flags, name = sock.recvmsg_into((room,), CONTROL_OCTETS)
        except OSError as error:
            return None if self._is_busy(error) else _NOTHING
        if name == first.name and ancillary == first.beside and not flags:
            if count == first.octets:
                return first
            if count and first.octets > first.stride:  # a train of packets of the same size, of which some were lost
                return _Read(count, first.stride, first.peer, name, ancillary)
        if self._is_raw and not self._is_v6:
            count = strip_header(chunk, at, count)
        return self._judged(sock, count, ancillary, flags, name)

    @staticmethod
    def _is_busy(error: OSError) -> bool:
        """Whether a read found nothing. Raises what is no answer to an earlier send: that met a closed port, and its timer deals with it."""
        if error.errno in BUSY:
            return True
        if error.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
            return False
        raise error

    def _judged(
        self, sock: socket.socket, count: int, ancillary: list[Ancillary], flags: int, name: tuple[str, int]
    ) -> _Read:
        """What a read of so many octets gave, by what came beside it."""
        stride = count if not ancillary else self._read_ancillary(sock, ancillary) or count
        if flags & _TRUNCATED:
            self.counters.truncated_reads += 1
            count -= count % stride or stride
        host = name[0]
        if count <= 0 or (host == self._own_name[0] and self._is_own(name)):
            return _NOTHING
        peer = _spelled(host) if self._is_v6 else host
        is_plain = not (flags or self._is_raw)
        return _Read(count, stride, peer, name, ancillary) if is_plain else _Read(count, stride, peer)

    def _is_own(self, name: tuple[str, int]) -> bool:
        """Whether this is what we multicast ourselves; over protocol 113 there is but the address to know it by."""
        return name[0] == self._own_name[0] and (self._is_raw or name[1] == self._own_name[1])

    def keep(self, train: Train) -> None:
        """Say that the octets of the last train read must stay where they are."""
        self._arena.keep_if_current(train.buffer, train.octets_to_keep)

    def warm_up(self, octets: int) -> None:
        """Have memory for so much ready: a piece of it, if some is wanting."""
        self._arena.warm_up(octets)

    def _impair(self, train: Train) -> Train | None:
        assert self.injector is not None
        lost = self.injector.draw(train.count)
        if lost is None:
            return train
        left = train.closed_up(lost)
        self.counters.injected_losses += train.count - (0 if left is None else left.count)
        return left

    def _read_ancillary(self, sock: socket.socket, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
        """The segment size of a GRO train, or 0. Takes note of what the kernel dropped."""
        stride = 0
        for level, kind, octets in ancillary:
            if level == SOL_UDP and kind == UDP_GRO:
                stride = _INT.unpack(octets)[0]
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                self._note_drops(sock, _U32.unpack(octets)[0])
        return stride

    def _note_drops(self, sock: socket.socket, total: int) -> None:
        more = (total - self._kernel_drops.get(sock, 0)) & _MASK
        if more <= _MASK >> 1:  # else it came with an earlier packet than the newest number
            self.counters.socket_drops += more
            self._kernel_drops[sock] = total
