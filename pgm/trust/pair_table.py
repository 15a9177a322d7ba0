"""Codes between a node and all others that the topology file gives keys and an address.

The keys of a pair take an X25519 agreement, some 0.1 ms, and are computed once, at the first packet. The file bounds their
number. A node is known by address and id of keys together, so a node cannot speak from the address of another one.

Packets for all nodes carry a code of the sender's segment key. A process makes a new key at its start, so a revoked node
has no valid one. Processes of one node have different keys, so an address may have several.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import attrs

from pgm.trust.control_macs import (
    MacReceiver,
    MacSender,
    keys_between,
    open_segment_key_untrusted,
    seal_segment_key,
    segment_key_id,
)
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys
from pgm.units import SECOND

KEY_ID_OCTETS = 10

_EPOCH_DAY = 719_163  # proleptic Gregorian ordinal of 1970-01-01
_DAY_NS = 86_400 * SECOND
_MOST_COUNTERS = 64  # remembered a node: more packets than this are never out of order by chance
_MOST_SEGMENT_KEYS = 64  # of one address: processes of a node, and earlier lives of them


@attrs.define(eq=False)
class _Peer:
    """One pair of keys of another node. Codes from it are checked with each of the own keys."""

    keys: PublicKeys
    valid_ns: tuple[int, int]  # ns since 1970
    pairs: list[tuple[bytes, bytes]] | None = attrs.field(default=None, repr=False)  # None: not computed yet
    receivers: list[MacReceiver] = attrs.field(factory=list)
    sender: MacSender | None = None

    @classmethod
    def of(cls, keys: PublicKeys) -> _Peer:
        days = keys.first_day.toordinal(), keys.end_day.toordinal()
        return cls(keys, ((days[0] - _EPOCH_DAY) * _DAY_NS, (days[1] - _EPOCH_DAY) * _DAY_NS))

    def is_valid(self, wall_ns: int) -> bool:
        """Return whether the keys are valid at a time."""
        first, end = self.valid_ns
        return first <= wall_ns < end


class PairTable:
    """Keys of one node with each of the others, and for all of them. All times are in ns since 1970.

    `own` are the keys whose private file the node has; the first ones make codes. `known` has the public keys of the
    others by address, without revoked ones. Codes from before `started_ns`, or more than `window_ns` off, are refused.
    `segment_key` is new and random.
    """

    def __init__(
        self,
        own: Sequence[PrivateKeys],
        known: Mapping[str, Sequence[PublicKeys]],
        window_ns: int,
        started_ns: int,
        segment_key: bytes,
    ) -> None:
        self._own = tuple(own)
        self._known = known
        self._window_ns = window_ns
        self._started_ns = started_ns
        self._segment_key = segment_key
        self._segment_id = segment_key_id(segment_key)
        self._for_all = MacSender(segment_key)
        self._peers: dict[str, dict[bytes, _Peer]] = {}  # of the addresses that were asked or heard, by id
        self._heard: dict[str, OrderedDict[bytes, MacReceiver]] = {}  # by address and id of a segment key

    def make(self, address: str, covered: bytes, wall_ns: int) -> bytes | None:
        """Return id, counter and code of a packet for the node at an address; None if it has no valid keys."""
        peer = self._asked(address, wall_ns)
        if peer is None or peer.sender is None:
            return None
        return self._own[0].public.id_octets + peer.sender.code(covered, wall_ns)

    def make_for_all(self, covered: bytes, wall_ns: int) -> bytes:
        """Return id, counter and code of a packet for all nodes of a segment."""
        return self._segment_id + self._for_all.code(covered, wall_ns)

    def check_untrusted(self, address: str, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return whether the node at an address has sent a packet to this node, and not before. Never raises."""
        peer = self._at(address).get(proof[:KEY_ID_OCTETS])
        if peer is None or not peer.is_valid(wall_ns) or not self._agree(peer):
            return False
        code = proof[KEY_ID_OCTETS:]
        return any(receiver.take_untrusted(code, covered, wall_ns) for receiver in peer.receivers)

    def check_for_all_untrusted(self, address: str, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return whether a packet for all has a code of the node at an address, and is new. Never raises."""
        heard = self._heard.get(address)
        receiver = None if heard is None else heard.get(proof[:KEY_ID_OCTETS])
        return receiver is not None and receiver.take_untrusted(proof[KEY_ID_OCTETS:], covered, wall_ns)

    def lacks_segment_key(self, address: str, proof: bytes) -> bool:
        """Return whether the node at an address should be asked for the segment key of a code."""
        return address in self._known and proof[:KEY_ID_OCTETS] not in self._heard.get(address, {})

    def segment_key_for(self, address: str, wall_ns: int) -> bytes | None:
        """Return the own segment key, encrypted for the node at an address; None if it has no valid keys."""
        peer = self._asked(address, wall_ns)
        return None if peer is None or not peer.pairs else seal_segment_key(peer.pairs[0][0], self._segment_key)

    def take_segment_key_untrusted(self, address: str, proof: bytes, content: bytes) -> bool:
        """Take the segment key of a node, from a packet whose code `proof` is valid. Return whether the key is new."""
        peer, key_id = self._at(address).get(proof[:KEY_ID_OCTETS]), content[:KEY_ID_OCTETS]
        heard = self._heard.get(address, OrderedDict())
        if peer is None or key_id in heard:  # a key that comes again keeps what was heard under it
            return False
        for _, down in peer.pairs or ():
            key = open_segment_key_untrusted(down, content)
            if key is not None:
                self._heard[address] = heard
                heard[key_id] = MacReceiver(key, self._window_ns, self._started_ns, _MOST_COUNTERS)
                if len(heard) > _MOST_SEGMENT_KEYS:
                    heard.popitem(last=False)
                return True
        return False

    def _asked(self, address: str, wall_ns: int) -> _Peer | None:
        """Return the keys for which a packet to the node at an address gets its code."""
        valid = (peer for peer in self._at(address).values() if peer.is_valid(wall_ns) and self._agree(peer))
        return next(valid, None)

    def _at(self, address: str) -> dict[bytes, _Peer]:
        found = self._peers.get(address)
        if found is None:
            found = {keys.id_octets: _Peer.of(keys) for keys in self._known.get(address, ())}
            if found:
                self._peers[address] = found
        return found

    def _agree(self, peer: _Peer) -> bool:
        """Compute the keys of a pair, once. Return whether there are any: a weak key of the file has none."""
        if peer.pairs is None:
            try:
                peer.pairs = [keys_between(own, peer.keys) for own in self._own]
            except ValueError:
                peer.pairs = []
                return False
            peer.sender = MacSender(peer.pairs[0][0])
            peer.receivers = [
                MacReceiver(down, self._window_ns, self._started_ns, _MOST_COUNTERS) for _, down in peer.pairs
            ]
        return bool(peer.pairs)
