"""One segment on the wire: trains in and out, one system call each by GSO and GRO.

Without GSO, as over IP protocol 113, an outgoing train is a call for each of its packets. Without GRO, an incoming
train is the packets that such calls find waiting. On a unicast leg, data for all goes to each peer in turn, as one
sequence with a copy for each peer.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Sequence

from pgm.core.effects import Send
from pgm.core.segment import Segment
from pgm.core.structures.arena import Arena
from pgm.impairments import Injector
from pgm.net.link.group_sender import GroupSender
from pgm.net.link.reader import BUSY, SegmentReader
from pgm.net.link.socket_drops import SocketDrops
from pgm.net.sockets.open import SOL_UDP, UDP_SEGMENT, block_echo, open_sockets, socket_name
from pgm.net.sockets.packet_filter import ALL_SENDERS, SenderLists
from pgm.net.sockets.raw_ip import ROUTER_ALERT, Ancillary
from pgm.net.sockets.shared_address import Concerns
from pgm.parameters import Parameters
from pgm.topology.node_plan import SegmentPlan
from pgm.wire.formats import Nla, Tsi
from pgm.wire.router_alert import wants_router_alert
from pgm.wire.train import Octets, fits_behind, packets_a_train

_INT = struct.Struct("=i")
_U16 = struct.Struct("=H")
_SEGMENTS = SOL_UDP, UDP_SEGMENT
_DONTWAIT = int(socket.MSG_DONTWAIT)  # plain int: enum operators run in Python
_Piece = bytes | memoryview | Octets  # of outgoing data
_SocketName = tuple[str | int, ...]  # address in the form of system calls
# Errors that a network driver returns for every train, unlike those of a full queue.
_NO_GSO = frozenset({errno.EMSGSIZE, errno.EINVAL, errno.EIO, errno.EOPNOTSUPP})


class WouldBlock(Exception):
    """Refusal of a busy socket. `at` is the octet to continue from, counted over all peers of a unicast leg."""

    def __init__(self, at: int, sock: socket.socket) -> None:
        super().__init__(at)
        self.at = at
        self.sock = sock


class Link(SegmentReader):
    """Sockets of one segment of one node, for reads and sends."""

    def __init__(
        self,
        plan: SegmentPlan,
        index: int,
        parameters: Parameters,
        arena: Arena,
        injector: Injector | None,
        *,
        lists: SenderLists = ALL_SENDERS,
        may_share: bool = False,
    ) -> None:
        """Open the sockets. With `may_share` other processes of this user may have the same address and port.

        The kernel drops packets of senders that are not in `lists` after `kernel_refusal_after` of them.
        """
        self.plan = plan
        # Draws losses on the way out, which leave holes in trains. A topology file's impairments are losses on the way
        # in.
        self.outgoing: Injector | None = None
        sockets = open_sockets(plan, parameters, may_share=may_share)
        interface = sockets.interface
        segment = Segment(
            index,
            plan.name,
            interface.address,
            plan.group,
            plan.upstream,
            plan.downstream,
            plan.peers,
            interface.network,
        )
        is_raw = plan.transport == "ip"
        after_packets = 0 if is_raw else parameters.kernel_refusal_after  # a raw socket has IP headers in its packets
        drops = SocketDrops(interface.address, lists, after_packets)
        super().__init__(sockets, segment, arena, injector, drops, is_raw=is_raw)
        self._sendto, self._sendmsg = sockets.own.sendto, sockets.own.sendmsg
        self.to_group = None if sockets.to_group is None else GroupSender(sockets.to_group)
        self._passes_echo = False
        for shared in sockets.shared:
            shared.on_company = self._company_changed
        self._company_changed()

    def permit(self, lists: SenderLists) -> None:
        """Let packets of other senders pass the kernel."""
        self._drops.permit(self.segment.address, lists)

    def close(self) -> None:
        """Leave the group and free the ports."""
        self.sockets.close()

    def hear_itself(self, hears: bool) -> None:
        """Read this node's own packets, which receivers beside a source need, or ignore them again."""
        if hears != self._passes_echo:
            self._passes_echo = hears
            if self.sockets.group is not None:
                block_echo(self.sockets.group, self.sockets.interface, self.plan.group, is_blocked=not hears)
            self._company_changed()

    def _company_changed(self) -> None:
        """Read packets from the own address while others share it; the kernel still blocks a source's multicast.

        A process that took the socket over from another expects others too: they connect in the next moments.
        """
        is_shared = any(shared.has_company or not shared.was_first for shared in self.sockets.shared)
        self._hear_itself(self._passes_echo or is_shared)
        for shared in self.sockets.shared if is_shared else ():
            self._drops.release(shared.own)

    def concern(self, concerns: Concerns) -> None:
        """Take the packets of these sources and data ports, if other processes share the address."""
        for shared in self.sockets.shared:
            shared.concern(concerns)

    @property
    def tsis_of_others(self) -> frozenset[Tsi]:
        """Return the known TSIs of other processes on the address."""
        return frozenset[Tsi]().union(*(shared.tsis_of_others for shared in self.sockets.shared))

    def send(self, send: Send, at: int = 0) -> None:
        """Send a train from octet `at` on. Raises `WouldBlock` if the link takes no more."""
        if self.to_group is not None and send.to is None and send.hops is None:
            self._put(send, at, (), None)
        elif send.to is not None or self.plan.peers is None:
            self._send_to(send.to, send, at)
        else:
            length = len(send.octets)
            first, at = divmod(at, length)
            for number in range(first, len(self.plan.peers)):
                try:
                    self._send_to(self.plan.peers[number], send, at)
                except WouldBlock as blocked:
                    raise WouldBlock(number * length + blocked.at, blocked.sock) from None
                at = 0

    def packets_left(self, send: Send, at: int) -> int:
        """Return how many packets are left if `send` stopped at octet `at`, as copies to all peers on a unicast leg."""
        length = len(send.octets)
        copies = 1 if send.to is not None or self.plan.peers is None else len(self.plan.peers)
        done, at = divmod(at, length)
        return -(-(length - at) // send.stride) + (copies - 1 - done) * -(-length // send.stride)

    def send_packet(self, packet: bytes) -> bool:
        """Send one packet to the group. Return False, with nothing sent, if the general path `send` must do it."""
        return self.to_group is not None and self.outgoing is None and self.to_group.send_packet(packet)

    def _send_to(self, to: Nla | None, send: Send, at: int) -> None:
        host, port = (self.plan.group, self.plan.port) if to is None else (to, self.plan.unicast_port)
        destination = socket_name(host, 0 if self._is_raw else port, self.sockets.interface, self.sockets.family)
        packet = memoryview(send.octets)[: send.stride]  # type: ignore[arg-type]
        self._put(send, at, self._ancillary(packet, to, send.hops), destination)

    def _put(self, send: Send, at: int, ancillary: Sequence[Ancillary], destination: _SocketName | None) -> None:
        """Send from octet `at` on, as trains or packet by packet; without destination by the connected socket."""
        octets, stride = send.octets, send.stride
        if len(octets) <= stride:
            if self._send_with_losses(octets, stride, ancillary, destination) is None:
                raise WouldBlock(0, self._sock_to(destination))
            return
        view = memoryview(octets)  # type: ignore[arg-type]
        if self.sockets.gso and len(view) - at > stride:
            at = self._send_trains(view, at, stride, ancillary, destination)
        for start in range(at, len(view), stride):
            if self._send_with_losses(view[start : start + stride], stride, ancillary, destination) is None:
                raise WouldBlock(start, self._sock_to(destination))

    def _send_trains(
        self, view: memoryview, at: int, stride: int, ancillary: Sequence[Ancillary], destination: _SocketName | None
    ) -> int:
        """Send from octet `at`, a train a call. Return the end, or the first octet the kernel refuses to segment."""
        messages = ancillary if destination is None else (*ancillary, (*_SEGMENTS, _U16.pack(stride)))
        step = packets_a_train(stride) * stride
        start = at
        while start < len(view):
            end = start + step
            if 0 < (rest := len(view) - end) < stride and fits_behind(step, stride, rest):
                end = len(view)
            done = self._send_with_losses(view[start:end], stride, messages, destination)
            if done is None:
                raise WouldBlock(start, self._sock_to(destination))
            if not done:
                self.sockets.gso = False  # this path cannot; packet by packet from now on
                return start
            start = end
        return len(view)

    def _sock_to(self, destination: _SocketName | None) -> socket.socket:
        return self.sockets.own if destination is not None or self.to_group is None else self.to_group.sock

    def _send_with_losses(
        self, octets: _Piece, stride: int, ancillary: Sequence[Ancillary], destination: _SocketName | None
    ) -> bool | None:
        """Send as `_send_once`, without the packets that injected losses drop."""
        outgoing = self.outgoing
        if outgoing is None:
            return self._send_once((octets,), stride, ancillary, destination)
        packets = -(-len(octets) // stride)
        lost = () if outgoing.spares(packets) else outgoing.draw_places(packets)
        is_sent: bool | None = True
        if len(lost) < packets:
            pieces = _parts_between(octets, stride, lost) if lost else (octets,)
            is_sent = self._send_once(pieces, stride, ancillary, destination)
        if is_sent:
            self.counters.injected_losses += len(lost)
        else:
            outgoing.give_back(packets, lost)
        return is_sent

    def _send_once(
        self, pieces: Sequence[_Piece], stride: int, ancillary: Sequence[Ancillary], destination: _SocketName | None
    ) -> bool | None:
        """Send pieces of memory as one. True: sent or counted as error; False: segmenting refused; None: busy."""
        try:
            if destination is None:
                self.to_group.send(pieces, stride)  # type: ignore[union-attr]
            elif ancillary or len(pieces) > 1:
                self._sendmsg(pieces, ancillary, _DONTWAIT, destination)  # type: ignore[arg-type]
            else:
                self._sendto(pieces[0], _DONTWAIT, destination)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno in BUSY:
                return None
            octets = sum(map(len, pieces))
            if octets > stride and error.errno in _NO_GSO:
                return False
            self.counters.send_errors += max(1, -(-octets // stride))
        return True

    def _ancillary(self, packet: memoryview, to: Nla | None, hops: int | None) -> list[Ancillary]:
        """Return a packet's control messages: its own hop limit, and router alert over IP itself."""
        ancillary: list[Ancillary] = []
        if hops is not None and to is None:
            ancillary.append(self._hop_limit(hops))
        if self._is_raw and wants_router_alert(packet, is_unicast=to is not None):
            ancillary.append(ROUTER_ALERT[self.sockets.family])
        return ancillary

    def _hop_limit(self, hops: int) -> Ancillary:
        if self.sockets.family == socket.AF_INET6:
            return socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT, _INT.pack(hops)
        return socket.IPPROTO_IP, socket.IP_TTL, _INT.pack(hops)


def _parts_between(octets: _Piece, stride: int, lost: Iterable[int]) -> list[_Piece]:
    parts: list[_Piece] = []
    begin = 0
    for place in lost:
        parts.append(octets[begin : place * stride])
        begin = (place + 1) * stride
    parts.append(octets[begin:])
    return parts
