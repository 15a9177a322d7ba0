"""Reads of one segment's sockets; each gives a train, or several that were gathered into one."""

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
from pgm.net.link.socket_drops import SocketDrops
from pgm.net.sockets.inputs import Input
from pgm.net.sockets.msghdr import CONTROL_OCTETS
from pgm.net.sockets.open import SO_MEMINFO, SO_RXQ_OVFL, SOL_UDP, UDP_GRO, SegmentSockets
from pgm.net.sockets.raw_ip import Ancillary, strip_header
from pgm.net.sockets.recvmmsg import MOST, DatagramBatch, Recvmmsg
from pgm.net.sockets.recvmsg import CONTROL_WORD, Recvmsg, receive_message
from pgm.net.sockets.shared_address import SharedAddress, sender_head
from pgm.parameters import Parameters
from pgm.wire.formats import TYPE_AT, Nla, PacketType
from pgm.wire.train import MAX_READ_OCTETS, MAX_READ_PACKETS, Octets, Train

_INT = struct.Struct("=i")
_U32 = struct.Struct("=I")
_TRUNCATED, _DONTWAIT = int(socket.MSG_TRUNC), int(socket.MSG_DONTWAIT)  # plain ints: enum operators run in Python
# Errors of a network driver with a full queue.
BUSY = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS})
_NOTHING_THERE = BUSY | {errno.EINTR}
_MOST_MOVED = 8  # NCFs moved out of the data of one `recvmmsg`; more follow from excessive NAKs, and may cut the train
_LEAST_CHUNK = 4 * ROOM  # of a receiver's chunks: for a read, a gathered read behind it, and gaps
_WINDOW_CHUNKS = 8  # chunks in a window, at least, if chunks may be that small
# Datagrams of the first `recvmmsg`, and of the next one after a train. Each may be a train of 64 KB, which is copied twice.
_FIRST_BATCH = 8


@functools.lru_cache(maxsize=4096)
def _canonical(host: str) -> Nla:
    """Return an IPv6 address in the spelling used elsewhere, without the scope that the kernel adds."""
    return str(ipaddress.ip_address(host.partition("%")[0]))


def receiving_arena(parameters: Parameters) -> Arena:
    """Return the arena for reads, prefaulted to `rxw_warm_bytes`. Packets keep whole chunks: small in small windows."""
    chunk_octets = max(_LEAST_CHUNK, min(READING_OCTETS, parameters.rxw_bytes // _WINDOW_CHUNKS))
    return Arena(chunk_octets, warm_octets=min(parameters.rxw_warm_bytes, parameters.rxw_bytes))


@attrs.define
class SocketRead:
    """One read: a train, its channel and sender, and whether the socket was empty afterwards."""

    train: Train
    channel: Channel
    peer: str
    is_last: bool


TakeSingle = Callable[[bytes, Nla], bool]  # is offered a packet and its sender, and returns whether it took the packet


@attrs.define
class _ReadResult:
    """Result of one system call."""

    octets: int
    stride: int
    peer: Nla
    # Sender and control messages as the kernel gave them, if the same again means the same; else None.
    name: tuple[str, int] | None = None
    ancillary: list[Ancillary] | None = None

    def continues(self, first: _ReadResult) -> bool:
        """Return whether this read continues a train: same sender and packet size; a last packet may be shorter."""
        is_short = self.octets == self.stride < first.stride
        return self.peer == first.peer and (self.stride == first.stride or is_short)


_NOTHING = _ReadResult(0, 0, "")
_NO_NAME = ("", 0)  # of no sender


class SegmentReader:
    """Read side of the sockets of one segment of one node."""

    def __init__(
        self,
        sockets: SegmentSockets,
        segment: Segment,
        arena: Arena,
        injector: Injector | None,
        drops: SocketDrops,
        *,
        is_raw: bool,
    ) -> None:
        # Whether one receiver's core is the only user of the memory read, so that it may leave room for gaps.
        self.has_single_consumer = False
        self.sockets = sockets
        self.segment = segment
        self.injector = injector
        self.arena = arena
        self.counters = Counters()  # a driver replaces them by the core's
        self._is_raw = is_raw
        # Inputs whose packets may belong to other processes.
        self._shared: dict[Input, SharedAddress] = {
            one: shared for shared in sockets.shared for one in (shared.own, shared)
        }
        self._own_name: tuple[str, int] = sockets.own.getsockname()[:2]
        self._group_channel = Channel(segment, True)
        self._unicast_channel = Channel(segment, False)
        self._drops = drops
        self._held: dict[Input, deque[tuple[Octets, _ReadResult]]] = {}
        self._recvmmsg = None if is_raw else Recvmmsg.or_none()
        self._batch_size = _FIRST_BATCH  # datagrams of the next `recvmmsg`
        self._recvmsgs: dict[Input, Recvmsg] = {}  # of sockets that were polled for single packets

    @property
    def _is_v6(self) -> bool:
        return self.sockets.family == socket.AF_INET6

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the sockets to wait on."""
        return self.sockets.inputs

    def read(self, sock: Input, *, gathers: bool = True, take: TakeSingle | None = None) -> SocketRead | None:
        """Read waiting data as one train; None if nothing waits.

        Own multicast and trains of which injected losses leave nothing are skipped. With `gathers` several reads become
        one train if they fit together; a lone read then costs an extra call. The next read reuses the place of the
        octets in the arena, unless `keep` is called. A single packet is first offered to `take`; None is returned if
        `take` takes it.
        """
        counters = self.counters
        if counters.unlisted_packets + counters.uncoded_packets >= self._drops.watch_from:
            shared = self._shared.get(sock)
            self._drops.watch(sock, counters, is_shared=shared is not None and shared.has_company)
        while True:
            chunk, at, room = self.arena.reading_room(self._room_behind)
            read = self._receive(sock, chunk, at, room)
            if read is None:
                return None
            length, stride = read.octets, read.stride
            if not length:
                continue
            is_last = False
            if gathers and length % stride == 0:
                length, is_last = self._gather(sock, chunk, at, read)
            left: Train | None
            shared = self._shared.get(sock)
            if shared is not None and shared.routes:
                left = self._share(shared, Train(chunk, at, length, stride), read.peer)
                left = left if left is None or self.injector is None else self._impair(left)
            elif self.injector is not None:
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
                return self._socket_read(sock, left, read.peer, is_last=is_last)
            if is_last:
                return None

    @property
    def _room_behind(self) -> int:
        """Return the octets to leave free behind a read, for packets that fill gaps."""
        return ROOM if self.has_single_consumer else 0

    def polls_singles(self, sock: Input) -> bool:
        """Return whether `poll_single` can read an input: not with IP headers, injected losses, or packets of others."""
        return not self._is_raw and self.injector is None and sock not in self._shared

    def poll_single(self, sock: Input, take: TakeSingle, most: int = 1) -> int:
        """Poll for a single packet at most `most` times, and offer it to `take`.

        Returns the number of the poll that brought data, 0 for none. A negative number means that the data is not one
        packet, or was not taken. It is then held for `read`, which costs a long train a copy.
        """
        single = self._recvmsgs.get(sock) or self._make_recvmsg(sock)
        number, header = single.number, single.header
        for poll in range(1, most + 1):
            octets = receive_message(number, header, _DONTWAIT)
            if octets >= 0:
                break
            error = get_errno()
            if error not in _NOTHING_THERE and not self._is_busy(OSError(error, os.strerror(error))):
                return poll
        else:
            return 0
        if octets and single.metadata == single.expected_metadata:
            single.metadata[CONTROL_WORD] = CONTROL_OCTETS
            read, packet = None, single.data[:octets].tobytes()
            is_taken = take(packet, single.peer)
        else:
            read = self._single_result(sock, octets, single)
            if not read.octets:
                return poll
            packet = single.data[: read.octets].tobytes()
            is_taken = read.octets == read.stride and take(packet, read.peer)
        if is_taken:
            counters = self.counters
            counters.trains_in += 1
            counters.packets_in += 1
            return poll
        read = read or _ReadResult(octets, octets, single.peer)
        self._held.setdefault(sock, deque()).append((np.frombuffer(packet, np.uint8), read))
        return -poll

    def _make_recvmsg(self, sock: Input) -> Recvmsg:
        single = self._recvmsgs[sock] = Recvmsg(sock)
        return single

    def _single_result(self, sock: Input, octets: int, single: Recvmsg) -> _ReadResult:
        """Like `_result_of`. The sender's next packet will probably have the same metadata, so remember it."""
        ancillary, flags, name = single.parsed_metadata()
        read = self._result_of(sock, octets, ancillary, flags, name)
        if read.octets and not flags and not any(kind == UDP_GRO and level == SOL_UDP for level, kind, _ in ancillary):
            single.expect(read.peer)
        single.metadata[CONTROL_WORD] = CONTROL_OCTETS
        return read

    def _socket_read(self, sock: Input, train: Train, peer: Nla, *, is_last: bool) -> SocketRead:
        self.counters.trains_in += 1
        self.counters.packets_in += train.count
        channel = self._group_channel if sock is self.sockets.group else self._unicast_channel
        return SocketRead(train, channel, peer, is_last)

    def holds(self, sock: Input) -> bool:
        """Return whether a packet of this socket was read and is held. No caller may wait then."""
        return sock in self._held

    def octets_waiting(self, sock: Input) -> int:
        """Return a bound on the octets that wait in the kernel: the memory of the queue, which is 0 if it is empty."""
        if not isinstance(sock, socket.socket):
            return self.sockets.buffers.rcvbuf  # of a shared address, whose connections have queues of their own
        octets: int = _U32.unpack(sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _U32.size))[0]
        return octets

    def _gather(self, sock: Input, chunk: Octets, at: int, first: _ReadResult) -> tuple[int, bool]:
        """Gather further reads that continue a packet or train: one train costs the work once.

        Returns the octets of all reads, and whether the socket is empty. A read that does not fit is held for the next
        read.
        """
        length, stride = first.octets, first.stride
        end = chunk.nbytes - self._room_behind
        most = min(MAX_READ_OCTETS - ROOM, MAX_READ_PACKETS * stride - stride, end - at - ROOM)
        view = chunk.data
        was_single = first.octets == stride
        recvmmsg = None if isinstance(sock, SharedAddress) else self._recvmmsg
        while length <= most:
            start = at + length
            if sock in self._held and not self._held[sock][0][1].continues(first):
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
            if not read.continues(first):
                # Before packets held earlier, which came behind it.
                self._held.setdefault(sock, deque()).appendleft((chunk[start : start + read.octets].copy(), read))
                break
            length += read.octets
            if read.octets % stride:
                break
            is_single = read.octets == stride
            if recvmmsg is not None and is_single and was_single and length <= most and sock not in self._held:
                return self._gather_singles(recvmmsg, sock, chunk[at:end], length, first)
            was_single = is_single  # a single packet among trains: trains follow
        return length, False

    def _gather_singles(
        self, recvmmsg: Recvmmsg, sock: Input, room: Octets, length: int, first: _ReadResult
    ) -> tuple[int, bool]:
        """Gather single packets, many by one `recvmmsg`. Return the same as `_gather`."""
        stride = first.stride
        most = min(MAX_READ_OCTETS, MAX_READ_PACKETS * stride, len(room)) - stride
        while length <= most:
            count = min(self._batch_size, (most - length) // stride + 1)
            batch = recvmmsg.read(sock, count)
            if batch.is_odd is not None:
                self._batch_size = _FIRST_BATCH
            elif len(batch) == self._batch_size:
                self._batch_size = min(2 * count, MOST)
            if batch.drops is not None:
                self._note_drops(sock, batch.drops)
            fits = self._fitting(batch, first)
            if sock in self._held and PacketType.NCF in batch.rows[:fits, TYPE_AT]:
                fits = 0  # an earlier call has moved NCFs, and this NCF came behind them
            moved = self._ncfs_between(batch, fits, first) if self.has_single_consumer and fits < len(batch) else []
            if moved:
                fits = len(batch)
            begin = 0
            for end in (*moved, fits):
                octets = (end - begin) * stride
                room[length : length + octets].reshape(-1, stride)[:] = batch.rows[begin:end, :stride]
                length, begin = length + octets, end + 1
            for index in moved:
                self._hold(sock, batch, index, index + 1)
            if fits < len(batch):
                # No packet may end the train behind packets that an earlier call moved: it may be an NCF as well.
                tail = 0 if sock in self._held else self._tail_of(batch, fits, first)
                room[length : length + tail] = batch.rows[fits, :tail]
                self._hold(sock, batch, fits + (tail > 0), len(batch))
                return length + tail, len(batch) < count and sock not in self._held
            if len(batch) < count:
                length += self._held_tail(sock, room[length:], stride)
                return length, sock not in self._held
        return length + self._held_tail(sock, room[length:], stride), False

    def _held_tail(self, sock: Input, room: Octets, stride: int) -> int:
        """Let a moved NCF end the train if it fits. Return its octets."""
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

    def _ncfs_between(self, batch: DatagramBatch, fits: int, first: _ReadResult) -> list[int]:
        """Return the indexes of NCFs between packets that continue a train.

        The list is empty if anything else lies between. The NCFs must come from the train's sender. They would cut the
        train, so they are returned behind it. An NCF is still valid behind later packets.
        """
        others: list[int] = np.flatnonzero(batch.lengths != first.stride).tolist()
        are_few = len(others) <= _MOST_MOVED and batch.is_odd is None
        if not (are_few and batch.are_of_one_sender and self._is_from(batch.host(0), first.peer)):
            return []
        are_ncfs = batch.rows[:, TYPE_AT] == PacketType.NCF  # no continuing packet may be an NCF
        return others if np.count_nonzero(are_ncfs) == np.count_nonzero(are_ncfs[others]) == len(others) else []

    def _tail_of(self, batch: DatagramBatch, index: int, first: _ReadResult) -> int:
        """Return the octets of a shorter packet of the same sender, which may end a train; else 0."""
        is_odd = batch.is_odd is not None and index < len(batch) and batch.is_odd[index]
        is_there = index < len(batch) and not is_odd and batch.lengths[index] < first.stride
        return int(batch.lengths[index]) if is_there and self._is_from(batch.host(index), first.peer) else 0

    def _fitting(self, batch: DatagramBatch, first: _ReadResult) -> int:
        """Return how many datagrams, from the first on, continue a train."""
        if not len(batch) or not self._is_from(batch.host(0), first.peer):
            return 0
        if batch.are_uniform(first.stride):
            return len(batch)
        return batch.uniform_from(0) if batch.lengths[0] == first.stride else 0

    def _hold(self, sock: Input, batch: DatagramBatch, index: int, end: int) -> None:
        """Hold datagrams `index` to `end - 1` for the next reads; equal ones form a train."""
        while index < end:
            read, count = self._result_at(sock, batch, index), 1
            if read.octets:
                count = max(1, min(batch.uniform_from(index), end - index, ROOM // read.octets))
                octets = batch.rows[index : index + count, : read.octets].reshape(-1).copy()
                held = self._held.setdefault(sock, deque())
                held.append((octets, _ReadResult(len(octets), read.stride, read.peer)))
            index += count

    def _result_at(self, sock: Input, batch: DatagramBatch, index: int) -> _ReadResult:
        """Return one of several datagrams as if it had been read alone."""
        name, octets = batch.host(index), int(batch.lengths[index])
        stride = self._read_ancillary(sock, batch.ancillary(index)) or octets
        return _NOTHING if not octets or self._is_own(name) else _ReadResult(octets, stride, self._peer_of(name))

    def _is_from(self, name: tuple[str, int], peer: Nla) -> bool:
        """Return whether a name is this sender's: other processes may share this node's address, itself excluded."""
        return self._peer_of(name) == peer and not self._is_own(name)

    def _peer_of(self, name: tuple[str, int]) -> Nla:
        return _canonical(name[0]) if self._is_v6 else name[0]

    def _receive(
        self, sock: Input, chunk: Octets, at: int, room: memoryview, first: _ReadResult = _NOTHING
    ) -> _ReadResult | None:
        """Read one datagram, or a GRO train. Return None if nothing waits.

        Input to be ignored gives `_NOTHING`. `room` is the part of the chunk from `at` on, and bounds the read. `first`
        is the first read of the train; a read with the same facts returns `first` itself.
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
        if name == first.name and ancillary == first.ancillary and not flags:
            if count == first.octets:
                return first
            if count and first.octets > first.stride:  # a train of packets of the same size, some of them lost
                return _ReadResult(count, first.stride, first.peer, name, ancillary)
        if self._is_raw and not self._is_v6:
            count = strip_header(chunk, at, count)
        return self._result_of(sock, count, ancillary, flags, name)

    @staticmethod
    def _is_busy(error: OSError) -> bool:
        """Return whether a read found nothing.

        An error that answers an earlier send gives False: the send met a closed port, and its timer handles that.
        Raises other errors.
        """
        if error.errno in BUSY:
            return True
        if error.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH):
            return False
        raise error

    def _result_of(
        self, sock: Input, count: int, ancillary: list[Ancillary], flags: int, name: tuple[str, int]
    ) -> _ReadResult:
        """Return the result of a read of `count` octets, by its control messages."""
        stride = count if not ancillary else self._read_ancillary(sock, ancillary) or count
        if flags & _TRUNCATED:
            self.counters.truncated_reads += 1
            count -= count % stride or stride
        host = name[0]
        if count <= 0 or (host == self._own_name[0] and self._is_own(name)):
            return _NOTHING
        peer = _canonical(host) if self._is_v6 else host
        is_plain = not (flags or self._is_raw)
        return _ReadResult(count, stride, peer, name, ancillary) if is_plain else _ReadResult(count, stride, peer)

    def _is_own(self, name: tuple[str, int]) -> bool:
        """Return whether this is the node's own multicast; over protocol 113 only the address tells."""
        return name[0] == self._own_name[0] and (self._is_raw or name[1] == self._own_name[1])

    def _hear_itself(self, hears: bool) -> None:
        self._own_name = _NO_NAME if hears else self.sockets.own.getsockname()[:2]

    def keep(self, train: Train) -> None:
        """Keep the octets of the last train read in their place; a second call changes nothing."""
        self.arena.keep_until(train.buffer, train.offset + train.octets_to_keep)

    def warm_up(self, octets: int) -> None:
        """Prefault a piece of memory if fewer than `octets` are ready."""
        self.arena.warm_up(octets)

    def _share(self, shared: SharedAddress, train: Train, peer: Nla) -> Train | None:
        """Forward the packets of other processes on the address. Return the packets of this process, if any."""
        octets, size = train.buffer.data[train.offset : train.offset + train.length], train.stride
        others, sender = np.zeros(train.count, np.bool_), sender_head(peer)
        for index in range(train.count):
            is_own, drops = shared.forward(octets[index * size : (index + 1) * size], sender)
            others[index] = not is_own
            self.counters.socket_drops += drops
        return train.closed_up(others) if others.any() else train

    def _impair(self, train: Train) -> Train | None:
        assert self.injector is not None
        lost = self.injector.draw(train.count)
        if lost is None:
            return train
        left = train.closed_up(lost)
        self.counters.injected_losses += train.count - (0 if left is None else left.count)
        return left

    def _read_ancillary(self, sock: Input, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
        """Return the segment size of a GRO train, or 0. Record the kernel's drop count."""
        stride = 0
        for level, kind, octets in ancillary:
            if level == SOL_UDP and kind == UDP_GRO:
                stride = _INT.unpack(octets)[0]
            elif level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL:
                self._note_drops(sock, _U32.unpack(octets)[0])
        return stride

    def _note_drops(self, sock: Input, total: int) -> None:
        self.counters.socket_drops += self._drops.more(sock, total)
