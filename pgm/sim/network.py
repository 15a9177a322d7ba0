"""Segments that carry octets between nodes.

Multicast goes to all nodes but the sender, unicast to one address. On a unicast leg a packet for all crosses to each
peer separately, with losses of its own on the way out. No packet leaves a segment by itself, so every hop limit of 1 or
more reaches the whole segment. Relays, which are nodes, connect segments.

The octets of a `Send` become one `Train`. All receivers behind links that did not touch the train get the same object.
Its parse is cached, so a thousand receivers cost one parse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import attrs

from pgm.core.effects import Send
from pgm.core.segment import Channel, Segment
from pgm.errors import UsageError
from pgm.sim.links import SimulatedLink
from pgm.wire.formats import Nla
from pgm.wire.train import Train

Action = Callable[[], None]


class Calendar(Protocol):
    """Interface of the queue of events."""

    def at_since(self, time_ns: int, action: Action, node: str, since_ns: int) -> None:
        """Schedule an action of a node at an instant, as if the call had come at `since_ns`."""

    def after_all(self, time_ns: int, action: Action, node: str) -> None:
        """Schedule an action after all other events of an instant."""


class Station(Protocol):
    """Interface of a node towards the network."""

    name: str

    @property
    def host(self) -> str:
        """Host of the station; stations of one host share its addresses. The streams of a source are such stations."""

    @property
    def may_share_address(self) -> bool:
        """Whether the station may share an address with other hosts' stations that may; such hosts are processes."""

    def hear(self, train: Train, channel: Channel, peer: Nla) -> None:
        """Handle a train that arrived."""


@attrs.define(eq=False)
class Attachment:
    """One station on one segment: its addresses there, and its link in each direction."""

    station: Station
    segment: Segment
    egress: SimulatedLink
    ingress: SimulatedLink
    # addresses besides that of the segment, for a station that stands for many nodes
    further: Collection[Nla] = attrs.field(default=(), kw_only=True)
    by_group: Channel = attrs.field(init=False)
    by_unicast: Channel = attrs.field(init=False)
    _cuts: int = attrs.field(default=0, init=False)  # in force now: faults may overlap
    _deafenings: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.by_group = Channel(self.segment, True)
        self.by_unicast = Channel(self.segment, False)

    def cut(self, is_cut: bool) -> None:
        """Partition the node from this segment in both directions, or undo one partition."""
        self._cuts += 1 if is_cut else -1
        self.egress.is_cut = self._cuts > 0
        self._listen()

    def deafen(self, is_deaf: bool) -> None:
        """Drop all packets to the node on this segment, or undo one such fault."""
        self._deafenings += 1 if is_deaf else -1
        self._listen()

    def _listen(self) -> None:
        self.ingress.is_cut = self._cuts + self._deafenings > 0


class _Arrival:
    """Train that reaches some nodes at one instant."""

    __slots__ = ("_is_group", "_peer", "_targets", "_train")

    def __init__(self, targets: list[Attachment], train: Train, is_group: bool, peer: Nla) -> None:
        self._targets = targets
        self._train = train
        self._is_group = is_group
        self._peer = peer

    def __call__(self) -> None:
        train, peer = self._train, self._peer
        if self._is_group:
            for target in self._targets:
                target.station.hear(train, target.by_group, peer)
            return
        for target in self._targets:
            target.station.hear(train, target.by_unicast, peer)


@attrs.frozen(eq=False)
class _Sender:
    """Sender of a train on a segment. `attachment` is None for a node of another part."""

    node: str
    segment: str
    address: Nla
    attachment: Attachment | None


def targets_of(send: Send) -> tuple[Nla | None, ...]:
    """Return the targets of a train. A target is an address, the group (None), or each peer of a unicast leg."""
    if send.hops == 0:
        return ()
    peers = send.segment.peers
    return (send.to,) if send.to is not None or peers is None else peers


@attrs.frozen
class CrossingTrain:
    """Train on a segment whose nodes lie in several parts of a cut tree. `at_ns` is when the train left its sender."""

    at_ns: int
    sender: str
    segment: str
    address: Nla  # of the sender
    to: Nla | None
    octets: bytes
    stride: int


class Network:
    """All segments. Trains on the segments `shared` with other parts of a cut tree are kept for `exchange`."""

    def __init__(self, calendar: Calendar, shared: Collection[str] = ()) -> None:
        self._calendar = calendar
        self._shared = frozenset(shared)
        self._crossing: list[tuple[CrossingTrain, Attachment]] = []
        self._members: dict[str, list[Attachment]] = {}
        self._by_address: dict[tuple[str, Nla], list[Attachment]] = {}
        # by segment: a million addresses in the dictionary above would take 200 MB
        self._with_further: dict[str, list[Attachment]] = {}

    def attach(self, attachment: Attachment) -> None:
        """Attach a node to a segment. Raises `UsageError` if its address belongs to another host there."""
        key = (attachment.segment.name, attachment.segment.address)
        attachments = self._by_address.setdefault(key, [])
        for taken_by in attachments:
            stations = taken_by.station, attachment.station
            may_share = all(station.may_share_address for station in stations)
            if not may_share and stations[0].host != stations[1].host:
                raise UsageError(
                    f"{key[1]} is taken on segment {key[0]} by {taken_by.station.name}",
                    remedy="give every node of a segment an address of its own",
                )
        attachments.append(attachment)
        self._members.setdefault(attachment.segment.name, []).append(attachment)
        if attachment.further:
            self._with_further.setdefault(attachment.segment.name, []).append(attachment)

    def members(self, segment: str) -> tuple[Attachment, ...]:
        """Return the attachments of a segment, in order of attaching."""
        return tuple(self._members.get(segment, ()))

    def send(self, source: Attachment, send: Send, train: Train, now_ns: int) -> None:
        """Carry the train of a `Send` to all its targets."""
        for to in targets_of(send):
            self.leave(source, to, train, now_ns)

    def leave(self, source: Attachment, to: Nla | None, train: Train, now_ns: int) -> None:
        """Carry a train to one of the targets of its `Send`."""
        at_ns = source.egress.pass_whole(train, now_ns)
        arrivals = [(at_ns, train)] if at_ns >= 0 else source.egress.carry(train, now_ns)
        for left_ns, survived in arrivals:
            self._calendar.after_all(left_ns, _Crossing(self, source, to, survived, left_ns), source.station.name)

    def cross(self, source: Attachment, to: Nla | None, train: Train, now_ns: int) -> None:
        """Deliver a train that has left the link of its sender."""
        segment, sender = source.segment, source.station.name
        if segment.name not in self._shared:
            self._distribute(_Sender(sender, segment.name, segment.address, source), to, train, now_ns)
            return
        octets = train.buffer[train.offset : train.offset + train.length].tobytes()
        crossing = CrossingTrain(now_ns, sender, segment.name, segment.address, to, octets, train.stride)
        self._crossing.append((crossing, source))

    @property
    def crossing(self) -> list[CrossingTrain]:
        """Return the trains for other parts since the last `exchange`."""
        return [crossing for crossing, _ in self._crossing]

    def exchange(self, others: Iterable[CrossingTrain]) -> None:
        """Deliver the kept trains of this part, and those of other parts, in the order of an uncut tree."""
        mine, self._crossing = self._crossing, []
        both: list[tuple[CrossingTrain, Attachment | None]] = [*mine, *((train, None) for train in others)]
        both.sort(key=lambda one: (one[0].at_ns, one[0].sender))
        for train, source in both:
            sender = _Sender(train.sender, train.segment, train.address, source)
            self._distribute(sender, train.to, Train.of(train.octets, train.stride), train.at_ns)

    def _further(self, segment: str, to: Nla) -> list[Attachment]:
        return [one for one in self._with_further.get(segment, ()) if to in one.further]

    def _distribute(self, sender: _Sender, to: Nla | None, train: Train, now_ns: int) -> None:
        """Deliver a train from the segment to its nodes. Nodes whose links do not touch the train share one event."""
        if to is None:
            members = self._members.get(sender.segment, [])
        else:
            members = self._by_address.get((sender.segment, to)) or self._further(sender.segment, to)
        calendar, source = self._calendar, sender.attachment
        peer, is_group = sender.address, to is None
        by_arrival: dict[int, list[Attachment]] = {}
        for member in members:
            if member is source:
                continue
            ingress = member.ingress
            at_ns = ingress.pass_whole(train, now_ns)
            if at_ns >= 0:
                by_arrival.setdefault(at_ns, []).append(member)
                continue
            for arrives_ns, arrived in ingress.carry(train, now_ns):
                if arrived is train:
                    by_arrival.setdefault(arrives_ns, []).append(member)
                else:
                    arrival = _Arrival([member], arrived, is_group, peer)
                    calendar.at_since(arrives_ns, arrival, sender.node, now_ns)
        for arrives_ns, targets in by_arrival.items():
            calendar.at_since(arrives_ns, _Arrival(targets, train, is_group, peer), sender.node, now_ns)


class _Crossing:
    """Train between the link of its sender and the segment."""

    __slots__ = ("_at_ns", "_network", "_source", "_to", "_train")

    def __init__(self, network: Network, source: Attachment, to: Nla | None, train: Train, at_ns: int) -> None:
        self._network = network
        self._source = source
        self._to = to
        self._train = train
        self._at_ns = at_ns

    def __call__(self) -> None:
        self._network.cross(self._source, self._to, self._train, self._at_ns)
