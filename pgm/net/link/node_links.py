"""Links of one node, and the endpoints of this process that share them.

An endpoint is a driver with its core. The only endpoint of a node gets every train as it is. Several endpoints get the
parts that concern them: a source its own requests, a receiver the packets of its data ports. All else goes to the oldest
endpoint, which counts it, as it counts reads, losses and errors of the sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, overload

from pgm.core.counters import Counters
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.core.source.source import SourceCore
from pgm.core.structures.arena import Arena
from pgm.impairments import Injector
from pgm.net.keys.start_check import own_keys
from pgm.net.link.link import Link
from pgm.net.link.permitted import sender_lists
from pgm.net.link.reader import SocketRead
from pgm.net.sockets.inputs import Input
from pgm.net.sockets.shared_address import Concerns
from pgm.topology.node_plan import NodePlan
from pgm.wire.control_packets import Ack, Nak, Polr, Spmr
from pgm.wire.formats import PacketType, Tsi
from pgm.wire.train import DataWithGaps, Item

_REQUESTS = (Nak, Spmr, Polr, Ack)  # packets for a source, and NCFs, which are of class `Nak` as well


class Endpoint(Protocol):
    """Interface between a node's links and the driver of one endpoint."""

    @property
    def core(self) -> Core:
        """Return the core."""

    @property
    def is_open(self) -> bool:
        """Return whether the endpoint may take packets; a handler may have closed it."""

    def take(self, link: Link, sock: Input, arrival: SocketRead) -> None:
        """Pass a read to the core, and perform the effects without a wait."""

    def company_changed(self, *, is_alone: bool) -> None:
        """Note whether this endpoint is the only one on the links."""


class NodeLinks(Sequence[Link]):
    """Links of one node. The last endpoint that leaves closes them, unless a block holds them."""

    def __init__(self, links: Iterable[Link], on_closed: Callable[[], None] = lambda: None) -> None:
        """Share `links`. They are in use by one receiver if their memory has room for gaps."""
        self._links = tuple(links)
        self._has_room = any(link.has_single_consumer for link in self._links)
        self._on_closed = on_closed
        self._holds = 0
        self._sources: dict[Tsi, Endpoint] = {}
        self._receivers: dict[int, tuple[Endpoint, ...]] = {}  # by data port
        self._hearing_all: tuple[Endpoint, ...] = ()  # receivers without data ports of their own
        self.endpoints: tuple[Endpoint, ...] = ()  # the oldest first
        self.gone = Counters()  # of the endpoints that left
        self.data_inputs: tuple[tuple[Link, Input], ...] = ()  # to read before all others
        self.other_inputs: tuple[tuple[Link, Input], ...] = ()

    @overload
    def __getitem__(self, index: int) -> Link: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Link, ...]: ...

    def __getitem__(self, index: int | slice) -> Link | tuple[Link, ...]:
        return self._links[index]

    def __len__(self) -> int:
        return len(self._links)

    def join(self, endpoint: Endpoint) -> None:
        """Add an endpoint."""
        self._change((*self.endpoints, endpoint))

    def leave(self, endpoint: Endpoint) -> None:
        """Remove an endpoint, and close the links behind the last one."""
        if endpoint in self.endpoints:
            self.gone = Counters.total((self.gone, endpoint.core.counters))
            self._change(tuple(other for other in self.endpoints if other is not endpoint))
            self._close_if_unused()

    @contextmanager
    def held(self) -> Iterator[NodeLinks]:
        """Keep the links open for the length of a block; afterwards close them if no endpoint uses them."""
        self._holds += 1
        try:
            yield self
        finally:
            self._holds -= 1
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if not self._holds and not self.endpoints:
            self._on_closed()
            for link in self._links:
                link.close()

    def _change(self, endpoints: tuple[Endpoint, ...]) -> None:
        was_alone, is_alone = len(self.endpoints) == 1, len(endpoints) == 1
        self.endpoints = endpoints
        sources = {tsi: e for e in endpoints if isinstance(e.core, SourceCore) for tsi in e.core.tsis}
        ports = {
            e: e.core.setup.data_ports | e.core.setup.companion_ports
            for e in endpoints
            if isinstance(e.core, ReceiverCore)
        }
        self._sources = sources
        self._hearing_all = tuple(e for e, own in ports.items() if not own)
        known = frozenset[int]().union(*ports.values())
        self._receivers = {port: tuple(e for e, own in ports.items() if not own or port in own) for port in known}
        carriers = [link for link in self._links if link.plan.upstream or ports]
        # The first input has the data: the group's, or the only one of a unicast leg.
        self.data_inputs = tuple((link, link.inputs[0]) for link in carriers)
        inputs = [(link, sock) for link in self._links for sock in link.inputs]
        self.other_inputs = tuple(one for one in inputs if one not in self.data_inputs)
        concerns = Concerns(frozenset(sources), known, hears_all=bool(self._hearing_all))
        for link in self._links:
            link.concern(concerns)
            link.has_single_consumer = self._has_room and is_alone
            if not link.plan.upstream:
                link.hear_itself(bool(ports))
            if endpoints:
                link.counters = endpoints[0].core.counters
        if was_alone != is_alone:
            for endpoint in endpoints:
                endpoint.company_changed(is_alone=is_alone)

    @property
    def is_shared(self) -> bool:
        """Return whether several endpoints use the links."""
        return len(self.endpoints) > 1

    def hand_over(self, link: Link, sock: Input, arrival: SocketRead) -> None:
        """Give a read to the endpoints that it concerns. If one of them raises, the others get it nevertheless."""
        endpoints = self.endpoints
        parts = ((endpoints[0], arrival),) if len(endpoints) == 1 else self._parts(arrival)
        self._give(link, sock, iter(parts))

    def _give(self, link: Link, sock: Input, parts: Iterator[tuple[Endpoint, SocketRead]]) -> None:
        try:
            for endpoint, part in parts:
                if endpoint.is_open:
                    endpoint.take(link, sock, part)
        except BaseException:  # from a handler of notices or signals
            self._give(link, sock, parts)
            raise

    def _parts(self, arrival: SocketRead) -> list[tuple[Endpoint, SocketRead]]:
        """Return each endpoint that a read concerns, with its part of the read."""
        train = arrival.train
        items, rejects = train.parse_scattered_untrusted()
        oldest = self.endpoints[0]
        shares: dict[Endpoint, list[Item | DataWithGaps]] = {oldest: []} if rejects else {}
        for item in items:
            for endpoint in self._takers(item, arrival.channel):
                shares.setdefault(endpoint, []).append(item)
        return [
            (
                endpoint,
                arrival
                if len(own) == len(items) and (endpoint is oldest or not rejects)
                else SocketRead(
                    train.part(own, rejects if endpoint is oldest else []),
                    arrival.channel,
                    arrival.peer,
                    arrival.is_last,
                ),
            )
            for endpoint, own in shares.items()
        ]

    def _takers(self, item: Item | DataWithGaps, channel: Channel) -> tuple[Endpoint, ...]:
        receivers = self._receivers.get(item.data_port, self._hearing_all)
        source = self._sources.get(item.tsi)
        if source is None:
            return receivers or self.endpoints[:1]
        if isinstance(item, _REQUESTS) and not (isinstance(item, Nak) and item.kind is PacketType.NCF):
            return (source, *receivers) if channel.is_group else (source,)
        return receivers  # none, if this is the node's own multicast

    def receive_into(self, make: Callable[[], Arena]) -> None:
        """Read into the memory of a receiver from now on, made by `make` unless a receiver was here already."""
        if not self._has_room:
            self._has_room, arena = True, make()
            for link in self._links:
                link.arena = arena

    @property
    def tsis(self) -> frozenset[Tsi]:
        """Return the TSIs of this node's sources, and those of other processes on its addresses."""
        return frozenset(self._sources).union(*(link.tsis_of_others for link in self._links))


def open_links(
    plan: NodePlan,
    arena: Arena,
    seed: str | None = None,
    *,
    has_single_consumer: bool = False,
    on_closed: Callable[[], None] = lambda: None,
) -> NodeLinks:
    """Open every segment of a node. Raises `TransportError` and leaves nothing open then.

    A node whose keys are revoked, missing or unsafe is refused first: `KeyRefused`.

    Segments with an impairment get an injector, seeded by `seed`, node and segment. `has_single_consumer` is true for a
    receiver, whose core is the only user of the memory read until another endpoint joins.
    """
    own_keys(plan)
    lists, links = sender_lists(plan), list[Link]()
    try:
        for index, segment in enumerate(plan.segments):
            injector = None
            if not segment.impairment.is_lossless:
                injector = Injector(segment.impairment, f"{seed or 0}:{plan.name}:{segment.name}")
            link = Link(segment, index, plan.parameters, arena, injector, lists=lists, may_share=plan.may_share_address)
            link.has_single_consumer = has_single_consumer
            links.append(link)
    except BaseException:
        for link in links:
            link.close()
        raise
    return NodeLinks(links, on_closed)
