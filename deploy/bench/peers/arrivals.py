"""Plain socket that records the arrivals of trains by the kernel's timestamps, from which the longest burst follows."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

from deploy.bench.peers.control import Control, run_end
from deploy.bench.peers.messages import NUMBER_OCTETS, PROBE
from deploy.bench.peers.ours.common import source_parameters
from deploy.bench.peers.raw import listening_socket
from pgm.net.sockets.open import SOL_UDP, UDP_GRO
from pgm.wire.formats import DATA_HEADER_OCTETS

_READ_OCTETS = 65_536
_WAIT_S = 0.02
_LOOK_READS = 256  # between two checks for commands while packets arrive
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY_OCTETS = 256
_NUMBER = slice(DATA_HEADER_OCTETS, DATA_HEADER_OCTETS + NUMBER_OCTETS)
_IS_PROBE = PROBE.to_bytes(NUMBER_OCTETS, "big")


class ArrivalLog:
    """Arrivals, and the highest level of a token bucket that drains at `rate`. `rate` is in octets a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self.octets = self.later_octets = 0  # all octets, and the octets after the first train
        self.first_ns = self.last_ns = self.burst_ns = 0
        self._empty_at_ns = 0

    def add(self, octets: int, now_ns: int) -> None:
        """Record a train."""
        if self.octets:
            self.later_octets += octets
        else:
            self.first_ns = now_ns
        self.octets += octets
        self.last_ns = now_ns
        self._empty_at_ns = max(self._empty_at_ns, now_ns) + octets * 10**9 // self._rate
        self.burst_ns = max(self.burst_ns, self._empty_at_ns - now_ns)


def recv(control: Control, job: Mapping[str, Any]) -> None:
    """Record arrivals until all messages are complete, or until `quiet_s` of silence."""
    sock = listening_socket(job, "receiver", 0)
    sock.setsockopt(SOL_UDP, UDP_GRO, 1)
    sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    sock.settimeout(_WAIT_S)
    packet = job["size"] + DATA_HEADER_OCTETS
    arrivals = ArrivalLog(source_parameters(job)["txw_max_rte"])
    buffer = bytearray(_READ_OCTETS)
    expected, quiet_s, reads, messages, hears = None, 0.0, 0, 0, False
    control.say("ready")
    while not control.is_over and quiet_s < job["quiet_s"] and (expected is None or messages < expected):
        octets, now_ns = _read(sock, buffer)
        reads += 1
        if octets and buffer[_NUMBER] == _IS_PROBE:
            if not hears:
                control.say("hears")
                hears = True
        elif octets and (arrivals.octets or octets >= packet):
            arrivals.add(octets, now_ns)
            messages += octets // packet
            quiet_s = 0.0
        elif expected is not None:
            quiet_s += _WAIT_S
        if not octets or reads % _LOOK_READS == 0:
            word = control.word()
            expected = int(word.split()[1]) if word.startswith("expect") else expected
    control.say("result", messages=messages, **{name: getattr(arrivals, name) for name in _FIGURES})
    control.wait_until_over()


_FIGURES = ("first_ns", "last_ns", "octets", "later_octets", "burst_ns")


def _read(sock: socket.socket, buffer: bytearray) -> tuple[int, int]:
    """Return the octets read and their arrival time in ns, or 0 and 0 after a timeout."""
    try:
        octets, ancillary, _, _ = sock.recvmsg_into((buffer,), _ANCILLARY_OCTETS)
    except TimeoutError:
        return 0, 0
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, ns = _TIMESPEC.unpack(value)
            return octets, seconds * 10**9 + ns
    return octets, 0


if __name__ == "__main__":
    run_end({"recv": recv})
