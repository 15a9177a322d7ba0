"""Life of one packet: what each node knows of it."""

from __future__ import annotations

import enum

import attrs

from pgm.core.structures.ranges import RangeTable, SqnRange
from pgm.flight.record import FlightKind
from pgm.flight.verdicts.view import FlightEvent, FlightView, NodeFlight
from pgm.units import SECOND
from pgm.wire.formats import Tsi
from pgm.wire.sequence_numbers import HALF, MASK

_PROGRESS = (FlightKind.SENT, FlightKind.REACHED)
_ARRIVALS = (FlightKind.REPAIRED, FlightKind.LATE, FlightKind.MENDED)
_ENDS = (*_ARRIVALS, FlightKind.SKIPPED, FlightKind.GAVE_UP, FlightKind.LOST)


_MOST_MISSING_NS = 20 * SECOND  # that a packet may be missing while others wait for it


class Presence(enum.Enum):
    """Whether a node had a packet at first, as far as its recorder tells."""

    SENT = "sent"  # the source sent it
    HAD = "had"  # it arrived in order
    MISSED = "missed"  # it was detected as missing
    EARLIER = "earlier"  # its recorder, or its part in the session, begins later
    NOT_YET = "not yet"  # the node has not come that far
    UNKNOWN = "unknown"


@attrs.frozen
class PacketState:
    """Knowledge of one node about the packet. Times are on the common time line, in ns since 1970; 0: unknown.

    `outcome` is empty, "repaired", "late", "mended", "skipped", "given up", "lost" or "pending".
    """

    node: NodeFlight = attrs.field(eq=False)
    presence: Presence
    after_ns: int = 0  # the packet was sent, or its existence was known, after this time
    by_ns: int = 0  # and by this time
    gap_ns: int = 0
    outcome: str = ""
    end_ns: int = 0
    source: str = ""  # the node whose packet ended the gap
    cause: str = ""  # of a loss
    is_uncertain: bool = False  # the recorder left out records at that time

    @property
    def took_ns(self) -> int:
        """Time from the gap to its end; 0 without an end."""
        return self.end_ns - self.gap_ns if self.gap_ns and self.end_ns else 0

    @property
    def is_lost(self) -> bool:
        """Whether the application did not get the packet."""
        return self.outcome in ("lost", "given up")


@attrs.define(eq=False)
class PacketLife:
    """All that the recorders have of one packet: `sqn` of 32 bits, of one session."""

    view: FlightView
    tsi: Tsi
    sqn: int
    _events: dict[str, list[FlightEvent]] = attrs.field(factory=dict)
    _states: dict[str, PacketState] = attrs.field(factory=dict)

    def events(self, node: NodeFlight, *kinds: FlightKind) -> list[FlightEvent]:
        """Return a node's events about the packet, in the order of time."""
        found = self._events.get(node.name)
        if found is None:
            found = self._events[node.name] = node.events(self.tsi, self.sqn)
        return [event for event in found if event.kind in kinds] if kinds else found

    def state(self, node: NodeFlight) -> PacketState:
        """Return what a node knows of the packet."""
        state = self._states.get(node.name)
        if state is None:
            state = self._states[node.name] = self._state(node)
        return state

    def missing_at(self, node: NodeFlight, time_ns: int) -> int:
        """Return how many sqns of the session a node missed at an instant, those of the last seconds."""
        missing: RangeTable[SqnRange] = RangeTable()
        for event in node.events(self.tsi, None, (FlightKind.GAP, *_ENDS), time_ns - _MOST_MISSING_NS):
            if event.time_ns > time_ns:
                break
            first = ((event.first - self.sqn + HALF) & MASK) - HALF
            missing.discard(first, first + event.count)
            if event.kind is FlightKind.GAP:
                missing.add(SqnRange(first, first + event.count))
        return sum(one.count for one in missing)

    def states(self) -> list[PacketState]:
        """Return the states of all nodes that take part in the session, from the source down."""
        nodes = [node for node in self.view.nodes.values() if self.tsi in node.tsis_any()]
        return [self.state(node) for node in sorted(nodes, key=lambda node: (self.depth(node), node.name))]

    def depth(self, node: NodeFlight) -> int:
        """Return how many segments lie between the source and a node."""
        depth, at, seen = 0, node, {node.name}
        while at.ups:
            feeder = self.view.feeder_of(at.ups[0], self.tsi)
            depth += 1
            if feeder is None or feeder.name in seen:
                break
            seen.add(feeder.name)
            at = feeder
        return depth

    def _state(self, node: NodeFlight) -> PacketState:
        progress = next(iter(self.events(node, *_PROGRESS)), None)
        after_ns, by_ns = (0, 0) if progress is None else (progress.time_ns - progress.value, progress.time_ns)
        # A relay may get the repair of another node's request before its gap counts as more than reordering.
        gap = next(iter(self.events(node, FlightKind.GAP, FlightKind.MENDED)), None)
        lost = next(iter(self.events(node, FlightKind.LOST)), None)
        if gap is None:
            presence = self._presence(node, progress)
            outcome = "lost" if lost is not None else ""
            end_ns, cause = (lost.time_ns, lost.cause) if lost is not None else (0, "")
            state = PacketState(node, presence, after_ns, by_ns, outcome=outcome, end_ns=end_ns, cause=cause)
            return attrs.evolve(state, is_uncertain=self._has_left_out(node, by_ns))
        state = PacketState(node, Presence.MISSED, after_ns, by_ns, gap.time_ns, "pending")
        for event in self.events(node, *_ENDS):
            if event.time_ns < gap.time_ns:
                continue
            if event.kind in _ARRIVALS or event.kind is FlightKind.SKIPPED:
                name = event.kind.name.lower()
                source = self.view.name_of(event.peer, event.segment) if event.peer else ""
                return attrs.evolve(state, outcome=name, end_ns=event.time_ns, source=source, cause="")
            outcome = "lost" if event.kind is FlightKind.LOST else "given up"
            cause = event.cause if event.kind is FlightKind.LOST else state.cause
            state = attrs.evolve(state, outcome=outcome, end_ns=event.time_ns, cause=cause)
        return state

    def _presence(self, node: NodeFlight, progress: FlightEvent | None) -> Presence:
        opened = node.events(self.tsi, None, (FlightKind.OPENED,))
        if node.role == "receiver" and opened and 0 < (opened[0].first - self.sqn) & MASK < HALF:
            return Presence.EARLIER
        if progress is not None:
            return Presence.SENT if progress.kind is FlightKind.SENT else Presence.HAD
        known = node.events(self.tsi, None, _PROGRESS)
        if not known:
            return Presence.UNKNOWN
        if (self.sqn - known[-1].first) & MASK < HALF:
            return Presence.NOT_YET
        return Presence.EARLIER

    def _has_left_out(self, node: NodeFlight, at_ns: int) -> bool:
        left_out = node.events(None, None, (FlightKind.SKIPPED_RECORDS,))
        return any(0 <= event.time_ns - at_ns <= 2 * SECOND for event in left_out)
