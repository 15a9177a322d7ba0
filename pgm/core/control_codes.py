"""Streams whose requests must carry a code of their sender (`pgm.wire.options.ControlCode`).

Requests are NAKs, NNAKs, SPMRs, POLRs, acks, and the reports and questions on them. Each goes to one node, with a code for
that node alone. A node drops a request without a valid code before it makes any state. Copies of requests for the group
could have no code, and are not sent.

Own requests get their codes when the driver sends them, so no other part of a core knows of codes. A check costs a few
microseconds, about as much as reading the packet: a budget for failed checks would only let a forger use up that of
the node whose address he forges.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, Notice, Send
from pgm.wire.control_packets import Ack, Packet, Spmr, decode_control_untrusted
from pgm.wire.formats import UPSTREAM, Nla
from pgm.wire.option_rewriting import code_of, covered_octets, with_checksum, with_code, without_code
from pgm.wire.options import HeldHistory, Members, find

_MOST_NAMED = 64  # peers with a notice of their own
_TYPE_AT = 4
_UPSTREAM = frozenset(map(int, UPSTREAM))

# The code of a packet for a node, by its address, the covered octets and the time in ns since 1970; None without keys.
MakeCode = Callable[[Nla, bytes, int], bytes | None]
# Whether a code of a node is valid and new, by its address, the code, the covered octets and the time in ns since 1970.
CheckCode = Callable[[Nla, bytes, bytes, int], bool]


def _no_code(_peer: Nla, _covered: bytes, _wall_ns: int) -> bytes | None:
    return None


def _refuse(_peer: Nla, _code: bytes, _covered: bytes, _wall_ns: int) -> bool:
    return False


@attrs.frozen
class ControlKeys:
    """Codes that a node can make and check."""

    ports: frozenset[int] = frozenset()  # data ports of the streams whose requests need codes
    make: MakeCode = attrs.field(default=_no_code, repr=False)
    check_untrusted: CheckCode = attrs.field(default=_refuse, repr=False)
    wall_offset_ns: Callable[[], int] = lambda: 0  # ns since 1970 when the node's clock showed 0; it may be set


NO_CONTROL_KEYS = ControlKeys()


class ControlCodes:
    """Codes of the requests that a core sends and takes."""

    def __init__(self, keys: ControlKeys, counters: Counters) -> None:
        self.has_any = bool(keys.ports)  # an attribute, for the fast path
        self._keys = keys
        self._counters = counters
        self._named: set[Nla] = set()  # peers with a notice
        self._notices: list[Notice] = []

    def checked(self, item: Packet, peer: Nla, now_ns: int) -> Packet | None:
        """Return a packet without its code; None for a request that has no valid code, which is counted."""
        if item.data_port not in self._keys.ports or not _is_request(item):
            return item
        code = code_of(item)
        if code is not None:
            octets = without_code(item)
            if self._keys.check_untrusted(peer, code, octets, now_ns + self._keys.wall_offset_ns()):
                return attrs.evolve(item, options=item.options[:-1], octets=with_checksum(octets))
        self._counters.uncoded_packets += item.packets
        self._note(peer, "a wrong code" if code is not None else "no code")
        return None

    def _note(self, peer: Nla, reason: str) -> None:
        if peer not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(peer)
            self._notices.append(Notice("uncoded-request", f"a request from {peer} has {reason}, and was dropped"))

    def take_notices(self) -> Effects:
        """Return the notices of refused peers since the last call: one a peer."""
        if not self._notices:
            return NOTHING
        notices, self._notices = self._notices, []
        return notices

    def coded(self, send: Send, now_ns: int) -> Send | None:
        """Return control packets to send, with codes if they are requests; None for requests that cannot have any.

        Those are copies for the group, which are not needed, and requests to nodes without keys, which are counted.
        """
        octets = bytes(send.octets)
        # The data port comes first upstream.
        if octets[_TYPE_AT] not in _UPSTREAM or int.from_bytes(octets[:2], "big") not in self._keys.ports:
            return send
        packets = [octets[at : at + send.stride] for at in range(0, len(octets), send.stride)]
        if not _is_request(decode_control_untrusted(packets[0])):
            return send
        to = send.to
        if to is None:
            return None
        wall_ns = now_ns + self._keys.wall_offset_ns()
        coded: list[bytes] = []
        for packet in packets:
            code = self._keys.make(to, covered_octets(packet), wall_ns)
            if code is None:
                self._counters.unaddressed_requests += len(packets)
                return None
            coded.append(with_code(packet, code))
        return attrs.evolve(send, octets=b"".join(coded), stride=len(coded[0]))


def _is_request(item: Packet) -> bool:
    """Return whether a packet asks a node above for something, or tells it something."""
    if item.type not in UPSTREAM:
        return False
    if isinstance(item, Ack):
        said = find(item.options, Members)
        return said is None or not said.confirms
    held = find(item.options, HeldHistory) if isinstance(item, Spmr) else None
    return held is None or not held.answers
