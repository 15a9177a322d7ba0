"""Observer that writes what befell the lost packets of one node into its ring.

The recorder sees what telemetry sees (`pgm.telemetry.observers`), and writes no row for data that arrive in order: a read
of data costs it two comparisons. The progress of sessions and the counters of drops are read once in `flight_sample_ivl`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence

from pgm.core.effects import Closed, Conflict, Deliver, Effect, Forged, Lost, Opened, Send
from pgm.core.interface import Core
from pgm.core.loss_observer import MissingView
from pgm.core.segment import Channel
from pgm.flight.counter_watch import CounterWatch
from pgm.flight.own_packets import own_repairs, own_requests
from pgm.flight.record import MOST_TRIES, FlightKind, cause_place
from pgm.flight.record_writer import NO_DETAIL, Detail, RecordWriter, Sqns
from pgm.flight.ring import FlightRing
from pgm.telemetry.observers import Span
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MILLISECOND, SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import (
    TYPE_AT,
    Nla,
    PacketType,
    Tsi,
)
from pgm.wire.sequence_numbers import MASK, spans_of
from pgm.wire.train import Data, Train

_STEP_NS = MILLISECOND  # of the time of day, from which a change is a record
_SESSIONS_A_READING = 32  # that cost as much as the rest of a reading
_READ_KINDS = {PacketType.NAK: FlightKind.NAK_IN, PacketType.NCF: FlightKind.NCF_IN}
_SENT_KINDS = {PacketType.NAK: FlightKind.NAK_OUT, PacketType.NCF: FlightKind.NCF_OUT}
_TOLD = frozenset(map(int, (PacketType.RDATA, PacketType.NAK, PacketType.NCF)))
_NAK = int(PacketType.NAK)
_PLACE = operator.itemgetter(0)


class FlightRecorder:
    """Observer of one core and its driver. `wall_offset_ns` returns the time of day minus the core's clock."""

    sees_singles = False  # single packets of the fast path arrive in order, and so are no news

    def __init__(
        self, plan: NodePlan, core: Core, ring: FlightRing, now_ns: int, wall_offset_ns: Callable[[], int]
    ) -> None:
        self._core = core
        self._writer = RecordWriter(ring, plan.parameters.flight_rte, now_ns)
        self._watch = CounterWatch(core.counters, self._writer)
        self._wall_offset_ns = wall_offset_ns
        self._offset_ns = wall_offset_ns()
        self._offset_at_ns = now_ns + SECOND
        self._progress_kind = FlightKind.SENT if plan.role is Role.SOURCE else FlightKind.REACHED
        self._up = next((place for place, segment in enumerate(plan.segments) if segment.upstream), 0)
        self._sample_ivl = plan.parameters.flight_sample_ivl
        self._sample_at_ns = now_ns
        self._leads: dict[Tsi, tuple[int, int]] = {}  # lead, and the time when it was read
        self._has_filled = False  # whether the train that the core takes brought missing packets
        self._arrived: list[tuple[int, tuple[Sqns, Detail]]] = []  # ranges that wait for `filled`, by place
        self._untold: tuple[Train, Channel, Nla] | None = None  # the train that the core takes now
        self._writer.set_wall_offset(self._offset_ns)
        self._writer.add(FlightKind.BEGAN, detail=(self._offset_ns, 0, 0, 0))
        self._sample(now_ns)

    # Readings

    def _sample(self, now_ns: int) -> None:
        """Write how far each session has come, and what the sockets dropped."""
        writer, leads = self._writer, self._leads
        writer.now_ns = now_ns
        writer.has_new_second()
        self._leads = {}
        sessions = self._core.edges()
        for tsi, data_port, trail, lead in sessions:
            before = leads.get(tsi)
            if before is None:  # a session that was not read before
                writer.place_of(tsi, data_port)
                before = (trail - 1 if self._progress_kind is FlightKind.SENT else lead), now_ns
            if lead > before[0]:
                sqns = before[0] + 1, min(lead - before[0], MASK)
                writer.add(self._progress_kind, writer.place_of(tsi), sqns, detail=(now_ns - before[1], 0, 0, 0))
            self._leads[tsi] = lead, now_ns
        self._watch.note_drops()
        if now_ns >= self._offset_at_ns:
            self._follow_clock(now_ns)
        # A node with many sessions reads them less often, so that readings take a bounded share of its time.
        self._sample_at_ns = now_ns + self._sample_ivl * (1 + len(sessions) // _SESSIONS_A_READING)

    def _follow_clock(self, now_ns: int) -> None:
        self._offset_at_ns = now_ns + SECOND
        offset_ns = self._wall_offset_ns()
        step_ns, self._offset_ns = offset_ns - self._offset_ns, offset_ns
        self._writer.set_wall_offset(offset_ns)
        if abs(step_ns) >= _STEP_NS:
            self._writer.add(FlightKind.CLOCK, detail=(step_ns, 0, 0, 0))

    # Reports of the core: `pgm.core.loss_observer` documents these calls

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Write a gap, behind what the sockets dropped just before."""
        self._writer.now_ns = now_ns
        self._watch.note_drops()
        self._writer.add(FlightKind.GAP, self._writer.place_of(tsi), (first, end - first), self._up)

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Keep the ranges until `filled` reports the packet that brought them."""
        self._writer.now_ns = now_ns
        place = self._writer.place_of(tsi)
        self._arrived += [(place, _told_of(missing, now_ns - missing.found_at_ns)) for missing in found]

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Write the ranges that arrived, as repaired or late."""
        arrived, self._arrived, self._has_filled = self._arrived, [], True
        what = FlightKind.REPAIRED if kind is PacketType.RDATA else FlightKind.LATE
        for place, parts in itertools.groupby(arrived, key=_PLACE):
            self._writer.add_each(what, place, [part for _, part in parts], self._up, peer)

    def _write(self, kind: FlightKind, tsi: Tsi, missing: MissingView, since_ns: int, now_ns: int) -> None:
        self._writer.now_ns = now_ns
        sqns, detail = _told_of(missing, now_ns - since_ns)
        self._writer.add(kind, self._writer.place_of(tsi), sqns, self._up, "", detail)

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range that will not be requested again."""
        self._write(FlightKind.GAVE_UP, tsi, found, found.found_at_ns, now_ns)

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write nothing: the NCF is a record."""

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range that another node requested first."""
        self._write(FlightKind.SUPPRESSED, tsi, found, found.found_at_ns, now_ns)

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range whose wait for an NCF or RDATA timed out."""
        kind = FlightKind.NCF_TIMEOUT if found.state_name == "WAIT_NCF" else FlightKind.RDATA_TIMEOUT
        self._write(kind, tsi, found, found.since_ns, now_ns)

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Write sqns that were never sent, and so were no gap."""
        self._add_sqns(FlightKind.SKIPPED, tsi, first, end - first)

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Write sqns that an aggregator missed and then received, behind what the sockets dropped before."""
        self._watch.note_drops()
        self._add_sqns(FlightKind.MENDED, tsi, first, end - first)

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Write nothing: the status has the progress of lines."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Write a change of the parent that receives the NAKs."""
        self._writer.add(FlightKind.PARENT, segment=self._up, peer=new or "")

    # Reports of the driver

    def received(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        """Keep a train with requests, confirmations or repairs until the core has taken it, and so has parsed it."""
        if now_ns >= self._sample_at_ns:
            self._sample(now_ns)
        self._writer.now_ns = now_ns
        if train.length > TYPE_AT and (kind := train.buffer.item(train.offset + TYPE_AT)) in _TOLD:
            self._untold, self._has_filled = (train, channel, peer), False
            if kind == _NAK:
                self._watch.begin_request()

    def taken(self) -> None:
        """Write the requests, confirmations and repairs of the train, and the budgets that they met."""
        if self._untold is None:
            return
        (train, channel, peer), self._untold = self._untold, None
        segment = channel.segment.index
        for item in train.parse_runs_untrusted()[0]:
            place = self._writer.known_place(item.tsi)
            if place is None:
                continue  # no session of this node: anybody can send such packets
            if isinstance(item, Data):
                if item.type is PacketType.RDATA and not (item.parity or self._has_filled):
                    self._writer.add(FlightKind.RDATA_IN, place, (item.wire_sqn, item.count), segment, peer)
            elif isinstance(item, Nak) and item.kind in _READ_KINDS and not item.parity:
                spans = spans_of(item.sqns)
                self._add_spans(_READ_KINDS[item.kind], place, spans, segment, peer)
                if item.kind is PacketType.NAK:
                    self._watch.end_request(place, spans, segment, peer)

    def performed(self, effects: Sequence[Effect], now_ns: int) -> None:
        """Write the requests, answers and losses among the effects that the driver performs."""
        for effect in effects:
            kind = type(effect)
            if kind is Deliver:
                continue
            if kind is Send:
                assert isinstance(effect, Send)
                if int(effect.octets[TYPE_AT]) in _TOLD:
                    self._writer.now_ns = now_ns
                    self._sent(effect)
            elif isinstance(effect, (Lost, Forged, Conflict, Opened, Closed)):
                self._writer.now_ns = now_ns
                self._told(effect)
        if now_ns >= self._sample_at_ns:
            self._sample(now_ns)

    def _told(self, effect: Lost | Forged | Conflict | Opened | Closed) -> None:
        if isinstance(effect, (Lost, Forged)):
            kind = FlightKind.LOST if isinstance(effect, Lost) else FlightKind.FORGED
            self._add_sqns(kind, effect.tsi, effect.first, effect.count, effect.cause.value)
        elif isinstance(effect, Conflict):
            cause = "delivered" if effect.is_delivered else "dropped"
            self._add_sqns(FlightKind.CONFLICT, effect.tsi, effect.first, effect.count, cause)
        elif isinstance(effect, Opened):
            place = self._writer.place_of(effect.tsi, effect.data_port)
            detail = 0, 0, cause_place("resumed" if effect.resumed else "begins"), 0
            self._writer.add(FlightKind.OPENED, place, (effect.first, 0), self._up, effect.peer, detail)
        else:
            self._add_sqns(FlightKind.CLOSED, effect.tsi, effect.next_sqn, 0, effect.cause.value)

    def _add_sqns(self, kind: FlightKind, tsi: Tsi, first: int, count: int, cause: str = "") -> None:
        place, detail = self._writer.place_of(tsi), (0, 0, cause_place(cause), 0)
        self._writer.add(kind, place, (first, count), self._up, "", detail)

    def _sent(self, send: Send) -> None:
        segment, to = send.segment.index, send.to or ""
        if send.is_data:
            tsi, spans = own_repairs(send)
            if tsi:
                self._add_spans(FlightKind.RDATA_OUT, self._writer.place_of(tsi), spans, segment, to)
            return
        for kind, tsi, sqns in own_requests(send):
            self._add_spans(_SENT_KINDS[kind], self._writer.place_of(tsi), spans_of(sqns), segment, to)

    def _add_spans(self, kind: FlightKind, place: int, spans: Iterable[Span], segment: int, peer: Nla) -> None:
        parts = [((first, end - first), NO_DETAIL) for first, end in spans]
        self._writer.add_each(kind, place, parts, segment, peer)

    def close(self) -> None:
        """Write how far the sessions have come."""
        self._sample(self._writer.now_ns)


def _told_of(missing: MissingView, value: int) -> tuple[Sqns, Detail]:
    """Return sqns and detail of a record about a range."""
    tries = min(missing.ncf_retries + missing.data_retries, MOST_TRIES)
    return (missing.first, missing.end - missing.first), (value, tries, cause_place(missing.state_name), 0)
