"""Observer that writes what befell the lost packets of one node into its ring.

The recorder sees what telemetry sees (`pgm.telemetry.observers`), and writes no row for data that arrive in order: a read
of data costs it two comparisons. The progress of sessions and the counters of drops are read once in `flight_sample_ivl`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from pgm.core.effects import Closed, Conflict, Deliver, Effect, Forged, Lost, Opened, Send
from pgm.core.interface import Core
from pgm.core.loss_observer import MissingView
from pgm.core.segment import Channel
from pgm.flight.record import (
    BODY,
    DROPPING,
    MOST_TRIES,
    NO_PEER,
    NO_SEGMENT,
    NO_TSI,
    SHEDDING,
    RecordKind,
    address_octets,
    cause_place,
)
from pgm.flight.ring import FlightRing
from pgm.telemetry.observers import Span
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MICROSECOND, MILLISECOND, SECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import (
    FLAGS_AT,
    HEADER,
    HEADER_OCTETS,
    OPTIONS_PARITY,
    SQN_AT,
    TYPE_AT,
    Nla,
    PacketType,
    Tsi,
)
from pgm.wire.sequence_numbers import MASK, spans_of
from pgm.wire.train import Data, Octets, Train

_MOST_PEERS = 4096  # addresses whose octets are kept
_STEP_NS = MILLISECOND  # of the time of day, from which a change is a record
_READ_KINDS = {PacketType.NAK: RecordKind.NAK_IN, PacketType.NCF: RecordKind.NCF_IN}
_SENT_KINDS = {PacketType.NAK: RecordKind.NAK_OUT, PacketType.NCF: RecordKind.NCF_OUT}
_TOLD = frozenset(map(int, (PacketType.RDATA, PacketType.NAK, PacketType.NCF)))
_NAK = int(PacketType.NAK)
_MOST_SINCE_US = 0xFFFFFFFF


class FlightRecorder:
    """Observer of one core and its driver. `wall_offset_ns` returns the time of day minus the core's clock."""

    sees_singles = False  # single packets of the fast path arrive in order, and so are no news

    def __init__(
        self, plan: NodePlan, core: Core, ring: FlightRing, now_ns: int, wall_offset_ns: Callable[[], int]
    ) -> None:
        self._ring = ring
        self._core = core
        self._wall_offset_ns = wall_offset_ns
        self._offset_ns = wall_offset_ns()
        self._now_ns = now_ns
        self._is_source = plan.role is Role.SOURCE
        self._up = next((place for place, segment in enumerate(plan.segments) if segment.upstream), 0)
        self._sample_ivl = plan.parameters.flight_sample_ivl
        self._sample_at_ns = now_ns
        self._offset_at_ns = now_ns + SECOND
        self._most_records = plan.parameters.flight_rte  # a second
        self._left = self._most_records
        self._second_ns = now_ns + SECOND
        self._skipped = 0
        self._places: dict[Tsi, int] = {}
        self._leads: dict[Tsi, tuple[int, int]] = {}  # lead, and the time when it was read
        self._peers: dict[Nla, bytes] = {}
        self._arrived: list[tuple[int, int, int, int, int, int]] = []  # ranges that wait for `filled`
        self._drops = [getattr(core.counters, name) for name in DROPPING]
        self._drops_at_ns = now_ns
        self._sheds = [getattr(core.counters, name) for name in SHEDDING]
        self._untold: tuple[Train, Channel, Nla] | None = None  # the train that the core takes now
        ring.set_wall_offset(self._offset_ns)
        self._add(RecordKind.BEGAN, value=self._offset_ns)
        self._sample(now_ns)

    # Writing

    def _add(
        self,
        kind: RecordKind,
        place: int = NO_TSI,
        first: int = 0,
        count: int = 0,
        segment: int = NO_SEGMENT,
        peer: Nla = "",
        value: int = 0,
        tries: int = 0,
        cause: int = 0,
        since_us: int = 0,
    ) -> None:
        if self._left <= 0 and not self._has_new_second():
            self._skipped += 1
            return
        self._left -= 1
        octets = self._peers.get(peer) or self._peer_octets(peer)
        self._ring.append(
            BODY.pack(self._now_ns, value, first & MASK, count, place, tries, kind, segment, cause, octets, since_us)
        )

    def _has_new_second(self) -> bool:
        if self._now_ns < self._second_ns:
            return False
        self._second_ns = self._now_ns + SECOND
        self._left = self._most_records
        if self._skipped:
            skipped, self._skipped = self._skipped, 0
            self._add(RecordKind.SKIPPED_RECORDS, value=skipped)
        return True

    def _peer_octets(self, peer: Nla) -> bytes:
        if not peer:
            return NO_PEER
        if len(self._peers) >= _MOST_PEERS:
            self._peers.clear()
        octets = self._peers[peer] = address_octets(peer)
        return octets

    def _place_of(self, tsi: Tsi, data_port: int = 0) -> int:
        place = self._places.get(tsi)
        if place is None:
            place = self._places[bytes(tsi)] = self._ring.session(bytes(tsi), data_port)
        return place

    # Readings

    def _sample(self, now_ns: int) -> None:
        """Write how far each session has come, and what the sockets dropped."""
        self._now_ns = now_ns
        if now_ns >= self._second_ns:
            self._has_new_second()
        rows = self._core.status(now_ns)
        kind = RecordKind.SENT if self._is_source else RecordKind.REACHED
        leads = self._leads
        self._leads = {}
        for row in rows:
            tsi = _tsi_octets(row.tsi)
            place = self._place_of(tsi, row.data_port)
            before, before_ns = leads.get(tsi, (row.trail - 1 if self._is_source else row.lead, now_ns))
            if row.lead > before:
                self._add(kind, place, before + 1, min(row.lead - before, MASK), value=now_ns - before_ns)
            self._leads[tsi] = row.lead, now_ns
        self._note_drops(now_ns)
        if now_ns >= self._offset_at_ns:
            self._follow_clock(now_ns)
        # A node with many sessions reads them less often, so that readings take a bounded share of its time.
        self._sample_at_ns = now_ns + self._sample_ivl * (1 + len(rows) // 4)

    def _follow_clock(self, now_ns: int) -> None:
        self._offset_at_ns = now_ns + SECOND
        offset_ns = self._wall_offset_ns()
        step_ns, self._offset_ns = offset_ns - self._offset_ns, offset_ns
        self._ring.set_wall_offset(offset_ns)
        if abs(step_ns) >= _STEP_NS:
            self._add(RecordKind.CLOCK, value=step_ns)

    def _note_drops(self, now_ns: int) -> None:
        counters, drops = self._core.counters, self._drops
        since_us = min((now_ns - self._drops_at_ns) // MICROSECOND, _MOST_SINCE_US)
        for at, name in enumerate(DROPPING):
            more = getattr(counters, name) - drops[at]
            if more:
                drops[at] += more
                self._add(RecordKind.DROPPED, value=more, cause=cause_place(name), since_us=since_us)
        self._drops_at_ns = now_ns

    def _note_sheds(self, place: int, spans: Sequence[Span], segment: int, peer: Nla) -> None:
        """Write which budgets a request met: their counters have grown."""
        counters, sheds = self._core.counters, self._sheds
        for at, name in enumerate(SHEDDING):
            more = getattr(counters, name) - sheds[at]
            if more:
                sheds[at] += more
                for first, end in spans:
                    self._add(RecordKind.SHED, place, first, end - first, segment, peer, more, cause=cause_place(name))

    # Reports of the core: `pgm.core.loss_observer` documents these calls

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Write a gap, behind what the sockets dropped just before."""
        self._now_ns = now_ns
        if now_ns > self._drops_at_ns:
            self._note_drops(now_ns)
        self._add(RecordKind.GAP, self._place_of(tsi), first, end - first, self._up)

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Keep the ranges until `filled` reports the packet that brought them."""
        self._now_ns = now_ns
        place = self._place_of(tsi)
        self._arrived += [
            (
                place,
                missing.first,
                missing.end - missing.first,
                now_ns - missing.found_at_ns,
                min(missing.ncf_retries + missing.data_retries, MOST_TRIES),
                cause_place(missing.state_name),
            )
            for missing in found
        ]

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Write the ranges that arrived, as repaired or late."""
        arrived, self._arrived = self._arrived, []
        what = RecordKind.REPAIRED if kind is PacketType.RDATA else RecordKind.LATE
        for place, first, count, value, tries, cause in arrived:
            self._add(what, place, first, count, self._up, peer, value, tries, cause)

    def _write(self, kind: RecordKind, tsi: Tsi, missing: MissingView, since_ns: int, now_ns: int) -> None:
        self._now_ns = now_ns
        tries = min(missing.ncf_retries + missing.data_retries, MOST_TRIES)
        count, cause = missing.end - missing.first, cause_place(missing.state_name)
        self._add(kind, self._place_of(tsi), missing.first, count, self._up, "", now_ns - since_ns, tries, cause)

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range that will not be requested again."""
        self._write(RecordKind.GAVE_UP, tsi, found, found.found_at_ns, now_ns)

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range whose own NAK has been confirmed."""
        self._write(RecordKind.CONFIRMED, tsi, found, found.since_ns, now_ns)

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range that another node requested first."""
        self._write(RecordKind.SUPPRESSED, tsi, found, found.found_at_ns, now_ns)

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range whose wait for an NCF or RDATA timed out."""
        kind = RecordKind.NCF_TIMEOUT if found.state_name == "WAIT_NCF" else RecordKind.RDATA_TIMEOUT
        self._write(kind, tsi, found, found.since_ns, now_ns)

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Write sqns that were never sent, and so were no gap."""
        self._add(RecordKind.SKIPPED, self._place_of(tsi), first, end - first, self._up)

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Write sqns that an aggregator missed and then received."""
        self._add(RecordKind.MENDED, self._place_of(tsi), first, end - first, self._up)

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Write nothing: the status has the progress of lines."""

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Write a change of the parent that receives the NAKs."""
        self._add(RecordKind.PARENT, segment=self._up, peer=new or "")

    # Reports of the driver

    def received(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        """Keep a train with requests, confirmations or repairs until the core has taken it, and so has parsed it."""
        if now_ns >= self._sample_at_ns:
            self._sample(now_ns)
        if train.length > TYPE_AT and (kind := train.buffer.item(train.offset + TYPE_AT)) in _TOLD:
            self._now_ns = now_ns
            self._untold = train, channel, peer
            if kind == _NAK:
                self._sheds = [getattr(self._core.counters, name) for name in SHEDDING]

    def taken(self) -> None:
        """Write the requests, confirmations and repairs of the train, and the budgets that they met."""
        if self._untold is None:
            return
        (train, channel, peer), self._untold = self._untold, None
        segment = channel.segment.index
        for item in train.parse_runs_untrusted()[0]:
            place = self._places.get(item.tsi)
            if place is None:
                continue  # no session of this node: anybody can send such packets
            if isinstance(item, Data):
                if item.type is PacketType.RDATA and not item.parity:
                    self._add(RecordKind.RDATA_IN, place, item.wire_sqn, item.count, segment, peer)
            elif isinstance(item, Nak) and item.kind in _READ_KINDS and not item.parity:
                spans = spans_of(item.sqns)
                self._add_spans(_READ_KINDS[item.kind], place, spans, segment, peer)
                if item.kind is PacketType.NAK:
                    self._note_sheds(place, spans, segment, peer)

    def performed(self, effects: Sequence[Effect], now_ns: int) -> None:
        """Write the requests, answers and losses among the effects that the driver performs."""
        for effect in effects:
            kind = type(effect)
            if kind is Deliver:
                continue
            if kind is Send:
                assert isinstance(effect, Send)
                if effect.octets[TYPE_AT] in _TOLD:
                    self._now_ns = now_ns
                    self._sent(effect)
            elif isinstance(effect, (Lost, Forged, Conflict, Opened, Closed)):
                self._now_ns = now_ns
                self._told(effect)
        if now_ns >= self._sample_at_ns:
            self._sample(now_ns)

    def _told(self, effect: Lost | Forged | Conflict | Opened | Closed) -> None:
        if isinstance(effect, (Lost, Forged)):
            kind = RecordKind.LOST if isinstance(effect, Lost) else RecordKind.FORGED
            cause = cause_place(effect.cause.value)
            self._add(kind, self._place_of(effect.tsi), effect.first, effect.count, self._up, cause=cause)
        elif isinstance(effect, Conflict):
            cause = cause_place("delivered" if effect.is_delivered else "dropped")
            self._add(
                RecordKind.CONFLICT, self._place_of(effect.tsi), effect.first, effect.count, self._up, cause=cause
            )
        elif isinstance(effect, Opened):
            cause = cause_place("resumed" if effect.resumed else "begins")
            place = self._place_of(effect.tsi, effect.data_port)
            self._add(RecordKind.OPENED, place, effect.first, 0, self._up, effect.peer, cause=cause)
        else:
            cause = cause_place(effect.cause.value)
            self._add(RecordKind.CLOSED, self._place_of(effect.tsi), effect.next_sqn, 0, self._up, cause=cause)

    def _sent(self, send: Send) -> None:
        segment, to = send.segment.index, send.to or ""
        if send.is_data:
            tsi, spans = _repairs(send)
            if tsi:
                self._add_spans(RecordKind.RDATA_OUT, self._place_of(tsi), spans, segment, to)
            return
        for item in Train.of(send.octets, send.stride).parse_runs_untrusted()[0]:
            if isinstance(item, Nak) and item.kind in _SENT_KINDS and not item.parity:
                self._add_spans(_SENT_KINDS[item.kind], self._place_of(item.tsi), spans_of(item.sqns), segment, to)

    def _add_spans(self, kind: RecordKind, place: int, spans: Iterable[Span], segment: int, peer: Nla) -> None:
        for first, end in spans:
            self._add(kind, place, first, end - first, segment, peer)

    def close(self) -> None:
        """Write how far the sessions have come."""
        self._sample(self._now_ns)


def _repairs(send: Send) -> tuple[Tsi, list[Span]]:
    """Return the session and the sqns of a train of RDATA; no session for parity."""
    octets: Octets = send.octets if isinstance(send.octets, np.ndarray) else np.frombuffer(send.octets, np.uint8)
    head = octets[:HEADER_OCTETS].tobytes()
    if head[FLAGS_AT] & OPTIONS_PARITY:
        return b"", []
    sport, _, _, _, _, gsi, _ = HEADER.unpack(head)
    places = np.arange(0, octets.size, send.stride)[:, None] + np.arange(SQN_AT, SQN_AT + 4)
    return gsi + sport.to_bytes(2, "big"), spans_of(octets[places].view(">u4")[:, 0].tolist())


def _tsi_octets(text: str) -> Tsi:
    *gsi, port = text.split(".")
    return bytes(map(int, gsi)) + int(port).to_bytes(2, "big")
