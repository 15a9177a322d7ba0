"""Mangler of packets in a simulated tree: it sends stale, damaged and changed copies of what nodes send.

The copies leave through the link of the node that sent the original, so receivers see that node as their sender.

| mutation | copy |
|---|---|
| REPLAY | the same octets, at any later time; up to eight packets of one size at once |
| DAMAGE | one octet changed, with the old checksum |
| CUT | the end cut off or octets added, with the old checksum; or octets that are no packet |
| FLIP | a few bits flipped in a NAK, NNAK, SPMR or POLR, with a correct checksum |
| FORGE | any packet with other options, fields, flags or type, with a correct checksum |
"""

from __future__ import annotations

import collections
import enum
import random
from collections.abc import Sequence

import attrs

from pgm.core.effects import Send
from pgm.sim.checks.checker import Checker
from pgm.sim.network import Attachment, targets_of
from pgm.sim.node import SimulatedNode
from pgm.topology.node_plan import Role
from pgm.wire.checksum import CHECKSUM_AT, checksum
from pgm.wire.formats import HEADER_OCTETS, SQN_AT, TYPE_AT, PacketType
from pgm.wire.train import Train
from tests.sim.support.mutations import Edges, Mutator

_RECENT = 200  # packets that are copied soon after they were sent
_STALE = 200  # packets of any age, a random sample of all that were sent
_SPARED = 4  # packets of a train that may be kept
_MOST_AT_ONCE = 8
_REQUESTS = frozenset({PacketType.NAK, PacketType.NNAK, PacketType.SPMR, PacketType.POLR})


class Mutation(enum.Enum):
    """Kind of a mutation."""

    REPLAY = "replay"
    DAMAGE = "damage"
    CUT = "cut"
    FLIP = "flip"
    FORGE = "forge"


# Mutations that no node may believe, or that only repeat what was true: every invariant holds.
HARMLESS = (Mutation.REPLAY, Mutation.DAMAGE, Mutation.CUT, Mutation.FLIP)


@attrs.frozen
class SentPacket:
    """Packet as a node sent it."""

    attachment: Attachment
    to: str | None
    octets: bytes


class Mangler(Checker):
    """Sender of `packets` mutated copies between two instants, ns."""

    def __init__(
        self, rng: random.Random, mutations: Sequence[Mutation], packets: int, *, from_ns: int, until_ns: int
    ) -> None:
        self.packets = 0  # sent so far
        self.forged: list[bytes] = []
        self._rng = rng
        self._mutations = mutations
        self._wanted = packets
        self._from_ns, self._until_ns = from_ns, until_ns
        self._recent: collections.deque[SentPacket] = collections.deque(maxlen=_RECENT)
        self._stale: list[SentPacket] = []
        self._seen = 0
        self._edges = Edges(0, 0, 0, 1 << 20, 8192, ("10.128.0.1",), ("239.0.0.1",))
        self._mutator = Mutator(rng, self._edges)

    def attach(self, world: object) -> None:
        """Schedule the copies: bursts at drawn instants."""
        super().attach(world)
        left = self._wanted
        while left > 0:
            count = min(left, self._rng.choice((1, 1, 2, 5, 20)))
            left -= count
            self.world.at(self._rng.randint(self._from_ns, self._until_ns), lambda count=count: self._burst(count))

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Keep some packets of the train."""
        attachment = node.attachments[send.segment.index]
        targets = targets_of(send)
        if not targets:
            return
        rng = self._rng
        rows = list(train.packets())[:_SPARED]
        for octets in rows:
            kept = SentPacket(attachment, rng.choice(targets), octets)
            self._recent.append(kept)
            self._seen += 1
            if len(self._stale) < _STALE:
                self._stale.append(kept)
            elif rng.random() < _STALE / self._seen:
                self._stale[rng.randrange(_STALE)] = kept
        if node.plan.role is Role.SOURCE:
            self._note_edges(rows[-1])

    def _note_edges(self, octets: bytes) -> None:
        """Follow the newest sqns, near which forged sqns are drawn."""
        kind = octets[TYPE_AT] & 0x0F
        if kind == PacketType.ODATA:
            self._edges.lead = int.from_bytes(octets[SQN_AT : SQN_AT + 4], "big")
            self._edges.trail = int.from_bytes(octets[SQN_AT + 4 : SQN_AT + 8], "big")
        elif kind == PacketType.SPM:
            self._edges.spm_sqn = int.from_bytes(octets[SQN_AT : SQN_AT + 4], "big")

    def _burst(self, count: int) -> None:
        """Send some copies; a mutation that finds no packet sends a replay."""
        for _ in range(count):
            if not self._stale:
                return
            kept = self._rng.choice(self._recent if self._rng.random() < 0.5 else self._stale)
            self._send_copy(kept, self._rng.choice(self._mutations))

    def _send_copy(self, kept: SentPacket, mutation: Mutation) -> None:
        octets, stride = kept.octets, len(kept.octets)
        if mutation is Mutation.FLIP and octets[TYPE_AT] & 0x0F not in _REQUESTS:
            mutation = Mutation.REPLAY
        if mutation is Mutation.DAMAGE:
            octets = self._damaged(octets)
        elif mutation is Mutation.CUT:
            octets = self._cut(octets)
        elif mutation is Mutation.FLIP:
            octets = self._flipped(octets)
        elif mutation is Mutation.FORGE:
            octets = self._mutator.mutated(octets)
        elif self._rng.random() < 0.2:
            alike = [one.octets for one in self._recent if one.attachment is kept.attachment and one.to == kept.to]
            octets += b"".join([one for one in alike if len(one) == stride][-_MOST_AT_ONCE + 1 :])
        if not octets:
            return
        train = Train.of(octets, stride if mutation is Mutation.REPLAY else len(octets))
        self.packets += train.count
        if mutation is Mutation.FORGE:
            self.forged.append(octets)
        self.world.network.leave(kept.attachment, kept.to, train, self.world.now_ns)

    def _damaged(self, octets: bytes) -> bytes:
        """Return a packet with one changed octet: any such change changes the checksum."""
        at = self._rng.choice([at for at in range(len(octets)) if at not in (CHECKSUM_AT, CHECKSUM_AT + 1)])
        return octets[:at] + bytes([octets[at] ^ self._rng.randint(1, 255)]) + octets[at + 1 :]

    def _cut(self, octets: bytes) -> bytes:
        how, rng = self._rng.random(), self._rng
        if how < 0.6:
            return octets[: rng.randrange(1, len(octets))]
        if how < 0.9:
            return octets + rng.randbytes(rng.randint(1, 24))
        return rng.randbytes(rng.choice((1, 15, 16, 24, 60)))

    def _flipped(self, octets: bytes) -> bytes:
        """Return a packet of the same type with flipped bits and a correct checksum."""
        changed = bytearray(octets)
        for _ in range(self._rng.randint(1, 4)):
            at = self._rng.randrange(len(changed))
            if at != TYPE_AT:
                changed[at] ^= 1 << self._rng.randrange(8)
        if len(changed) < HEADER_OCTETS:
            return octets
        changed[CHECKSUM_AT : CHECKSUM_AT + 2] = b"\0\0"
        changed[CHECKSUM_AT : CHECKSUM_AT + 2] = checksum(bytes(changed))
        return bytes(changed)
