"""Element between segments in virtual time, with a log of every packet that it sends."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from aggregator.core import AggregatorCore
from pgm.core.effects import Effect, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.segment import Channel, Segment
from pgm.units import MILLISECOND, SECOND
from pgm.wire.control_packets import Packet, decode_control_untrusted, encode
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import Option
from pgm.wire.train import Data, Train
from repairer.core import RepairerCore
from tests.unit.core.makers import data_train, deadlines, nak_packet, parameters, sent_items, spm_packet

SOURCE = "10.0.0.1"  # the source, on the segment above
UP = Segment(0, "core", "10.0.0.5", "239.0.0.1", upstream=True, downstream=False)
A = Segment(1, "a", "10.1.0.1", "239.1.0.1", upstream=False, downstream=True)
B = Segment(2, "b", "10.2.0.1", "239.2.0.1", upstream=False, downstream=True)
C = Segment(3, "c", "10.3.0.1", "239.3.0.1", upstream=False, downstream=True)
LAN = Segment(0, "lan", "10.0.0.5", "239.0.0.1", upstream=True, downstream=True)
BELOW = {A.index: "10.1.0.9", B.index: "10.2.0.9", C.index: "10.3.0.9"}  # a receiver on each segment

# Exact times, unless a test changes them: no back-off, no tolerance for reordering, no damping, and waits that do not
# adapt to answers. Aggregators keep nothing, as the RFC's elements do.
EXACT: dict[str, Any] = {
    "ncf_ivl": 0,
    "reorder_ivl": 0,
    "nak_bo_ivl": 1,
    "nak_max_ivl": MILLISECOND,
    "rdata_hold_ivl": 0,
    "rdata_ignore_ivl": 0,
    "relay_cache_ivl": 0,
}


def as_received(packet: Packet) -> Packet:
    """Return a packet as decoded from the wire, with its octets."""
    return decode_control_untrusted(encode(packet))


class Bench:
    """Element, its clock, and a log of everything that it has sent."""

    def __init__(
        self, kind: str = "aggregator", setup: ElementSetup | None = None, *, seed: int = 1, **changes: Any
    ) -> None:
        self.setup = setup or ElementSetup(UP, (A, B, C), parents=(SOURCE,))
        settings = parameters(**EXACT | changes)
        self.core: AggregatorCore | RepairerCore = (
            AggregatorCore(self.setup, settings)
            if kind == "aggregator"
            else RepairerCore(self.setup, settings, random.Random(seed))
        )
        self.now = 1000 * SECOND
        self.log: list[tuple[int, Send]] = []

    # Input

    def hear(
        self, what: Train | Packet, on: Segment, peer: Nla, *, is_group: bool = True, after: int = 0
    ) -> list[Effect]:
        """Hand a packet to the element, after all deadlines of the elapsed time."""
        self.wait(after)
        train = what if isinstance(what, Train) else Train.of(encode(what))
        return self._take(self.core.receive(train, Channel(on, is_group), peer, self.now))

    def wait(self, ivl: int) -> list[Effect]:
        """Serve every deadline of an interval."""
        until, found = self.now + ivl, []
        for now in deadlines(self.core, self.now, until):
            self.now = now
            effects = self._take(self.core.handle_deadline(now))
            assert effects or self.core.deadline_ns > now, "a deadline without effect"
            found += effects
        self.now = until
        return found

    def _take(self, effects: Iterable[Effect]) -> list[Effect]:
        taken = list(effects)
        self.log += [(self.now, effect) for effect in taken if isinstance(effect, Send)]
        return taken

    def begin(self, sqns: int = 20, *, spm_sqn: int = 1, first: int = 0, options: Sequence[Option] = ()) -> Bench:
        """Start a session: an SPM from the source, perhaps with options, and `sqns` packets passed down."""
        up = self.setup.up
        self.hear(spm_packet(spm_sqn, first, first - 1, *options), up, SOURCE)
        self.hear(data_train(range(first, first + sqns), trail=first), up, SOURCE)
        self.log.clear()
        return self

    def nak(self, on: Segment, *sqns: int, peer: Nla | None = None, after: int = 0, **changes: Any) -> list[Effect]:
        """Send a unicast NAK of a receiver on a segment."""
        packet = nak_packet(*sqns, source_nla=SOURCE, group_nla=on.group, **changes)
        return self.hear(packet, on, peer or BELOW[on.index], is_group=False, after=after)

    def ncf(self, *sqns: int, peer: Nla = SOURCE, after: int = 0, on: Segment | None = None) -> list[Effect]:
        """Send a multicast NCF from above."""
        on = on or self.setup.up
        packet = nak_packet(*sqns, kind=PacketType.NCF, source_nla=SOURCE, group_nla=on.group)
        return self.hear(packet, on, peer, after=after)

    def rdata(self, *sqns: int, after: int = 0, peer: Nla = SOURCE, on: Segment | None = None) -> list[Effect]:
        """Send repairs from above."""
        return self.hear(data_train(sqns, kind=PacketType.RDATA), on or self.setup.up, peer, after=after)

    # Log

    def sent(self, kind: PacketType) -> list[tuple[int, Send, Data | Packet]]:
        """Return time, effect and packet of everything of one type sent since the log was cleared."""
        return [(at, send, item) for at, send in self.log for item in sent_items([send]) if item.type is kind]

    def where(self, kind: PacketType) -> list[tuple[str, tuple[int, ...]]]:
        """Return segment and sqns of everything of one type that was sent."""
        return [(send.segment.name, _sqns(item)) for _, send, item in self.sent(kind)]

    def times(self, kind: PacketType) -> list[int]:
        """Return the time of each packet of one type."""
        return [at for at, _, _ in self.sent(kind)]


def _sqns(item: Data | Packet) -> tuple[int, ...]:
    if isinstance(item, Data):
        return tuple(range(item.wire_sqn, item.wire_sqn + item.count))
    sqns: tuple[int, ...] = getattr(item, "sqns", ())
    return sqns
