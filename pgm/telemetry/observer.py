"""Observer that turns the protocol events of one node into telemetry rows.

The core reports losses, and the driver reports packets. Frequent events (data sent, received, delivered) are summed over
`telemetry_sample_ivl`. An event about a loss is one row for each run of sqns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import attrs

from pgm.core.effects import Closed, Conflict, Deliver, Effect, Forged, Lost, Opened, Send
from pgm.core.loss_observer import MissingView
from pgm.core.segment import Channel
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MICROSECOND, MILLISECOND
from pgm.wire.control_packets import Nak
from pgm.wire.formats import HEADER, SQN_AT, TYPE_AT, Nla, PacketType, Tsi, tsi_text
from pgm.wire.sequence_numbers import SPACE, spans_of, wrap
from pgm.wire.train import Data, Train

_TIMERS = ("nak_bo_ivl", "reorder_ivl", "nak_rpt_ivl", "nak_rdata_ivl")
_ODATA = int(PacketType.ODATA)  # a comparison of numpy's integers with a member of an enumeration takes 5 us
_SENT_AS = {PacketType.NAK: "nak_sent", PacketType.NCF: "ncf_sent"}

_MOST_LINES = 4096  # lines whose last row is kept: 64 sessions with 64 lines each
_STEP_NS = 100 * MILLISECOND  # of the time of day: programs that keep a clock right slew by less, and set it for more
_MOST_SUMS = 4096  # open sums; a sender with more names closes all sums early, which bounds memory


@attrs.define
class _LineRow:
    """The last row of one line: its time and the losses up to then."""

    at_us: int
    lost: int


@attrs.define
class _Sum:
    """A sum of packets since `since_us`, from sqn `first` on."""

    since_us: int
    first: int
    count: int = 0


@attrs.frozen
class _EventSqns:
    """Sqns of one session that an event is about."""

    tsi: Tsi | None
    first: int
    count: int = 0


_NO_SQNS = _EventSqns(None, 0)  # for an event of the node


class Observer:
    """Observer of one core and its driver.

    `wall_offset_ns` returns the wall clock minus the core's clock. The observer reads it once in the sample interval, so
    rows follow a clock that is set, and a step of the clock is a row of its own.
    """

    sees_singles = True  # a row counts every packet

    def __init__(self, plan: NodePlan, log: EventLog, now_ns: int, wall_offset_ns: Callable[[], int]) -> None:
        self._plan = plan
        self._log = log
        self._wall_offset_ns = wall_offset_ns
        self._offset_ns = wall_offset_ns()
        self._offset_read_ns = now_ns
        self._now_ns = now_ns
        self._role = plan.role.value
        self._is_receiver = plan.role is Role.RECEIVER
        self._up = plan.upstream.name
        self._sample_us = plan.parameters.telemetry_sample_ivl // MICROSECOND
        self._ports = frozenset(stream.data_port for stream in plan.streams)  # data ports of this node's streams
        self._sums: dict[tuple[str, str, Tsi, Nla], _Sum] = {}
        self._lines: dict[tuple[str, Tsi], _LineRow] = {}
        self._arrived: list[Event] = []  # rows that wait for `filled`
        for segment in plan.segments:
            self._add("address", segment.name, peer=segment.address or "", cause=segment.side)
        if plan.role is not Role.SOURCE:
            for key in _TIMERS:
                self._add("timer", cause=key, value_us=getattr(plan.parameters, key) // MICROSECOND)

    def _add(
        self,
        kind: str,
        segment: str = "",
        sqns: _EventSqns = _NO_SQNS,
        *,
        peer: Nla = "",
        value_us: int | None = None,
        cause: str = "",
    ) -> None:
        for event in self._events(kind, segment, sqns, peer=peer, value_us=value_us, cause=cause):
            self._log.add(event)

    def _events(
        self,
        kind: str,
        segment: str,
        sqns: _EventSqns,
        *,
        peer: Nla = "",
        value_us: int | None = None,
        tries: int = 0,
        cause: str = "",
    ) -> Iterator[Event]:
        """Yield the row of an event, or two rows if its sqns wrap around."""
        name = "" if sqns.tsi is None else tsi_text(sqns.tsi)
        low = wrap(sqns.first)
        before = min(sqns.count, SPACE - low)
        parts = [(low, before)] if before == sqns.count else [(low, before), (0, sqns.count - before)]
        time_us = (self._now_ns + self._offset_ns) // MICROSECOND
        for low, part_count in parts:
            yield Event(
                time_us, self._plan.name, self._role, segment, kind, name, low, part_count, peer, value_us, tries, cause
            )

    def _see(self, now_ns: int) -> None:
        """Note the time of what follows, and follow the wall clock."""
        self._now_ns = now_ns
        if now_ns - self._offset_read_ns >= self._sample_us * MICROSECOND:
            self._offset_read_ns = now_ns
            offset_ns = self._wall_offset_ns()
            step_ns, self._offset_ns = offset_ns - self._offset_ns, offset_ns
            if abs(step_ns) >= _STEP_NS:
                self._add("clock_step", value_us=step_ns // MICROSECOND)

    # Reports of the core

    def missing(self, tsi: Tsi, first: int, end: int, now_ns: int) -> None:
        """Write a gap. `pgm.core.loss_observer` documents this call and those below."""
        self._see(now_ns)
        self._add("gap", self._up, _EventSqns(tsi, first, end - first))

    def arrived(self, tsi: Tsi, found: Sequence[MissingView], now_ns: int) -> None:
        """Keep the ranges until `filled` reports the packets that brought them."""
        self._see(now_ns)
        for missing in found:
            self._arrived += self._rows_of(tsi, missing, "late", now_ns - missing.found_at_ns, missing.state_name)

    def _rows_of(self, tsi: Tsi, missing: MissingView, kind: str, waited_ns: int, cause: str = "") -> list[Event]:
        tries = missing.ncf_retries + missing.data_retries
        sqns = _EventSqns(tsi, missing.first, missing.end - missing.first)
        value_us = waited_ns // MICROSECOND
        return list(self._events(kind, self._up, sqns, value_us=value_us, tries=tries, cause=cause))

    def filled(self, kind: PacketType, peer: Nla) -> None:
        """Write the ranges that arrived, as repaired or late."""
        arrived, self._arrived = self._arrived, []
        for event in arrived:
            event.peer = peer
            if kind is PacketType.RDATA:
                event.kind = "repaired"
                event.local = peer in self._plan.local_repairers or peer in self._plan.local_relays
            self._log.add(event)

    def _write(self, tsi: Tsi, missing: MissingView, kind: str, since_ns: int, now_ns: int) -> None:
        self._see(now_ns)
        for event in self._rows_of(tsi, missing, kind, now_ns - since_ns, missing.state_name):
            self._log.add(event)

    def gave_up(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range that will not be requested again."""
        self._write(tsi, found, "gave_up", found.found_at_ns, now_ns)

    def confirmed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range whose own NAK has been confirmed."""
        self._write(tsi, found, "confirmed", found.since_ns, now_ns)

    def suppressed(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range that another node requested first."""
        self._write(tsi, found, "suppressed", found.found_at_ns, now_ns)

    def timed_out(self, tsi: Tsi, found: MissingView, now_ns: int) -> None:
        """Write a range whose wait for an NCF or RDATA timed out."""
        kind = "ncf_timeout" if found.state_name == "WAIT_NCF" else "rdata_timeout"
        self._write(tsi, found, kind, found.since_ns, now_ns)

    def skipped(self, tsi: Tsi, first: int, end: int) -> None:
        """Write sqns that were never sent, and so were no gap."""
        self._add("skipped", self._up, _EventSqns(tsi, first, end - first))

    def mended(self, tsi: Tsi, first: int, end: int) -> None:
        """Write sqns that an aggregator missed and then received."""
        self._add("repaired", self._up, _EventSqns(tsi, first, end - first), cause="MENDED")

    def line_came(self, tsi: Tsi, segment: str, end: int, lost: int, behind_ns: int, now_ns: int) -> None:
        """Write a line's progress once in the sample interval. Losses may shrink by late sqns of a slow line."""
        now_us = now_ns // MICROSECOND
        last_row = self._lines.get((segment, tsi))
        if last_row is None:
            if len(self._lines) >= _MOST_LINES:
                self._lines.clear()
            last_row = self._lines[segment, tsi] = _LineRow(now_us, lost)
        if now_us - last_row.at_us >= self._sample_us:
            count = lost - last_row.lost
            last_row.at_us, last_row.lost = now_us, lost
            self._add("line", segment, _EventSqns(tsi, end - 1, count), value_us=behind_ns // MICROSECOND)

    def parent_changed(self, old: Nla | None, new: Nla | None) -> None:
        """Write a change of the parent that receives the NAKs."""
        self._add("parent", self._up, peer=new or "", cause=old or "")

    # Reports of the driver

    def received(self, train: Train, channel: Channel, peer: Nla, now_ns: int) -> None:
        """Write the packets of a train that the core is about to receive."""
        self._see(now_ns)
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Data):
                if self._plan.role is not Role.SOURCE and (not self._ports or item.data_port in self._ports):
                    kind = "received" if item.type is PacketType.ODATA else "rdata_heard"
                    self._sum(kind, channel.segment.name, item.tsi, peer, item.wire_sqn, item.count)
            elif isinstance(item, Nak) and item.kind is PacketType.NAK and not self._is_receiver:
                for first, end in spans_of(item.sqns):
                    self._add("nak_in", channel.segment.name, _EventSqns(item.tsi, first, end - first), peer=peer)

    def taken(self) -> None:
        """Write nothing: all is written before the core takes a train."""

    def performed(self, effects: Sequence[Effect], now_ns: int) -> None:
        """Write the effects that the driver performs for the core."""
        self._see(now_ns)
        for effect in effects:
            if isinstance(effect, Send):
                self._sent(effect)
            elif isinstance(effect, Deliver):
                self._sum("delivered", self._up, effect.tsi, "", effect.run.first, effect.run.count)
            elif isinstance(effect, (Lost, Forged)):
                kind = "lost" if isinstance(effect, Lost) else "forged"
                self._add(kind, self._up, _EventSqns(effect.tsi, effect.first, effect.count), cause=effect.cause.value)
            elif isinstance(effect, Conflict):
                cause = "delivered" if effect.is_delivered else "dropped"
                self._add("conflict", self._up, _EventSqns(effect.tsi, effect.first, effect.count), cause=cause)
            elif isinstance(effect, Opened):
                cause = "resumed" if effect.resumed else "begins"
                self._add("opened", self._up, _EventSqns(effect.tsi, effect.first), peer=effect.peer, cause=cause)
            elif isinstance(effect, Closed):
                self._add("closed", self._up, _EventSqns(effect.tsi, effect.next_sqn), cause=effect.cause.value)

    def _sent(self, send: Send) -> None:
        segment, to = send.segment.name, send.to or ""
        if send.is_data and int(send.octets[TYPE_AT]) == _ODATA:
            # Sources and relays send trains of one session, so the first packet is enough.
            head = bytes(send.octets[: SQN_AT + 4])
            sport, _, _, _, _, gsi, _ = HEADER.unpack_from(head)
            packets = -(-len(send.octets) // send.stride)
            tsi = gsi + sport.to_bytes(2, "big")
            self._sum("sent", segment, tsi, to, int.from_bytes(head[SQN_AT:], "big"), packets)
            return
        for item in Train.of(send.octets, send.stride).parse_untrusted()[0]:
            if isinstance(item, Data):
                self._add("rdata_sent", segment, _EventSqns(item.tsi, item.wire_sqn, item.count), peer=to)
            elif isinstance(item, Nak) and item.kind in _SENT_AS:
                for first, end in spans_of(item.sqns):
                    self._add(_SENT_AS[item.kind], segment, _EventSqns(item.tsi, first, end - first), peer=to)

    def _sum(self, kind: str, segment: str, tsi: Tsi, peer: Nla, first: int, count: int) -> None:
        key = (kind, segment, tsi, peer)
        now_us = self._now_ns // MICROSECOND
        packets = self._sums.get(key)
        if packets is None:
            if len(self._sums) >= _MOST_SUMS:
                self.close()
            packets = self._sums[key] = _Sum(now_us, wrap(first))
        packets.count += count
        if now_us - packets.since_us >= self._sample_us:
            self._write_sum(key, self._sums.pop(key))

    def _write_sum(self, key: tuple[str, str, Tsi, Nla], packets: _Sum) -> None:
        kind, segment, tsi, peer = key
        value_us = self._now_ns // MICROSECOND - packets.since_us
        name = tsi_text(tsi)
        time_us = (self._now_ns + self._offset_ns) // MICROSECOND
        self._log.add(
            Event(
                time_us, self._plan.name, self._role, segment, kind, name, packets.first, packets.count, peer, value_us
            )
        )

    def close(self) -> None:
        """Write all open sums."""
        sums, self._sums = self._sums, {}
        for key, packets in sums.items():
            self._write_sum(key, packets)


@contextmanager
def telling(plan: NodePlan, now_ns: int, wall_offset_ns: Callable[[], int]) -> Iterator[Observer | None]:
    """Write the events of a node during a block. Yields None if the plan names no folder of telemetry.

    `now_ns` is the core's clock, and `wall_offset_ns` returns the time of day minus that clock, both in ns. Raises
    `UsageError` if pyarrow is missing, and `ProcessError` if the folder is not writable.
    """
    if not plan.telemetry:
        yield None
        return
    log = EventLog(plan.telemetry, plan.name, plan.parameters)
    observer = Observer(plan, log, now_ns, wall_offset_ns)
    try:
        yield observer
    finally:
        observer.close()
        log.close()
