"""Opening the sockets of a segment.

A node has two sockets on each segment; on a unicast leg it has only the second. The group socket is bound to (group,
port). It shares the port with other processes on the host, and receives only the membership that it joined itself. The
node's own socket is bound to (address, unicast port). Sources and receivers of one user share it between processes, and
each process gets its packets: see `pgm.net.sockets.shared_address`. For all others it is exclusive: a second process
gets EADDRINUSE and cannot steal NAKs. IP protocol 113 has no ports: see `pgm.net.sockets.raw_ip`.

A node with nodes below it has a third socket of the same address and port, connected to the group. That socket sends
all multicast without a hop limit of its own (`pgm.net.link.group_sender`). All other packets leave by the node's own
socket. The kernel still looks up the route for each packet, so processes that join the group on this host later receive
it.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Sequence

import attrs

from pgm.errors import TransportError
from pgm.net.sockets.holder import find_holder
from pgm.net.sockets.inputs import Input
from pgm.net.sockets.interfaces import Interface, find_interface, needs_scope
from pgm.net.sockets.raw_ip import claim, open_raw
from pgm.net.sockets.shared_address import SharedAddress, open_shared
from pgm.parameters import Parameters
from pgm.topology.node_plan import SegmentPlan

# Linux constants that the standard library does not name.
SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
IP_MULTICAST_ALL = 49
IPV6_MULTICAST_ALL = 29
SO_RXQ_OVFL = 40
SO_MEMINFO = 55
SO_RCVBUFFORCE = 33
MCAST_BLOCK_SOURCE = 43
MCAST_UNBLOCK_SOURCE = 44
SO_SNDBUFFORCE = 32
_ECN_BITS = 2  # below DSCP, in the traffic class octet

_MREQN = struct.Struct("@4s4si")
_MREQ6 = struct.Struct("@16sI")
_GROUP_SOURCE = struct.Struct("@I4x128s128s")  # interface, group and source, each in a sockaddr_storage


@attrs.frozen
class BufferSizes:
    """Socket buffer sizes in octets: the requested receive buffer, and both granted by the kernel."""

    asked_rcvbuf: int
    rcvbuf: int
    sndbuf: int

    @property
    def complaint(self) -> str:
        """Return a sentence with the remedy if the kernel granted less; else an empty string."""
        if self.rcvbuf >= self.asked_rcvbuf:
            return ""
        return (
            f"the kernel grants a receive buffer of {self.rcvbuf} octets instead of {self.asked_rcvbuf}; "
            f"to allow more: sysctl -w net.core.rmem_max={self.asked_rcvbuf}"
        )


@attrs.define
class SegmentSockets:
    """Sockets of a segment; a unicast leg has no group socket."""

    interface: Interface
    family: socket.AddressFamily
    group: socket.socket | None
    own: socket.socket
    gso: bool
    gro: bool
    buffers: BufferSizes
    # For a node that sends data: connected to the group, and without input, because no packet has the group as its
    # sender.
    to_group: socket.socket | None
    claim: socket.socket | None = None  # of the address, if the transport has no ports
    # Sockets of an address that other processes may share: the own socket, and perhaps one on the group's port. A source
    # with another `unicast_port` needs the second one, because its receivers may not know that port.
    shared: tuple[SharedAddress, ...] = ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Return the inputs to read, the group first. A process that joins others reads their socket by `shared`."""
        inputs: list[Input] = [] if self.group is None else [self.group]
        for shared in self.shared:
            inputs += [shared.own, shared] if shared.was_first else [shared]
        return tuple(inputs) if self.shared else (*inputs, self.own)

    def close(self) -> None:
        """Close all sockets."""
        for shared in self.shared:
            shared.close()
            shared.own.close()
        for sock in (self.group, self.own, self.to_group, self.claim):
            if sock is not None:
                sock.close()


@attrs.frozen
class _SocketSpec:
    """Facts needed to open the sockets of a segment."""

    plan: SegmentPlan
    interface: Interface
    family: socket.AddressFamily
    may_share: bool = False  # for sources and receivers

    @property
    def is_shared(self) -> bool:
        """Return whether other processes may have the address and port of the own socket.

        On a unicast leg the socket carries all data, which one process would have to forward.
        """
        return self.may_share and not self.is_raw and self.plan.peers is None and self.own_port > 0

    @property
    def place(self) -> str:
        """Return address and port of the own socket, as one text."""
        address = self.interface.address
        scope = f"%{self.interface.index}" if needs_scope(address) else ""
        return f"{address}{scope}/{self.own_port}"

    @property
    def is_raw(self) -> bool:
        return self.plan.transport == "ip"

    @property
    def own_port(self) -> int:
        """Return the port of the node's own socket; 0 for any free port.

        A receiver that no node addresses takes any free port, so several such receivers may share an address.
        """
        is_addressed = self.plan.address is not None or self.plan.downstream
        return self.plan.unicast_port if is_addressed and not self.is_raw else 0

    @property
    def ignores_own_address(self) -> bool:
        """Return whether this node needs no multicast from its own address.

        Other processes may share that address. The result is true for a source. It is true for a relay, too: other
        nodes on its host may be below it, and ask it by unicast. A receiver, and an element on the LAN of its source,
        must hear a source that has the same address.
        """
        return self.plan.downstream and not self.plan.upstream

    @property
    def group_port(self) -> int:
        return 0 if self.is_raw else self.plan.port

    def socket(self) -> socket.socket:
        """Return a new socket of the segment's transport."""
        if self.is_raw:
            return open_raw(self.family, self.plan.name)
        return socket.socket(self.family, socket.SOCK_DGRAM)

    def name(self, host: str, port: int) -> tuple[str | int, ...]:
        return socket_name(host, port, self.interface, self.family)


def socket_name(host: str, port: int, interface: Interface, family: socket.AddressFamily) -> tuple[str | int, ...]:
    """Return an address in the form that `bind` and `sendmsg` take."""
    if family != socket.AF_INET6:
        return host, port
    return host, port, 0, interface.index if needs_scope(host) else 0


def open_sockets(plan: SegmentPlan, parameters: Parameters, *, may_share: bool = False) -> SegmentSockets:
    """Open, bind and join the sockets of a segment. Raises `TransportError`, and leaves nothing open then.

    With `may_share` other processes of this user may have the address and port as well.
    """
    is_v6 = ":" in plan.group
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    interface = find_interface(plan.interface, 6 if is_v6 else 4, plan.address, is_unicast=plan.peers is not None)
    spec = _SocketSpec(plan, interface, family, may_share)
    with contextlib.ExitStack() as stack:
        shared = [_open_shared(each, parameters, stack) for each in _shared_specs(spec)]
        own = shared[0].own if shared else stack.enter_context(_own_socket(spec, parameters))
        # The process that binds a socket sets its options.
        bound = [one.own for one in shared if one.was_first] if shared else [own]
        claimed = stack.enter_context(claim(interface, plan.name)) if spec.is_raw else None
        group = stack.enter_context(_group_socket(spec)) if plan.peers is None else None
        inputs = bound if group is None else [group, *bound]
        gro = parameters.gro and not spec.is_raw and all(_try_option(sock, SOL_UDP, UDP_GRO, 1) for sock in inputs)
        gso = parameters.gso and not spec.is_raw and _try_option(own, SOL_UDP, UDP_SEGMENT, 0)
        connects = plan.downstream and plan.peers is None and not spec.is_raw
        to_group = stack.enter_context(_connected_socket(spec, own, parameters)) if connects else None
        buffers = _size_buffers(own, inputs, parameters, is_first=own in bound)
        if to_group is not None:
            _size_sndbuf(to_group, parameters)
        for sock in inputs:
            _try_option(sock, socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
            sock.setblocking(False)
        own.setblocking(False)
        stack.pop_all()
    return SegmentSockets(interface, family, group, own, gso, gro, buffers, to_group, claimed, tuple(shared))


def _shared_specs(spec: _SocketSpec) -> list[_SocketSpec]:
    """Return the own socket to share, and one on the group's port if nodes may ask there.

    The list is empty if the socket is exclusive.
    """
    if not spec.is_shared:
        return []
    asks_there = spec.plan.hears_group_port and spec.group_port != spec.own_port
    by_group = attrs.evolve(spec, plan=attrs.evolve(spec.plan, unicast_port=spec.group_port))
    return [spec, by_group] if asks_there else [spec]


def _open_shared(spec: _SocketSpec, parameters: Parameters, stack: contextlib.ExitStack) -> SharedAddress:
    try:
        shared = open_shared(spec.place, lambda: _own_socket(spec, parameters))
    except OSError as error:
        raise _explain(error, spec, spec.own_port) from error
    stack.enter_context(shared.own)
    stack.callback(shared.close)
    shared.own.setblocking(False)
    return shared


def _own_socket(spec: _SocketSpec, parameters: Parameters) -> socket.socket:
    sock = spec.socket()
    try:
        if spec.is_raw and spec.family == socket.AF_INET6:
            # A raw IPv6 socket would receive every group on the host, regardless of its bound address.
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
        sock.bind(spec.name(spec.interface.address, spec.own_port))
        if spec.plan.peers is None:
            _choose_interface(sock, spec.interface, spec.family, parameters.multicast_hops)
        if parameters.dscp:
            _mark(sock, spec.family, parameters.dscp)
        _require_route(spec)
    except OSError as error:
        sock.close()
        raise _explain(error, spec, spec.own_port) from error
    except TransportError:
        sock.close()
        raise
    return sock


def _connected_socket(spec: _SocketSpec, own: socket.socket, parameters: Parameters) -> socket.socket:
    """Return a socket that sends to the group from the own socket's address.

    The port is open to sockets of this user only, and to others than this process only if the address is shared.
    """
    sock = spec.socket()
    try:
        for either in (own, sock):
            either.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(own.getsockname())
        if not spec.is_shared:
            for either in (own, sock):
                either.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
        _choose_interface(sock, spec.interface, spec.family, parameters.multicast_hops)
        if parameters.dscp:
            _mark(sock, spec.family, parameters.dscp)
        sock.connect(spec.name(spec.plan.group, spec.plan.port))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _explain(error, spec, spec.own_port) from error
    return sock


def _choose_interface(sock: socket.socket, interface: Interface, family: socket.AddressFamily, hops: int) -> None:
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, interface.index)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 1)
        return
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, _MREQN.pack(bytes(4), bytes(4), interface.index))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)


def _mark(sock: socket.socket, family: socket.AddressFamily, dscp: int) -> None:
    """Set the traffic class of sent packets. DSCP is the upper six bits; the lower two belong to the network (ECN)."""
    level, option = (
        (socket.IPPROTO_IPV6, socket.IPV6_TCLASS) if family == socket.AF_INET6 else (socket.IPPROTO_IP, socket.IP_TOS)
    )
    sock.setsockopt(level, option, dscp << _ECN_BITS)


def _require_route(spec: _SocketSpec) -> None:
    """Check that the kernel has a route to the group or the peers. A missing one raises OSError now."""
    plan = spec.plan
    for host in (plan.group,) if plan.peers is None else plan.peers:
        with socket.socket(spec.family, socket.SOCK_DGRAM) as probe:
            if plan.peers is None:
                _choose_interface(probe, spec.interface, spec.family, 1)
            else:
                probe.bind(spec.name(spec.interface.address, 0))
            probe.connect(spec.name(host, plan.port))


def _group_socket(spec: _SocketSpec) -> socket.socket:
    plan, interface = spec.plan, spec.interface
    sock = spec.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if spec.family == socket.AF_INET6:
            _try_option(sock, socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
            # Unlike for IPv4, the kernel ignores on which interface the group was joined.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.name.encode())
            sock.bind(spec.name(plan.group, spec.group_port))
            request = _MREQ6.pack(socket.inet_pton(spec.family, plan.group), interface.index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        else:
            _try_option(sock, socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            sock.bind(spec.name(plan.group, spec.group_port))
            request = _MREQN.pack(socket.inet_aton(plan.group), bytes(4), interface.index)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        if spec.ignores_own_address:
            block_echo(sock, interface, plan.group)
    except OSError as error:
        sock.close()
        raise _explain(error, spec, plan.port) from error
    return sock


def block_echo(sock: socket.socket, interface: Interface, group: str, *, is_blocked: bool = True) -> None:
    """Let the kernel drop this node's own multicast, or pass it again. If the kernel cannot, `Link` ignores it."""
    request = _GROUP_SOURCE.pack(interface.index, _sockaddr(group), _sockaddr(interface.address))
    with contextlib.suppress(OSError):
        level = socket.IPPROTO_IPV6 if ":" in group else socket.IPPROTO_IP
        sock.setsockopt(level, MCAST_BLOCK_SOURCE if is_blocked else MCAST_UNBLOCK_SOURCE, request)


def _sockaddr(host: str) -> bytes:
    """Return an address without a port in the form of the kernel's socket options."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return (
        struct.pack("@HH", family, 0)
        + (bytes(4) if family == socket.AF_INET6 else b"")
        + socket.inet_pton(family, host)
    )


def _try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _size_buffers(
    own: socket.socket, inputs: Sequence[socket.socket], parameters: Parameters, *, is_first: bool
) -> BufferSizes:
    """Request buffer sizes, and read the granted sizes. The kernel doubles each size for its own use."""
    for sock in inputs:
        if not _try_option(sock, socket.SOL_SOCKET, SO_RCVBUFFORCE, parameters.so_rcvbuf):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, parameters.so_rcvbuf)
    if is_first:
        _size_sndbuf(own, parameters)
    rcvbuf = inputs[0].getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    sndbuf = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
    return BufferSizes(parameters.so_rcvbuf, rcvbuf, sndbuf)


def _size_sndbuf(sock: socket.socket, parameters: Parameters) -> None:
    if not _try_option(sock, socket.SOL_SOCKET, SO_SNDBUFFORCE, parameters.so_sndbuf):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, parameters.so_sndbuf)


def _explain(error: OSError, spec: _SocketSpec, port: int) -> TransportError:
    plan, interface = spec.plan, spec.interface
    where = f"segment {plan.name} ({interface.name})"
    is_v6 = spec.family == socket.AF_INET6
    if error.errno == errno.EADDRINUSE:
        holder = find_holder(interface.address, port)
        stop = f"stop that process: kill {holder.pid}" if holder else f"find it with: ss -lunp 'sport = :{port}'"
        return TransportError(
            f"{where}: {interface.address} port {port} is in use by {holder.text if holder else 'another process'}",
            remedy=f"{stop}; or give this node an address of its own",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        dad_hint = ", and wait until duplicate address detection has finished" if is_v6 else ""
        return TransportError(
            f"{where}: {interface.address} is not an address of this host",
            remedy=f"correct the address, or: ip address add {interface.address} dev {interface.name}{dad_hint}",
        )
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENODEV):
        if plan.peers is not None:
            return TransportError(
                f"{where}: no route from {interface.address} to all of {', '.join(plan.peers)}: {error.strerror}",
                remedy="ip route add ..., on both ends of the unicast leg",
            )
        groups = "-6 route add multicast ff00::/8 table local" if is_v6 else "route add 224.0.0.0/4"
        return TransportError(
            f"{where}: no route to group {plan.group}: {error.strerror}",
            remedy=f"ip link set {interface.name} up; ip {groups} dev {interface.name}",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return TransportError(
            f"{where}: {interface.address} port {port}: {error.strerror}",
            remedy="use a port above 1023, and allow the traffic in the firewall",
        )
    return TransportError(f"{where}: {error.strerror} ({errno.errorcode.get(error.errno or 0, '?')})")
