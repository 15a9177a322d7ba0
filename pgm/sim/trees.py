"""Trees built in code: node plans made from names.

The plans equal those of the planner of topology files. The trees serve drawn and hand-written scenarios. Addresses are
10.segment.x.y in order of naming, or fd00:segment::n.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import attrs

from pgm.errors import UsageError
from pgm.parameters import Parameters
from pgm.topology.node_plan import ChildrenPlan, Flow, LinePlan, NodePlan, Order, Role, SegmentPlan, StreamPlan

DATA_PORT = 7500
_NO_LINES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@attrs.frozen
class _NodeRequest:
    """Node to add, by names. Without `parameters` it has those of the tree."""

    name: str
    role: Role
    up: str | None
    downs: tuple[str, ...]
    parameters: Parameters | None
    parents: tuple[str, ...] = ()
    repairers: tuple[str, ...] = ()
    standby_of: str | None = None
    lines: Mapping[str, tuple[str, ...]] = _NO_LINES

    @property
    def is_on_lan_repairer(self) -> bool:
        return self.role is Role.REPAIRER and self.up in self.downs

    @property
    def segments(self) -> tuple[str, ...]:
        upper = (self.up, *self.lines) if self.up is not None else ()
        return (*upper, *(down for down in self.downs if down not in upper))


class TreeBuilder:
    """Builder of a tree. Add nodes in any order, then read `plans`."""

    def __init__(
        self,
        parameters: Parameters,
        *,
        legs: Collection[str] = (),
        ipv6: Collection[str] = (),
        order: Order = "ordered",
        flow: Flow = "rate",
    ) -> None:
        """Create an empty tree.

        `legs` are the segments carried by unicast, `ipv6` those with IPv6 addresses. `order` and `flow` are those of
        the stream.
        """
        self._order = order
        self._parameters = parameters
        self._legs = frozenset(legs)
        self._ipv6 = frozenset(ipv6)
        self._flow = flow
        self._requests: dict[str, _NodeRequest] = {}
        self._segments: dict[str, dict[str, str]] = {}  # segment -> node -> address

    def source(self, name: str, segment: str, *lines: str, parameters: Parameters | None = None) -> str:
        """Add a source on a segment, or on several that carry the same data."""
        return self._add(_NodeRequest(name, Role.SOURCE, None, (segment, *lines), parameters))

    def receiver(
        self,
        name: str,
        segment: str,
        *parents: str,
        parameters: Parameters | None = None,
        lines: Mapping[str, tuple[str, ...]] = _NO_LINES,
    ) -> str:
        """Add a receiver with parents on its segment, in order of preference; `lines` are further segments."""
        return self._add(_NodeRequest(name, Role.RECEIVER, segment, (), parameters, parents, lines=lines))

    def aggregator(
        self,
        name: str,
        up: str,
        *downs: str,
        parents: tuple[str, ...] = (),
        repairers: tuple[str, ...] = (),
        standby_of: str | None = None,
        parameters: Parameters | None = None,
    ) -> str:
        """Add an aggregator: a relay from `up` to `downs`, or on-LAN without `downs`."""
        return self._add(
            _NodeRequest(name, Role.AGGREGATOR, up, downs or (up,), parameters, parents, repairers, standby_of)
        )

    def repairer(
        self,
        name: str,
        up: str,
        *downs: str,
        parents: tuple[str, ...] = (),
        standby_of: str | None = None,
        parameters: Parameters | None = None,
        lines: Mapping[str, tuple[str, ...]] = _NO_LINES,
    ) -> str:
        """Add a repairer: a relay from `up` and `lines` to `downs`, or without `downs` on-LAN on all lines."""
        return self._add(
            _NodeRequest(
                name, Role.REPAIRER, up, downs or (up, *lines), parameters, parents, standby_of=standby_of, lines=lines
            )
        )

    def _add(self, request: _NodeRequest) -> str:
        name = request.name
        if name in self._requests:
            raise UsageError(f"node {name} is there already", remedy="choose another name")
        self._requests[name] = request
        for segment in request.segments:
            nodes = self._segments.setdefault(segment, {})
            place = len(nodes) + 1
            number = list(self._segments).index(segment) + 1
            is_v6 = segment in self._ipv6
            nodes[name] = f"fd00:{number:x}::{place:x}" if is_v6 else f"10.{number}.{place >> 8}.{place & 255}"
        return name

    @property
    def segments(self) -> tuple[str, ...]:
        """All segments, in order of naming."""
        return tuple(self._segments)

    @property
    def plans(self) -> dict[str, NodePlan]:
        """Plan of every node, in order of naming. Raises `UsageError` for names that do not fit."""
        return {name: self._plan(request) for name, request in self._requests.items()}

    def address(self, name: str, segment: str) -> str:
        """Return a node's address on a segment. Raises `UsageError`."""
        try:
            return self._segments[segment][name]
        except KeyError:
            raise UsageError(f"{name} is not on segment {segment}", remedy="name nodes of the same segment") from None

    def _plan(self, request: _NodeRequest) -> NodePlan:
        segments = tuple(self._segment(request, segment) for segment in request.segments)
        upper = request.up or request.downs[0]
        return NodePlan(
            topology="simulated",
            name=request.name,
            role=request.role,
            segments=segments,
            streams=(StreamPlan("stream", DATA_PORT, self._order, self._flow),),
            parameters=request.parameters or self._parameters,
            parents=tuple(self.address(parent, upper) for parent in request.parents),
            repairers=self._repairers(request),
            partners=self._partners(request),
            is_standby=request.standby_of is not None,
            lines=tuple(
                LinePlan(
                    line,
                    tuple(self.address(parent, line) for parent in parents),
                    tuple(sorted(self._repairers_on(line))),
                )
                for line, parents in request.lines.items()
            ),
            local_repairers=self._local_repairers(request),
            local_relays=self._local_relays(request),
            keepers=tuple(self.address(name, upper) for name in self._keepers(request, upper)),
            siblings=self._siblings(request),
            children=self._children(request),
            asks_below_trail=any(self._requests[parent].role is Role.REPAIRER for parent in request.parents),
        )

    def _segment(self, request: _NodeRequest, segment: str) -> SegmentPlan:
        number = list(self._segments).index(segment) + 1
        is_v6 = segment in self._ipv6
        address = self.address(request.name, segment)
        if segment in self._legs:
            group = "::" if is_v6 else "0.0.0.0"
            peers = tuple(other for other in self._segments[segment].values() if other != address)
        else:
            group, peers = (f"ff15::{number:x}" if is_v6 else f"239.192.{number}.1"), None
        return SegmentPlan(
            name=segment,
            group=group,
            port=3056,
            unicast_port=3056,
            interface="lo",
            address=address,
            upstream=segment == request.up or segment in request.lines,
            downstream=segment in request.downs,
            peers=peers,
        )

    def _repairers(self, request: _NodeRequest) -> tuple[tuple[str, ...], ...]:
        if not request.repairers:
            return ()
        return tuple(
            tuple(self._segments[down][name] for name in request.repairers if name in self._segments[down])
            for down in request.downs
        )

    def _partners(self, request: _NodeRequest) -> frozenset[str]:
        partners = [
            other
            for other in self._requests.values()
            if other.name == request.standby_of or (other.standby_of is not None and other.standby_of == request.name)
        ]
        return frozenset(
            self.address(other.name, segment)
            for other in partners
            for segment in other.segments
            if segment in request.segments
        )

    def _local_repairers(self, request: _NodeRequest) -> frozenset[str]:
        if request.role is not Role.RECEIVER:
            return frozenset()
        return frozenset().union(*(self._repairers_on(segment) for segment in request.segments))

    def _local_relays(self, request: _NodeRequest) -> frozenset[str]:
        if request.role is not Role.RECEIVER or not (request.parameters or self._parameters).relay_cache_ivl:
            return frozenset()
        return frozenset(
            self.address(name, segment)
            for segment in request.segments
            for name, other in self._requests.items()
            if other.role is Role.AGGREGATOR and segment in other.downs and other.up not in other.downs
        )

    def _keepers(self, request: _NodeRequest, upper: str) -> list[str]:
        """Return the sources of history: parents but sources, and repairers above; for a relay, one segment up."""
        is_relay = request.up is not None and request.up not in request.downs and request.role is not Role.RECEIVER
        beside = [
            name for name, other in self._requests.items() if other.role is Role.REPAIRER and upper in other.downs
        ]
        names: dict[str, None] = {}
        pending = [*(beside if is_relay else ()), *request.parents]
        while pending:
            other = self._requests[pending.pop(0)]
            if other.role is Role.AGGREGATOR and other.up in other.downs:
                pending = [*other.parents, *pending]
            elif other.role is not Role.SOURCE and other.name != request.name:
                names[other.name] = None
        return list(names)

    def _siblings(self, request: _NodeRequest) -> tuple[str, ...]:
        """Return the other on-LAN repairers of a repairer's segment, those behind it first; no parents or children."""
        near = [other for other in self._requests.values() if other.up == request.up and other.is_on_lan_repairer]
        if request not in near or request.up is None or request.up in self._legs:
            return ()
        at = near.index(request)
        ring = [other for other in (*near[at + 1 :], *near[:at]) if not self._are_related(other, request)]
        return tuple(self.address(other.name, request.up) for other in ring)

    def _children(self, request: _NodeRequest) -> ChildrenPlan:
        """Return the addresses of all nodes on the segments below."""
        named = {address: name for down in request.downs for name, address in self._segments[down].items()}
        elements = (Role.AGGREGATOR, Role.REPAIRER)
        return ChildrenPlan(
            frozenset(named),
            frozenset(address for address, name in named.items() if self._requests[name].role in elements),
            are_all=bool(named),
        )

    def _are_related(self, one: _NodeRequest, other: _NodeRequest) -> bool:
        return one.name in self._above(other) or other.name in self._above(one)

    def _above(self, request: _NodeRequest) -> set[str]:
        found: set[str] = set()
        waiting = [request]
        while waiting:
            new = set(waiting.pop().parents) - found
            found |= new
            waiting += [self._requests[name] for name in new]
        return found

    def _repairers_on(self, segment: str) -> frozenset[str]:
        return frozenset(
            address
            for name, address in self._segments[segment].items()
            if self._requests[name].role is Role.REPAIRER and segment in self._requests[name].downs
        )
