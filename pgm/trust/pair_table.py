"""Codes of the requests between a node and all others that the topology file gives keys and an address.

The keys of a pair take an X25519 agreement, some 0.1 ms, and are computed once, at the first packet. The file bounds their
number. A node is known by address and id of keys together, so a node cannot speak from the address of another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from pgm.trust.control_macs import MacReceiver, MacSender, keys_between
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys
from pgm.units import SECOND

KEY_ID_OCTETS = 10

_EPOCH_DAY = 719_163  # proleptic Gregorian ordinal of 1970-01-01
_DAY_NS = 86_400 * SECOND
_MOST_COUNTERS = 64  # remembered a node: more packets than this are never out of order by chance


@attrs.define(eq=False)
class _Peer:
    """One pair of keys of another node. Codes from it are checked with each of the own keys."""

    keys: PublicKeys
    valid_ns: tuple[int, int]  # ns since 1970
    receivers: list[MacReceiver] | None = None  # None: not computed yet
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
    """Keys of one node with each of the others. All times are in ns since 1970.

    `own` are the keys whose private file the node has; the first ones make codes. `known` has the public keys of the
    others by address, without revoked ones. Codes from before `started_ns`, or more than `window_ns` off, are refused.
    """

    def __init__(
        self, own: Sequence[PrivateKeys], known: Mapping[str, Sequence[PublicKeys]], window_ns: int, started_ns: int
    ) -> None:
        self._own = tuple(own)
        self._known = known
        self._window_ns = window_ns
        self._started_ns = started_ns
        self._peers: dict[str, dict[bytes, _Peer]] = {}  # of the addresses that were asked or heard, by id

    def make(self, address: str, covered: bytes, wall_ns: int) -> bytes | None:
        """Return id, counter and code of a packet for the node at an address; None if it has no valid keys."""
        for peer in self._at(address).values():
            if peer.is_valid(wall_ns) and self._agree(peer):
                assert peer.sender is not None
                return self._own[0].public.id_octets + peer.sender.code(covered, wall_ns)
        return None

    def check_untrusted(self, address: str, proof: bytes, covered: bytes, wall_ns: int) -> bool:
        """Return whether the node at an address has sent a packet, and has not sent it before. Never raises."""
        if address not in self._known:
            return False
        peer = self._at(address).get(proof[:KEY_ID_OCTETS])
        if peer is None or not peer.is_valid(wall_ns) or not self._agree(peer):
            return False
        code = proof[KEY_ID_OCTETS:]
        return any(receiver.take_untrusted(code, covered, wall_ns) for receiver in peer.receivers or ())

    def _at(self, address: str) -> dict[bytes, _Peer]:
        found = self._peers.get(address)
        if found is None:
            found = {keys.id_octets: _Peer.of(keys) for keys in self._known.get(address, ())}
            if found:
                self._peers[address] = found
        return found

    def _agree(self, peer: _Peer) -> bool:
        """Compute the keys of a pair, once. Return whether there are any: a weak key of the file has none."""
        if peer.receivers is None:
            peer.receivers = []
            try:
                pairs = [keys_between(own, peer.keys) for own in self._own]
            except ValueError:
                return False
            peer.sender = MacSender(pairs[0][0])
            peer.receivers = [MacReceiver(down, self._window_ns, self._started_ns, _MOST_COUNTERS) for _, down in pairs]
        return bool(peer.receivers)
