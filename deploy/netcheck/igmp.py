"""IGMP on this host: the version of each interface, and the queriers that were heard."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import attrs
import trio

from deploy.doctor import readings
from pgm.net.sockets.interfaces import Interface

_TYPE_QUERY = 0x11
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("@i4s4s")
_MOST_INTERFACES = 256
_BUFFER = 4096  # octets for control messages and for a query


@attrs.define
class QuerierWatch:
    """Queriers heard since the agent began. A general query comes every 125 s (RFC 3376, 8.2), so a short look misses it.

    A raw socket needs CAP_NET_RAW. Without that `problem` tells the reason, and nothing is known of queriers.
    """

    problem: str = ""
    _began_s: float = attrs.field(factory=time.monotonic)
    _heard: dict[int, tuple[float, str]] = attrs.field(factory=dict)  # interface -> time, address

    async def run(self) -> None:
        """Hear queries until cancelled, or return if this process may not."""
        try:
            sock = trio.socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
        except OSError as error:
            self.problem = f"no raw socket: {error.strerror}"
            return
        with sock:
            sock.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            while True:
                sender: Any
                try:
                    octets, control, _, sender = await sock.recvmsg(_BUFFER, _BUFFER)
                except OSError:  # an interface went down
                    continue
                self.on_packet_untrusted(octets, control, str(sender[0]))

    def on_packet_untrusted(self, octets: bytes, control: Sequence[tuple[int, int, bytes]], sender: str) -> None:
        """Note the querier of a query, by the interface that took the packet. Other packets are ignored."""
        at = (octets[0] & 0x0F) * 4 if octets else 0  # behind the IP header
        if len(octets) <= at or octets[at] != _TYPE_QUERY:
            return
        for level, kind, value in control:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO) and len(value) >= _PKTINFO.size:
                index = _PKTINFO.unpack_from(value)[0]
                if index in self._heard or len(self._heard) < _MOST_INTERFACES:
                    self._heard[index] = time.monotonic(), sender

    def facts_of(self, interface: Interface) -> dict[str, Any]:
        """Return the IGMP facts of an interface as plain values for JSON."""
        heard = self._heard.get(interface.index)
        return {
            "igmp": readings.igmp_version_of(interface.name) or 0,
            "igmp_forced": readings.interface_sysctl(interface.name, "force_igmp_version"),
            "querier": "" if heard is None else heard[1],
            "querier_age_s": 0.0 if heard is None else round(time.monotonic() - heard[0], 1),
            "querier_problem": self.problem,
            "listening_s": round(time.monotonic() - self._began_s, 1),
        }
