"""Checks of nodes' segments and of the interfaces below them. The checks open each node's sockets as the node would."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence

import attrs

from deploy.doctor import readings
from deploy.doctor.findings import HostFinding, advice, fault, judged, ok
from pgm.errors import ProcessError, TransportError
from pgm.net.control.status_socket import ask_status, status_path
from pgm.net.sockets.interfaces import Interface, find_interface, is_own_address
from pgm.net.sockets.open import SegmentSockets, open_sockets
from pgm.topology.node_plan import NodePlan, Role, SegmentPlan
from pgm.units import format_rate

# octets of the headers below PGM's, with IP options
OVERHEAD = {(4, "udp"): 28, (6, "udp"): 48, (4, "ip"): 24, (6, "ip"): 48}
_STRICT = 1  # rp_filter
_ANY_PORT = 9  # of an address whose route is asked; nothing is sent
_IGMP_2 = 2
_IGMP_2_CLOUDS = {"Amazon EC2": "AWS", "Google": "Google Cloud"}  # by the vendor that the machine names
_BUSY_SHARE = 0.8  # share of a link's speed, above which repairs and other traffic have too little room


@attrs.frozen
class SegmentUse:
    """Use of one segment by all nodes of the tree. `packet` is in octets, and `rate` in octets a second."""

    packet: int
    rate: int
    addresses: tuple[str, ...]


def uses_of(plans: Mapping[str, NodePlan]) -> dict[str, SegmentUse]:
    """Return the use of each segment by all nodes, on any machine."""
    packets: dict[str, int] = {}
    for plan in plans.values():
        if plan.role is Role.SOURCE:
            for stream in plan.streams:
                octets = plan.parameters_of(stream).max_tpdu
                packets[stream.name] = max(packets.get(stream.name, 0), octets)
    uses: dict[str, SegmentUse] = {}
    for plan in plans.values():
        packet = max((packets.get(stream.name, 0) for stream in plan.streams), default=0)
        for segment in plan.segments:
            known = uses.get(segment.name, SegmentUse(0, 0, ()))
            own = () if segment.address is None else (segment.address,)
            uses[segment.name] = SegmentUse(
                max(known.packet, packet), max(known.rate, plan.parameters.txw_max_rte), (*known.addresses, *own)
            )
    return uses


def runs_here(plan: NodePlan) -> bool:
    """Return whether this machine has the node's addresses. For a node without addresses, its interface decides."""
    addresses = [segment.address for segment in plan.segments if segment.address is not None]
    if addresses:
        return all(map(is_own_address, addresses))
    return has_interface(plan.segments[0])


def has_interface(segment: SegmentPlan) -> bool:
    """Return whether this machine has a usable interface for a segment."""
    try:
        _interface_of(segment)
    except TransportError:
        return False
    return True


def check_nodes(plans: Sequence[NodePlan], uses: Mapping[str, SegmentUse]) -> Iterator[HostFinding]:
    """Open the sockets of every node and check the interfaces."""
    seen: dict[tuple[str, str], SegmentPlan] = {}
    for plan in plans:
        for segment_plan in plan.segments:
            try:
                interface = _interface_of(segment_plan)
            except TransportError as error:
                subject = f"{plan.name} on {segment_plan.name}"
                yield fault("interface", subject, error.message, segment_plan.interface, error.remedy)
                continue
            yield from _check_sockets(plan, segment_plan, interface)
            seen.setdefault((interface.name, segment_plan.name), segment_plan)
    for (name, segment), segment_plan in seen.items():
        yield from _interface(name, _interface_of(segment_plan), segment_plan, uses[segment])


def check_interfaces(names: Sequence[str]) -> Iterator[HostFinding]:
    """Check interfaces without a topology."""
    for name in names:
        yield ok("interface", name, f"up, MTU {readings.mtu_of(name)}")
        yield from _card(name)


def _interface_of(plan: SegmentPlan) -> Interface:
    family = 6 if ":" in plan.group else 4
    return find_interface(plan.interface, family, plan.address, is_unicast=plan.peers is not None)


def _check_sockets(plan: NodePlan, segment: SegmentPlan, interface: Interface) -> Iterator[HostFinding]:
    subject = f"{plan.name} on {segment.name}"
    try:
        sockets = open_sockets(segment, plan.parameters, may_share=plan.may_share_address)
    except TransportError as error:
        yield _socket_finding(plan, segment, error)
        return
    try:
        found = f"{interface.name}: {segment.where}"
        owners = [shared.owner_pid for shared in sockets.shared if not shared.was_first]
        if owners:
            found = _running(plan) or f"{found}, shared with process {owners[0]}"
        yield ok("sockets", subject, found)
        yield from _offload(plan, segment, sockets)
    finally:
        sockets.close()


def _socket_finding(plan: NodePlan, segment: SegmentPlan, error: TransportError) -> HostFinding:
    cause, subject = error.__cause__, f"{plan.name} on {segment.name}"
    if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
        running = _running(plan)
        if not running:
            return fault("sockets", subject, error.message, "free for this node", error.remedy)
        return ok("sockets", subject, running)
    return fault("sockets", subject, error.message, segment.where, error.remedy)


def _running(plan: NodePlan) -> str:
    """Return the process in which the node runs, in words; empty if it does not run."""
    try:
        return f"the node runs already, as process {ask_status(status_path(plan.topology, plan.name))['pid']}"
    except ProcessError:
        return ""


def _offload(plan: NodePlan, segment: SegmentPlan, sockets: SegmentSockets) -> Iterator[HostFinding]:
    if segment.transport == "ip":
        return
    for name, has, wanted in (("GSO", sockets.gso, plan.parameters.gso), ("GRO", sockets.gro, plan.parameters.gro)):
        if has:
            yield ok(name, "UDP", "the kernel supports it")
        elif wanted:
            remedy = "use Linux 4.18 or later for GSO, 5.0 or later for GRO; without them every packet is a system call"
            yield advice(name, "UDP", "the kernel does not support it", "trains in one call", remedy)


def _interface(name: str, interface: Interface, segment: SegmentPlan, use: SegmentUse) -> Iterator[HostFinding]:
    subject = f"{segment.name} by {name}"
    version = 6 if ":" in interface.address else 4
    mtu = readings.mtu_of(name)
    wanted = use.packet + OVERHEAD[version, segment.transport]
    if mtu is not None:
        found, text = f"{mtu}", f"{wanted}, for packets of {use.packet} octets"
        remedy = f'ip link set {name} mtu {wanted}, on all hosts of the segment; or max_tpdu = "{mtu - wanted + use.packet}B" in the file'
        yield judged("MTU", subject, mtu >= wanted, found, text, remedy, otherwise=fault)
    speed = readings.speed_of(name)
    if speed is not None:
        found, text = format_rate(speed), f"{format_rate(use.rate)} of the streams"
        remedy = "a faster link, or a lower rate of the streams"
        if use.rate > speed:
            yield fault("speed", subject, found, text, remedy)
        elif use.rate > _BUSY_SHARE * speed:
            yield advice("speed", subject, found, f"{text}, and room for other traffic", remedy)
        else:
            yield ok("speed", subject, found, text)
    if version == 4 and segment.peers is None:
        yield from _reverse_path(name, interface, segment, use)
        if not ipaddress.ip_address(interface.address).is_loopback:
            yield from _igmp(name)
    if segment.peers is None:
        yield from _bridge(name)
    yield from _card(name)


def _reverse_path(name: str, interface: Interface, segment: SegmentPlan, use: SegmentUse) -> Iterator[HostFinding]:
    mode = readings.interface_sysctl(name, "rp_filter")
    network = ipaddress.ip_network(interface.network) if interface.network is not None else None
    strange = [
        own
        for own in use.addresses
        if network is not None and ipaddress.ip_address(own) not in network and not _is_routed_by(own, interface)
    ]
    found, subject = f"rp_filter {mode}", f"{segment.name} by {name}"
    if mode == _STRICT and strange:
        setting = readings.interface_setting(name, "rp_filter")
        remedy = f"sysctl -w {setting}=2, or a route to the senders by {name}"
        found += f": packets from {strange[0]} may be dropped"
        yield fault("reverse path", subject, found, "2, or senders in the interface's own network", remedy)
    else:
        yield ok("reverse path", subject, found)


def _is_routed_by(address: str, interface: Interface) -> bool:
    """Return whether this host's route to a sender leaves by an interface, as a strict filter requires."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, _ANY_PORT))
            return find_interface(probe.getsockname()[0], 4, None, is_unicast=True).index == interface.index
        except (OSError, TransportError):
            return False


def igmp_version(name: str, used: int, forced: int, vendor: str) -> HostFinding:
    """Compare the version of IGMP on an interface with that of the cloud that the vendor of the machine tells."""
    found = f"version {used}, {'forced' if forced else 'as queriers ask'}"
    cloud = next((cloud for start, cloud in _IGMP_2_CLOUDS.items() if vendor.startswith(start)), "")
    if not cloud or forced == _IGMP_2:
        return ok("IGMP version", name, found)
    setting = readings.interface_setting(name, "force_igmp_version")
    remedy = f"sysctl -w {setting}=2, before the node starts"
    return advice("IGMP version", name, found, f"2, forced: multicast of {cloud} knows no other", remedy)


def _igmp(name: str) -> Iterator[HostFinding]:
    used = readings.igmp_version_of(name)
    if used is not None:
        forced = readings.interface_sysctl(name, "force_igmp_version")
        yield igmp_version(name, used, forced, readings.vendor())


def _bridge(name: str) -> Iterator[HostFinding]:
    folder = readings.bridge_of(name)
    if folder is None:
        return
    snoops, asks = readings.read(folder / "multicast_snooping"), readings.read(folder / "multicast_querier")
    bridge = folder.resolve().parent.name
    if snoops == "1" and asks == "0":
        remedy = f"ip link set {bridge} type bridge mcast_querier 1, unless the network has another querier; or mcast_snooping 0"
        found = f"bridge {bridge} snoops without a querier"
        yield advice("IGMP snooping", name, found, "a querier on every network", remedy)
    else:
        yield ok("IGMP snooping", name, f"bridge {bridge}: snooping {snoops}, querier {asks}")


def card_offloads(name: str, offloads: Mapping[str, bool]) -> Iterator[HostFinding]:
    """Judge the offloads of a card. Virtual interfaces pass trains on in one piece without them."""
    if offloads:
        found = ", ".join(f"{one} {'on' if is_on else 'off'}" for one, is_on in offloads.items())
        off = " ".join(f"{one} on" for one, is_on in offloads.items() if not is_on)
        yield judged("card offloads", name, not off, found, "gso and gro on", f"ethtool -K {name} {off}")


def _card(name: str) -> Iterator[HostFinding]:
    pause = readings.pause_of(name)
    if pause is not None:
        found = f"obeyed: {'yes' if pause[0] else 'no'}, sent: {'yes' if pause[1] else 'no'}"
        remedy = f"ethtool -A {name} rx off tx off, here and at the switch; one slow host would stop all hosts"
        yield advice("pause frames", name, found, "none", remedy) if any(pause) else ok("pause frames", name, found)
    if readings.is_card(name):
        yield from card_offloads(name, readings.offloads_of(name))
    ring = readings.ring_of(name)
    if ring is not None:
        found, text = f"{ring[0]} packets", f"{ring[1]}, the largest"
        remedy = f"ethtool -G {name} rx {ring[1]}"
        yield (
            ok("receive ring", name, found) if ring[0] >= ring[1] else advice("receive ring", name, found, text, remedy)
        )
