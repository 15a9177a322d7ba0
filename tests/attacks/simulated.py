"""Attacker on a segment of a simulated tree: it hears every packet of the segment, and sends forgeries at a rate."""

from __future__ import annotations

import collections
import enum
import random
from collections.abc import Sequence

from pgm.core.effects import Send
from pgm.core.segment import Segment
from pgm.sim.checks.checker import Checker
from pgm.sim.links import LinkSetup, SimulatedLink
from pgm.sim.network import Attachment
from pgm.sim.node import SimulatedNode
from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import TYPE_AT, PacketType
from pgm.wire.train import Train
from tests.attacks.forgeries import FORGERIES, Forgery, Mint, NotHeardError, To
from tests.attacks.heard import Heard, Place

OWN = "10.66.66.66"
_STEP_NS = MILLISECOND
_HEARD_OF_TRAIN = 4
_IN_ONE_READ = 0.1  # share of forged data that one read brings together with true data


class Sender(enum.Enum):
    """Address by which forgeries come."""

    OWN = "own"  # of no node of the topology
    MEMBER = "member"  # of a receiver that the topology names
    FORGED = "forged"  # of any node of the segment, drawn for each packet


class _Outside:
    """Station that is no part of the tree, and hears nothing by itself."""

    name = host = "attacker"
    may_share_address = True

    def hear(self, train: object, channel: object, peer: object) -> None:
        """Do nothing: the attacker hears by `sent`."""


class SimulatedAttacker(Checker):
    """Attacker between two instants, ns, with `rate` forgeries a second and at most `packets` in all."""

    def __init__(
        self,
        rng: random.Random,
        segment: str,
        sender: Sender,
        packets: int,
        rate: int,
        from_ns: int,
        forgeries: Sequence[Forgery] = FORGERIES,
    ) -> None:
        self.segment = segment
        self.sent_of: collections.Counter[str] = collections.Counter()
        self._rng = rng
        self._sender = sender
        self._left = packets
        self._per_step = max(1, rate * _STEP_NS // SECOND)
        self._from_ns = from_ns
        self._forgeries = list(forgeries)
        self._weights = [one.weight for one in forgeries]
        self._attachments: list[Attachment] = []
        self._nodes: list[str] = []
        self._mint: Mint | None = None

    @property
    def packets(self) -> int:
        """Packets sent so far."""
        return self.sent_of.total()

    def place_at(self, member: str = OWN) -> None:
        """Take a place in the finished tree. `member` is the address of a receiver that the attacker has."""
        world = self.world
        members = world.network.members(self.segment)
        first = members[0].segment
        self._nodes = [one.segment.address for one in members]
        own = OWN if self._sender is not Sender.MEMBER else member
        down = [one for one in members if one.segment.downstream]
        sources = {node.name for node in world.sources}
        above = [one for one in down if one.station.name in sources] or down
        data_port = world.sources[0].plan.streams[0].data_port
        place = Place(first.group, above[0].segment.address, tuple(self._nodes), data_port)
        self._mint = Mint(Heard(place, self._rng), self._rng, own)
        for address in self._nodes if self._sender is Sender.FORGED else (own,):
            segment = Segment(0, self.segment, address, first.group, upstream=True, downstream=True)
            links = (SimulatedLink(LinkSetup(), f"attacker:{address}:{way}") for way in ("out", "in"))
            self._attachments.append(Attachment(_Outside(), segment, *links))
        world.at(self._from_ns, self._step)

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Hear what a node puts on the segment."""
        if self._mint is None or node.attachments[send.segment.index].segment.name != self.segment:
            return
        for number, octets in enumerate(train.packets()):
            if number < _HEARD_OF_TRAIN:
                self._mint.heard.hear(octets)

    def _step(self) -> None:
        assert self._mint is not None
        self._mint.now_ns = self.world.now_ns
        for _ in range(min(self._per_step, self._left)):
            self._send()
        self._left -= self._per_step
        if self._left > 0:
            self.world.at(self.world.now_ns + _STEP_NS, self._step)

    def _send(self) -> None:
        mint, rng = self._mint, self._rng
        assert mint is not None
        [forgery] = rng.choices(self._forgeries, self._weights)
        try:
            octets = forgery.make(mint)
        except NotHeardError:
            return
        if not octets:
            return
        to = None if rng.choice(forgery.to) is To.GROUP else rng.choice(self._nodes)
        stride = len(octets)
        if octets[TYPE_AT : TYPE_AT + 1] == bytes([PacketType.ODATA]) and rng.random() < _IN_ONE_READ:
            octets = self._with_true_data(octets)
        self.sent_of[forgery.name] += 1
        self.world.network.leave(rng.choice(self._attachments), to, Train.of(octets, stride), self.world.now_ns)

    def _with_true_data(self, octets: bytes) -> bytes:
        assert self._mint is not None
        true = self._mint.heard.any_of(PacketType.ODATA)
        return octets if true is None or len(true) != len(octets) else true + octets
