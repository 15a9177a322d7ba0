"""Trees built by hand: names in, node plans out, as the planner of topology files would make them.

For scenarios that are drawn or written in code. Addresses are 10.segment.x.y in order of naming, or fd00:segment::n.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import attrs

from pgm.errors import UsageError
from pgm.parameters import Parameters
from pgm.topology.node_plan import LinePlan, NodePlan, Role, SegmentPlan, StreamPlan

DATA_PORT = 7500
_NO_LINES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


@attrs.define
class _Wish:
    name: str
    role: Role
    up: str | None
    downs: tuple[str, ...]
    parents: tuple[str, ...]
    repairers: tuple[str, ...]
    standby_of: str | None
    parameters: Parameters
    lines: Mapping[str, tuple[str, ...]]

    @property
    def segments(self) -> tuple[str, ...]:
        above = (self.up, *self.lines) if self.up is not None else ()
        return (*above, *(down for down in self.downs if down not in above))


class TreeBuilder:
    """A tree in the making. Name nodes in any order, then take `plans`."""

    def __init__(
        self,
        parameters: Parameters,
        *,
        legs: Collection[str] = (),
        ipv6: Collection[str] = (),
        order: str = "ordered",
        flow: str = "rate",
    ) -> None:
        """`legs` are the segments carried by unicast, `ipv6` those with IPv6 addresses; `order` and `flow` are the stream's."""
        self._order = order
        self._parameters = parameters
        self._legs = frozenset(legs)
        self._ipv6 = frozenset(ipv6)
        self._flow = flow
        self._wishes: dict[str, _Wish] = {}
        self._segments: dict[str, dict[str, str]] = {}  # segment -> node -> address

    def source(self, name: str, segment: str, *lines: str, parameters: Parameters | None = None) -> str:
        """A source on a segment, or on several with the same."""
        return self._wish(name, Role.SOURCE, None, (segment, *lines), parameters=parameters)

    def receiver(
        self,
        name: str,
        segment: str,
        *parents: str,
        parameters: Parameters | None = None,
        lines: Mapping[str, tuple[str, ...]] = _NO_LINES,
    ) -> str:
        """A receiver; parents in order of preference, on its segment. `lines` are further segments, with parents there."""
        return self._wish(name, Role.RECEIVER, segment, (), parents, parameters=parameters, lines=lines)

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
        """An aggregator: a relay from `up` to `downs`, or on-LAN without `downs`."""
        return self._wish(name, Role.AGGREGATOR, up, downs or (up,), parents, repairers, standby_of, parameters)

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
        """A repairer: a relay from `up`, and `lines`, to `downs`, or on-LAN, on all lines, without `downs`."""
        return self._wish(name, Role.REPAIRER, up, downs or (up, *lines), parents, (), standby_of, parameters, lines)

    def _wish(
        self,
        name: str,
        role: Role,
        up: str | None,
        downs: tuple[str, ...],
        parents: tuple[str, ...] = (),
        repairers: tuple[str, ...] = (),
        standby_of: str | None = None,
        parameters: Parameters | None = None,
        lines: Mapping[str, tuple[str, ...]] = _NO_LINES,
    ) -> str:
        if name in self._wishes:
            raise UsageError(f"node {name} is there already", remedy="choose another name")
        wish = _Wish(name, role, up, downs, parents, repairers, standby_of, parameters or self._parameters, lines)
        self._wishes[name] = wish
        for segment in wish.segments:
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
        """The plan of every node, in order of naming. Raises `UsageError` for names that do not fit."""
        return {name: self._plan(wish) for name, wish in self._wishes.items()}

    def address(self, name: str, segment: str) -> str:
        """A node's address on a segment. Raises `UsageError`."""
        try:
            return self._segments[segment][name]
        except KeyError:
            raise UsageError(f"{name} is not on segment {segment}", remedy="name nodes of the same segment") from None

    def _plan(self, wish: _Wish) -> NodePlan:
        segments = tuple(self._segment(wish, segment) for segment in wish.segments)
        above = wish.up or wish.downs[0]
        return NodePlan(
            topology="simulated",
            name=wish.name,
            role=wish.role,
            segments=segments,
            streams=(StreamPlan("stream", DATA_PORT, self._order, self._flow),),
            parameters=wish.parameters,
            parents=tuple(self.address(parent, above) for parent in wish.parents),
            repairers=self._repairers(wish),
            partners=self._partners(wish),
            is_standby=wish.standby_of is not None,
            lines=tuple(
                LinePlan(
                    line,
                    tuple(self.address(parent, line) for parent in parents),
                    tuple(sorted(self._repairers_on(line))),
                )
                for line, parents in wish.lines.items()
            ),
            local_repairers=self._local_repairers(wish),
            keepers=tuple(self.address(name, above) for name in self._keepers(wish, above)),
            asks_below_trail=any(self._wishes[parent].role is Role.REPAIRER for parent in wish.parents),
        )

    def _segment(self, wish: _Wish, segment: str) -> SegmentPlan:
        number = list(self._segments).index(segment) + 1
        is_v6 = segment in self._ipv6
        address = self.address(wish.name, segment)
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
            upstream=segment == wish.up or segment in wish.lines,
            downstream=segment in wish.downs,
            peers=peers,
        )

    def _repairers(self, wish: _Wish) -> tuple[tuple[str, ...], ...]:
        if not wish.repairers:
            return ()
        return tuple(
            tuple(self._segments[down][name] for name in wish.repairers if name in self._segments[down])
            for down in wish.downs
        )

    def _partners(self, wish: _Wish) -> frozenset[str]:
        partners = [
            other
            for other in self._wishes.values()
            if other.name == wish.standby_of or (other.standby_of is not None and other.standby_of == wish.name)
        ]
        return frozenset(
            self.address(other.name, segment)
            for other in partners
            for segment in other.segments
            if segment in wish.segments
        )

    def _local_repairers(self, wish: _Wish) -> frozenset[str]:
        if wish.role is not Role.RECEIVER:
            return frozenset()
        return frozenset().union(*(self._repairers_on(segment) for segment in wish.segments))

    def _keepers(self, wish: _Wish, above: str) -> list[str]:
        """Whom history may be had of: repairers of the segment above a relay, and parents that are no source."""
        is_relay = wish.up is not None and wish.up not in wish.downs and wish.role is not Role.RECEIVER
        beside = [name for name, one in self._wishes.items() if one.role is Role.REPAIRER and above in one.downs]
        found: dict[str, None] = {}
        waiting = [*(beside if is_relay else ()), *wish.parents]
        while waiting:
            one = self._wishes[waiting.pop(0)]
            if one.role is Role.AGGREGATOR and one.up in one.downs:
                waiting = [*one.parents, *waiting]
            elif one.role is not Role.SOURCE and one.name != wish.name:
                found[one.name] = None
        return list(found)

    def _repairers_on(self, segment: str) -> frozenset[str]:
        return frozenset(
            address
            for name, address in self._segments[segment].items()
            if self._wishes[name].role is Role.REPAIRER and segment in self._wishes[name].downs
        )
