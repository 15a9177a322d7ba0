"""Streams whose control packets must carry a code of their sender (`pgm.wire.options.ControlCode`).

Requests are NAKs, NNAKs, SPMRs, POLRs, acks, and the reports and questions on them. Each goes to one node, with a code for
that node alone. A node drops a request without a valid code before it makes any state. Copies of requests for the group
could have no code, and are not sent.

Answers are NCFs, POLLs, confirmations of acks, and answers about history. They have a code of their sender's segment key.
A node tells it to each node that sends a valid request, before the answer, and to each that asks for it.

Own packets get their codes when the driver sends them, so no other part of a core knows of codes. A check costs a few
microseconds, about as much as reading the packet: a budget for failed checks would only let a forger use up that of
the node whose address he forges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects, Notice, Send, control
from pgm.core.segment import Segment
from pgm.units import MILLISECOND, SECOND
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Spm, Spmr, decode_control_untrusted, encode
from pgm.wire.formats import UPSTREAM, Nla, PacketType
from pgm.wire.option_rewriting import code_of, covered_octets, with_checksum, with_code, without_code
from pgm.wire.options import HeldHistory, Members, SegmentKey, find

_MOST_NAMED = 64  # peers with a notice of their own
_MOST_ASKED = 1024  # nodes whose segment key was requested of late
# Wait between requests for a segment key of one node: an answer takes a round trip. The wait doubles until the node gives
# a new key, because false codes of unknown keys would otherwise turn all nodes of a segment against that node.
_ASK_IVL, _MOST_ASK_IVL = 50 * MILLISECOND, 10 * SECOND
_TYPE_AT = 4
_UPSTREAM = frozenset(map(int, UPSTREAM))
_CODED = _UPSTREAM | {int(PacketType.NCF), int(PacketType.POLL)}


class NodeKeys(Protocol):
    """Keys of a node with the other nodes of its file. Codes are octets; all times are in ns since 1970."""

    def make(self, address: Nla, covered: bytes, wall_ns: int) -> bytes | None:
        """Return the code of a packet for the node at an address; None without its keys."""

    def make_for_all(self, covered: bytes, wall_ns: int) -> bytes:
        """Return the code of a packet for all nodes of a segment."""

    def check_untrusted(self, address: Nla, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return whether a code of the node at an address for this node is valid and new."""

    def check_for_all_untrusted(self, address: Nla, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return whether a code of the node at an address for all nodes is valid and new."""

    def lacks_segment_key(self, address: Nla, proof: bytes) -> bool:
        """Return whether the node at an address should be asked for the segment key of a code."""

    def segment_key_for(self, address: Nla, wall_ns: int) -> bytes | None:
        """Return the own segment key, encrypted for the node at an address; None without its keys."""

    def take_segment_key_untrusted(self, address: Nla, proof: bytes, content: bytes) -> bool:
        """Take the segment key of a node, from a packet with a valid code `proof`. Return whether the key is new."""


@attrs.frozen
class NoNodeKeys:
    """Absence of keys: a node of a stream without keys."""

    def make(self, address: Nla, covered: bytes, wall_ns: int) -> bytes | None:
        """Return None."""
        return None

    def make_for_all(self, covered: bytes, wall_ns: int) -> bytes:
        """Return nothing."""
        return b""

    def check_untrusted(self, address: Nla, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return False."""
        return False

    def check_for_all_untrusted(self, address: Nla, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return False."""
        return False

    def lacks_segment_key(self, address: Nla, proof: bytes) -> bool:
        """Return False."""
        return False

    def segment_key_for(self, address: Nla, wall_ns: int) -> bytes | None:
        """Return None."""
        return None

    def take_segment_key_untrusted(self, address: Nla, proof: bytes, content: bytes) -> bool:
        """Return False."""
        return False


def no_offset_ns() -> int:
    """Return 0: the clock of the core shows ns since 1970."""
    return 0


@attrs.frozen
class ControlKeys:
    """Codes that a node can make and check, for the streams of some data ports."""

    ports: frozenset[int]
    node_keys: NodeKeys = attrs.field(factory=NoNodeKeys, repr=False)
    wall_offset_ns: Callable[[], int] = no_offset_ns  # ns since 1970 when the node's clock showed 0; it may be set


NO_CONTROL_KEYS = ControlKeys(frozenset())


class ControlCodes:
    """Codes of the control packets that a core sends and takes."""

    def __init__(self, keys: ControlKeys, counters: Counters) -> None:
        self.has_any = bool(keys.ports)  # an attribute, for the fast path
        self._ports = keys.ports
        self._node_keys = keys.node_keys
        self._wall_offset_ns = keys.wall_offset_ns
        self._counters = counters
        self._named: set[Nla] = set()  # peers with a notice
        self._given: set[Nla] = set()  # nodes of the file that have this node's segment key
        # when a node may be asked for its key again, and the wait until then
        self._asked: dict[Nla, tuple[int, int]] = {}
        self._effects: list[Effect] = []

    def checked(self, item: Packet, segment: Segment, peer: Nla, now_ns: int) -> Packet | None:
        """Return a packet without its code. Return None for a packet that lacks a valid code, and count it.

        Also return None for packets about segment keys, which concern no other part of the core.
        """
        if item.data_port not in self._ports:
            return item
        if isinstance(item, Spm):
            if item.path_nla == peer:  # as in all SPMs of this project
                return item
            self._refuse(item, peer, "the path of another node")
            return None
        is_request = _is_request(item)
        code = code_of(item)
        if code is None:
            self._refuse(item, peer, "no code")
            return None
        octets, wall_ns = without_code(item), now_ns + self._wall_offset_ns()
        check = self._node_keys.check_untrusted if is_request else self._node_keys.check_for_all_untrusted
        if not check(peer, code, octets, wall_ns):
            if not is_request and self._node_keys.lacks_segment_key(peer, code):
                self._counters.uncoded_packets += item.packets
                self._ask(item, segment, peer, now_ns)
            else:
                self._refuse(item, peer, "a wrong or repeated code")
            return None
        about_keys = find(item.options, SegmentKey) if isinstance(item, Spmr) else None
        if about_keys is not None and about_keys.content:
            if self._node_keys.take_segment_key_untrusted(peer, code, about_keys.content):
                self._asked.pop(peer, None)
            return None
        if is_request and (about_keys is not None or peer not in self._given):
            self._give(item, segment, peer, wall_ns)
            if about_keys is not None:
                return None
        return attrs.evolve(item, options=item.options[:-1], octets=with_checksum(octets))

    def _refuse(self, item: Packet, peer: Nla, reason: str) -> None:
        self._counters.uncoded_packets += item.packets
        if peer not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(peer)
            text = f"a control packet from {peer} has {reason}, and was dropped"
            self._effects.append(Notice("uncoded-packet", text))

    def _give(self, item: Packet, segment: Segment, peer: Nla, wall_ns: int) -> None:
        """Tell the own segment key to a node that has sent a valid request."""
        content = self._node_keys.segment_key_for(peer, wall_ns)
        if content is not None:
            self._given.add(peer)
            self._effects.append(control(segment, _about_keys(item, content), to=peer))

    def _ask(self, item: Packet, segment: Segment, peer: Nla, now_ns: int) -> None:
        """Ask a node for its segment key, unless it was asked of late."""
        again_ns, wait = self._asked.get(peer, (now_ns, _ASK_IVL))
        if now_ns < again_ns:
            return
        self._asked.pop(peer, None)
        self._asked[peer] = now_ns + wait, min(2 * wait, _MOST_ASK_IVL)
        if len(self._asked) > _MOST_ASKED:
            del self._asked[next(iter(self._asked))]
        self._effects.append(control(segment, _about_keys(item, b""), to=peer))

    def take_effects(self) -> Effects:
        """Return packets about segment keys, and one notice for each refused peer, since the last call."""
        if not self._effects:
            return NOTHING
        effects, self._effects = self._effects, []
        return effects

    def coded(self, send: Send, now_ns: int) -> Send | None:
        """Return control packets to send, with the codes that they need; None for requests that cannot have any.

        Those are copies for the group, which are not needed, and requests to nodes without keys, which are counted.
        """
        octets = bytes(send.octets)
        kind = octets[_TYPE_AT]
        at = 0 if kind in _UPSTREAM else 2  # of the data port
        if kind not in _CODED or int.from_bytes(octets[at : at + 2], "big") not in self._ports:
            return send
        packets = [octets[at : at + send.stride] for at in range(0, len(octets), send.stride)]
        is_request = _is_request(decode_control_untrusted(packets[0]))
        if is_request and send.to is None:
            return None
        wall_ns = now_ns + self._wall_offset_ns()
        coded: list[bytes] = []
        for packet in packets:
            covered = covered_octets(packet)
            if is_request and send.to is not None:
                code = self._node_keys.make(send.to, covered, wall_ns)
            else:
                code = self._node_keys.make_for_all(covered, wall_ns)
            if code is None:
                self._counters.unaddressed_requests += len(packets)
                return None
            coded.append(with_code(packet, code))
        return attrs.evolve(send, octets=b"".join(coded), stride=len(coded[0]))


def _about_keys(item: Packet, content: bytes) -> bytes:
    return encode(Spmr(tsi=item.tsi, data_port=item.data_port, options=(SegmentKey(content),)))


def _is_request(item: Packet) -> bool:
    """Return whether a packet is for one node: it asks or tells a node above, or is about segment keys."""
    if isinstance(item, Poll) or (isinstance(item, Nak) and item.kind is PacketType.NCF):
        return False
    if isinstance(item, Ack):
        said = find(item.options, Members)
        return said is None or not said.confirms
    held = find(item.options, HeldHistory) if isinstance(item, Spmr) else None
    return held is None or not held.answers
