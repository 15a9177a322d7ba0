"""Codes that authenticate control packets between two nodes: keyed BLAKE3, 16 octets, with a counter against replay.

The key of a pair comes from their X25519 secret by BLAKE3 in the mode for keys, with the ids of both nodes' keys, the
sender first: each direction has a key of its own. The octets of a code: counter (8), code (16). The code covers the
counter and the covered octets of the packet. The counter is the sender's time in ns since 1970, raised by one where two
packets have the same time. A receiver takes a counter once, within a window of time around its own clock.

A node authenticates what it says to all nodes of its segments by a key of its own, the segment key. Each of them gets
it, encrypted by the key of the pair, and can then forge what the node says to all, but not what it says to one.
"""

from __future__ import annotations

import heapq
import hmac

import attrs
import blake3

from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys

MAC_OCTETS = 24  # counter and code

SEGMENT_KEY_OCTETS = 32

_CONTEXT = "pgm 2026-11 key of control packets between two nodes"
_ID_CONTEXT = "pgm 2026-11 id of a segment key"
_SEAL_CONTEXT = "pgm 2026-11 encryption of a segment key for one node"
_ID_OCTETS = 10
_COUNTER_OCTETS, _CODE_OCTETS = 8, 16


def keys_between(own: PrivateKeys, other: PublicKeys) -> tuple[bytes, bytes]:
    """Return the keys for packets to and from another node. Raises `ValueError` for a key of low order."""
    shared = own.agree(other.x25519)

    def derived(sender: str, receiver: str) -> bytes:
        octets = shared + sender.encode() + receiver.encode()
        return blake3.blake3(octets, derive_key_context=_CONTEXT).digest()

    return derived(own.public.id, other.id), derived(other.id, own.public.id)


@attrs.define(eq=False)
class MacSender:
    """Codes for the packets that a node sends to one other node."""

    _key: bytes = attrs.field(repr=False)
    _last: int = 0

    def code(self, covered: bytes, now_ns: int) -> bytes:
        """Return the octets that authenticate a packet. `now_ns` is the time since 1970."""
        self._last = max(now_ns, self._last + 1)
        counter = self._last.to_bytes(_COUNTER_OCTETS, "big")
        return counter + _code(self._key, counter, covered)


@attrs.define(eq=False)
class MacReceiver:
    """Check of the packets from one other node. Each counter is taken once, and an old counter never.

    `window_ns` bounds the difference of the clocks and the delay of a packet. Counters up to `floor`, the time at which
    the receiver started, are refused: no packet is taken before and after a restart. Reordered packets are taken while
    their counters are among the last `most` ones, so the memory is bounded.
    """

    _key: bytes = attrs.field(repr=False)
    window_ns: int
    floor: int
    most: int = 256
    _taken: set[int] = attrs.field(factory=set, repr=False)  # counters above the floor
    _ascending: list[int] = attrs.field(factory=list, repr=False)  # the same as a heap

    def take_untrusted(self, octets: bytes, covered: bytes, now_ns: int) -> bool:
        """Return whether a packet is authentic and new. Only then its counter counts as taken. Never raises."""
        if len(octets) != MAC_OCTETS:
            return False
        counter = int.from_bytes(octets[:_COUNTER_OCTETS], "big")
        if counter <= self.floor or counter in self._taken or abs(counter - now_ns) > self.window_ns:
            return False
        if not hmac.compare_digest(octets[_COUNTER_OCTETS:], _code(self._key, octets[:_COUNTER_OCTETS], covered)):
            return False
        self._taken.add(counter)
        heapq.heappush(self._ascending, counter)
        if len(self._taken) > self.most:
            self.floor = heapq.heappop(self._ascending)
            self._taken.remove(self.floor)
        return True


def segment_key_id(key: bytes) -> bytes:
    """Return the id of a segment key."""
    return blake3.blake3(key, derive_key_context=_ID_CONTEXT).digest(_ID_OCTETS)


def seal_segment_key(pair_key: bytes, key: bytes) -> bytes:
    """Return the id of a segment key, and the key encrypted for one node. A pair has one key stream for each id."""
    key_id = segment_key_id(key)
    return key_id + _mask(pair_key, key_id, key)


def open_segment_key_untrusted(pair_key: bytes, octets: bytes) -> bytes | None:
    """Return a segment key that was encrypted for this node; None if it does not have its id."""
    key_id = octets[:_ID_OCTETS]
    key = _mask(pair_key, key_id, octets[_ID_OCTETS:])
    return key if len(key) == SEGMENT_KEY_OCTETS and segment_key_id(key) == key_id else None


def _mask(pair_key: bytes, key_id: bytes, octets: bytes) -> bytes:
    stream = blake3.blake3(pair_key + key_id, derive_key_context=_SEAL_CONTEXT).digest(len(octets))
    return bytes(one ^ other for one, other in zip(octets, stream, strict=True))


def _code(key: bytes, counter: bytes, covered: bytes) -> bytes:
    return blake3.blake3(counter + covered, key=key).digest(_CODE_OCTETS)
