"""View of the recorders of many nodes on one time line, and the events of single sqns in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np

from pgm.errors import UsageError
from pgm.flight.contents import RingContents
from pgm.flight.record import FlightKind, address_text
from pgm.flight.verdicts.clocks import HostClock, estimate_clocks
from pgm.wire.formats import Nla, Tsi, tsi_text
from pgm.wire.sequence_numbers import MASK


@attrs.frozen
class FlightEvent:
    """One record on the common time line, in ns since 1970 by the clock of the reference host."""

    node: str
    time_ns: int
    kind: FlightKind
    first: int
    count: int
    segment: str
    peer: Nla
    value: int
    tries: int
    cause: str
    since_ns: int

    def covers(self, sqn: int) -> bool:
        """Return whether the range has a sqn of 32 bits."""
        return (sqn - self.first) & MASK < self.count


@attrs.frozen
class NodeFlightPlace:
    """Place of a node on a segment."""

    segment: str
    side: str  # up, down or both
    address: Nla
    is_leg: bool


@attrs.define(eq=False)
class NodeFlight:
    """Recorder of one node, on the common time line."""

    contents: list[RingContents]
    shifts_ns: list[int]  # for each of the contents: from its clock to the common time line

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.contents[0].node

    @property
    def role(self) -> str:
        """Role of the node."""
        return self.contents[0].role

    @property
    def host(self) -> str:
        """Name of the node's host."""
        return str(self.contents[0].facts["host"])

    @property
    def places(self) -> tuple[NodeFlightPlace, ...]:
        """Places of the node on its segments."""
        rows = self.contents[0].facts["segments"]
        return tuple(
            NodeFlightPlace(str(row["name"]), str(row["side"]), str(row["address"]), bool(row["is_leg"]))
            for row in rows
        )

    @property
    def ups(self) -> tuple[str, ...]:
        """Segments that bring the streams to the node."""
        return () if self.role == "source" else tuple(one.segment for one in self.places if one.side != "down")

    @property
    def is_relay(self) -> bool:
        """Whether the node passes streams from one segment to another."""
        return self.role in ("aggregator", "repairer") and any(one.side == "down" for one in self.places)

    @property
    def feeds(self) -> tuple[str, ...]:
        """Segments that get first copies of the data from the node."""
        if self.role == "source":
            return tuple(one.segment for one in self.places)
        return tuple(one.segment for one in self.places if one.side == "down") if self.is_relay else ()

    def address_on(self, segment: str) -> Nla:
        """Return the node's address on a segment; empty if it is not there."""
        return next((one.address for one in self.places if one.segment == segment), "")

    def timer(self, name: str) -> int:
        """Return a timer of the node in ns, or a limit; 0 if it is unknown."""
        return int(self.contents[0].facts["timers"].get(name, 0))

    def ports_of(self, stream: str) -> set[int]:
        """Return the data ports of a stream, by its name or its port."""
        rows = [row for one in self.contents for row in one.facts["streams"]]
        return {int(row["data_port"]) for row in rows if stream in (row["name"], str(row["data_port"]))}

    def tsis(self, ports: set[int]) -> set[Tsi]:
        """Return the sessions on some data ports."""
        return {tsi for one in self.contents for tsi, port in one.sessions if port in ports}

    def tsis_any(self) -> set[Tsi]:
        """Return all sessions that the node has recorded."""
        return {tsi for one in self.contents for tsi, _ in one.sessions}

    @property
    def is_standby(self) -> bool:
        """Whether the node stands in for another relay."""
        return bool(self.contents[0].facts["is_standby"])

    def events(
        self, tsi: Tsi | None, sqn: int | None, kinds: Sequence[FlightKind] = (), since_ns: int | None = None
    ) -> list[FlightEvent]:
        """Return events in the order of time: of a session, or of no session if None; about a sqn, or about any."""
        found: list[FlightEvent] = []
        for contents, shift_ns in zip(self.contents, self.shifts_ns, strict=True):
            records = contents.records
            places = [place for place, (own, _) in enumerate(contents.sessions) if own == tsi]
            mask = np.isin(records["tsi"], places) if tsi is not None else records["tsi"] >= len(contents.sessions)
            if kinds:
                mask &= np.isin(records["kind"], [int(kind) for kind in kinds])
            if since_ns is not None:
                mask &= records["time_ns"] >= since_ns - shift_ns
            if sqn is not None:
                # unsigned arithmetic wraps around as sqns do
                mask &= (np.uint32(sqn & MASK) - records["first"]).astype(np.uint32) < records["count"]
            found += [event for row in records[mask] if (event := self._event(contents, row, shift_ns)) is not None]
        return sorted(found, key=lambda event: event.time_ns)

    def _event(self, contents: RingContents, row: np.void, shift_ns: int) -> FlightEvent | None:
        try:
            kind = FlightKind(int(row["kind"]))
        except ValueError:
            return None  # a kind of a later version
        return FlightEvent(
            self.name,
            int(row["time_ns"]) + shift_ns,
            kind,
            int(row["first"]),
            int(row["count"]),
            contents.segment(int(row["segment"])),
            address_text(bytes(row["peer"])),
            int(row["value"]),
            int(row["tries"]),
            contents.cause(int(row["cause"])),
            int(row["since_us"]) * 1000,
        )

    @property
    def span_ns(self) -> tuple[int, int]:
        """Times of the first and of the last record."""
        firsts, lasts = [], []
        for contents, shift_ns in zip(self.contents, self.shifts_ns, strict=True):
            if len(contents.records):
                firsts.append(int(contents.records["time_ns"][0]) + shift_ns)
                lasts.append(int(contents.records["time_ns"][-1]) + shift_ns)
        return (min(firsts), max(lasts)) if firsts else (0, 0)


@attrs.define(eq=False)
class FlightView:
    """Recorders of all nodes that were reached."""

    nodes: dict[str, NodeFlight]
    clocks: dict[str, HostClock]

    @classmethod
    def of(cls, rings: Iterable[RingContents]) -> FlightView:
        """Put rings on one time line: that of the host of a source, if there is one."""
        every = [ring for ring in rings if ring.node]
        offsets: dict[str, int] = {}
        for ring in every:  # nodes of one host read the same clocks, so one reading serves all
            offsets.setdefault(ring.boot_id, ring.wall_offset_ns)
        every = [attrs.evolve(ring, wall_offset_ns=offsets[ring.boot_id]) for ring in every]
        reference = next((ring.boot_id for ring in every if ring.role == "source"), every[0].boot_id if every else "")
        clocks = estimate_clocks(every, reference)
        nodes: dict[str, NodeFlight] = {}
        for ring in every:
            shift_ns = ring.wall_offset_ns - clocks[ring.boot_id].ahead_ns
            node = nodes.setdefault(ring.node, NodeFlight([], []))
            node.contents.append(ring)
            node.shifts_ns.append(shift_ns)
        return cls(nodes, clocks)

    def node_at(self, address: Nla, segment: str = "") -> NodeFlight | None:
        """Return the node with an address, on a segment if there are several; elements come first."""
        found = [node for node in self.nodes.values() if any(one.address == address for one in node.places)]
        near = [node for node in found if node.address_on(segment) == address] or found
        return min(near, key=lambda node: node.role == "receiver", default=None)

    def name_of(self, address: Nla, segment: str = "") -> str:
        """Return the name of the node with an address, or the address."""
        node = self.node_at(address, segment)
        return address if node is None else node.name

    def feeder_of(self, segment: str, tsi: Tsi) -> NodeFlight | None:
        """Return the node that sends first copies of a session to a segment: its source, or a relay that works."""
        feeders = [node for node in self.nodes.values() if segment in node.feeds and tsi in node.tsis_any()]
        return min(feeders, key=lambda node: (node.role != "source", node.is_standby), default=None)

    def listeners_of(self, segment: str, tsi: Tsi) -> list[NodeFlight]:
        """Return the nodes that take a session from a segment."""
        return [node for node in self.nodes.values() if segment in node.ups and tsi in node.tsis_any()]

    def has_stream(self, stream: str) -> bool:
        """Return whether a node has recorded a stream, given by its name, its data port, or a TSI."""
        tsis = {tsi_text(tsi) for node in self.nodes.values() for tsi in node.tsis_any()}
        return stream in tsis or any(node.tsis(node.ports_of(stream)) for node in self.nodes.values())

    def sessions_of(self, stream: str) -> set[Tsi]:
        """Return the sessions of a stream, given by its name, its data port, or a TSI. Raises `UsageError`."""
        known = {tsi_text(tsi): tsi for node in self.nodes.values() for tsi in node.tsis_any()}
        if stream in known:
            return {known[stream]}
        ports = {port for node in self.nodes.values() for port in node.ports_of(stream)}
        tsis = {tsi for node in self.nodes.values() for tsi in node.tsis(ports)}
        if not tsis:
            names = sorted(
                {
                    str(row["name"])
                    for node in self.nodes.values()
                    for one in node.contents
                    for row in one.facts["streams"]
                }
            )
            raise UsageError(
                f"no node has recorded a stream {stream!r}",
                remedy=f"choose one of {', '.join(names)}" if names else "check that the nodes run: pgm status",
            )
        return tsis
