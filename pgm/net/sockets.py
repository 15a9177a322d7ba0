"""Opening the sockets of a segment.

Per (node, segment) there are two. The group's socket is bound to (group, port), shares the port with others on the
host, and takes only the membership it joined itself. The node's own socket is bound to (address,
unicast port) exclusively and sends everything: its address is the node's identity, and a second process
gets EADDRINUSE instead of stealing NAKs.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct

import attrs

from pgm.errors import TransportError
from pgm.net.interfaces import Interface, find_interface
from pgm.parameters import Parameters
from pgm.topology.node_plan import SegmentPlan

# Linux constants that the standard library does not name.
SOL_UDP = 17
UDP_SEGMENT = 103
UDP_GRO = 104
IP_MULTICAST_ALL = 49
IPV6_MULTICAST_ALL = 29
SO_RXQ_OVFL = 40
SO_RCVBUFFORCE = 33
SO_SNDBUFFORCE = 32

_MREQN = struct.Struct("@4s4si")
_MREQ6 = struct.Struct("@16sI")


@attrs.frozen
class Buffers:
    """Socket buffer sizes in octets: asked for, and granted by the kernel."""

    asked_rcvbuf: int
    rcvbuf: int
    asked_sndbuf: int
    sndbuf: int

    @property
    def complaint(self) -> str:
        """A sentence with the remedy if the kernel granted less, else empty."""
        if self.rcvbuf >= self.asked_rcvbuf:
            return ""
        return (
            f"the kernel grants a receive buffer of {self.rcvbuf} octets, {self.asked_rcvbuf} were asked for; "
            f"more: sysctl -w net.core.rmem_max={self.asked_rcvbuf}"
        )


@attrs.define
class SegmentSockets:
    """The two sockets of a segment."""

    interface: Interface
    family: socket.AddressFamily
    group: socket.socket
    own: socket.socket
    gso: bool
    gro: bool
    buffers: Buffers

    def close(self) -> None:
        """Close both."""
        self.group.close()
        self.own.close()


def open_sockets(plan: SegmentPlan, parameters: Parameters) -> SegmentSockets:
    """Open, bind and join. Raises `TransportError` with the remedy; leaves nothing open then."""
    is_v6 = ":" in plan.group
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    interface = find_interface(plan.interface, 6 if is_v6 else 4, plan.address)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(_own_socket(plan, interface, family, parameters))
        group = stack.enter_context(_group_socket(plan, interface, family))
        gro = parameters.gro and all(_try_option(one, SOL_UDP, UDP_GRO, 1) for one in (own, group))
        gso = parameters.gso and _try_option(own, SOL_UDP, UDP_SEGMENT, 0)
        buffers = _size_buffers(own, group, parameters)
        for one in (own, group):
            _try_option(one, socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
            one.setblocking(False)
        stack.pop_all()
    return SegmentSockets(interface, family, group, own, gso, gro, buffers)


def _own_socket(
    plan: SegmentPlan, interface: Interface, family: socket.AddressFamily, parameters: Parameters
) -> socket.socket:
    # A receiver that nobody addresses takes any free port; several such may share an address.
    port = plan.unicast_port if plan.address is not None or plan.downstream else 0
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.bind(_address(interface.address, port, interface, family))
        _choose_interface(sock, interface, family, parameters.multicast_hops)
        _require_route(plan, interface, family)
    except OSError as error:
        sock.close()
        raise _explain(error, plan, interface, port) from error
    except TransportError:
        sock.close()
        raise
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


def _require_route(plan: SegmentPlan, interface: Interface, family: socket.AddressFamily) -> None:
    """Ask the kernel for a route to the group the way sending will, so that a missing one shows now."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        _choose_interface(probe, interface, family, 1)
        probe.connect(_address(plan.group, plan.port, interface, family))


def _group_socket(plan: SegmentPlan, interface: Interface, family: socket.AddressFamily) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            _try_option(sock, socket.IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0)
            sock.bind(_address(plan.group, plan.port, interface, family))
            request = _MREQ6.pack(socket.inet_pton(family, plan.group), interface.index)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        else:
            _try_option(sock, socket.IPPROTO_IP, IP_MULTICAST_ALL, 0)
            sock.bind((plan.group, plan.port))
            request = _MREQN.pack(socket.inet_aton(plan.group), bytes(4), interface.index)
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
    except OSError as error:
        sock.close()
        raise _explain(error, plan, interface, plan.port) from error
    return sock


def _address(host: str, port: int, interface: Interface, family: socket.AddressFamily) -> tuple[str | int, ...]:
    if family != socket.AF_INET6:
        return host, port
    needs_scope = host.lower().startswith(("fe80:", "ff01:", "ff02:", "ff11:", "ff12:"))
    return host, port, 0, interface.index if needs_scope else 0


def _try_option(sock: socket.socket, level: int, option: int, value: int) -> bool:
    try:
        sock.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _size_buffers(own: socket.socket, group: socket.socket, parameters: Parameters) -> Buffers:
    """Ask for the buffers and read back what was granted. The kernel doubles what it grants for its own use."""
    for sock in (own, group):
        if not _try_option(sock, socket.SOL_SOCKET, SO_RCVBUFFORCE, parameters.so_rcvbuf):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, parameters.so_rcvbuf)
    if not _try_option(own, socket.SOL_SOCKET, SO_SNDBUFFORCE, parameters.so_sndbuf):
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, parameters.so_sndbuf)
    rcvbuf = group.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    sndbuf = own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2
    return Buffers(parameters.so_rcvbuf, rcvbuf, parameters.so_sndbuf, sndbuf)


def _explain(error: OSError, plan: SegmentPlan, interface: Interface, port: int) -> TransportError:
    where = f"segment {plan.name} ({interface.name})"
    if error.errno == errno.EADDRINUSE:
        return TransportError(
            f"{where}: {interface.address} port {port} is in use by another process",
            remedy=f"find it with: ss -lunp 'sport = :{port}'; or give this node an address of its own",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return TransportError(
            f"{where}: {interface.address} is not an address of this host",
            remedy=f"correct the address, or: ip address add {interface.address} dev {interface.name}",
        )
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENODEV):
        return TransportError(
            f"{where}: no route to group {plan.group}: {error.strerror}",
            remedy=f"ip link set {interface.name} up; ip route add 224.0.0.0/4 dev {interface.name}",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return TransportError(
            f"{where}: {interface.address} port {port}: {error.strerror}",
            remedy="use a port above 1023, and allow the traffic in the firewall",
        )
    return TransportError(f"{where}: {error.strerror} ({errno.errorcode.get(error.errno or 0, '?')})")
