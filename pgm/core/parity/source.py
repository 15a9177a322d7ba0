"""Parity at a source: groups, proactive parity, parity on demand (RFC 11.4).

A group ends when it is full, or after `fec_close_ivl` without data. The latter makes a short group, whose size is in its
parity and in the SPMs at its end. The next packet then begins the next group, and the sqns between are never used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pgm.core.effects import Effect, Send
from pgm.core.pacing.pacer import Pacer
from pgm.core.parity.responder import ParityFormat, ParityResponder, parity_packets, train_length, whole_group
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span
from pgm.core.window.transmit_window import TransmitWindow
from pgm.fec import code
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla, PacketType
from pgm.wire.options import CurrTgsize, Option, ParityPrm
from pgm.wire.parity import counts_of, group_of


def aligned(first_sqn: int, parameters: Parameters) -> int:
    """Return the start of a group at or after `first_sqn`.

    A session with parity begins at the start of a group.
    """
    size = parameters.fec_group
    return -(-first_sqn // size) * size if size else first_sqn


class ParitySource:
    """Transmission groups of one source. Raises `UsageError` without zfec."""

    def __init__(self, context: SessionContext, segment: Segment, window: TransmitWindow) -> None:
        parameters = context.parameters
        code.require()
        self._window = window
        self._segment = segment
        self._parameters = parameters
        self._counters = context.counters
        self._size = parameters.fec_group
        limit = code.parity_limit(self._size)
        self._proactive = min(parameters.fec_proactive, limit - 1)
        self._form = ParityFormat(context.tsi, context.data_port, self._size, self._proactive, limit)
        self.responder = ParityResponder(context, window, segment, self._form)
        self._group = window.end  # the open group
        self._shorts: dict[int, int] = {}  # number of packets in each short group
        self._scheduled: deque[int] = deque()  # groups with proactive parity still to be encoded
        self._encoded: list[bytes] = []  # proactive parity packets that are still to be sent
        self.deadline_ns = NEVER  # when the open group must be closed

    # SPMs

    def options(self) -> list[Option]:
        """Return the options of an SPM about parity (FEC-21).

        The options are the offer, and the size of a short group that SPM_LEAD ends.
        """
        offer = ParityPrm(
            self._size, proactive=self._proactive > 0, on_demand=self._parameters.fec_on_demand or not self._proactive
        )
        actual = self._shorts.get(group_of(self._window.lead, self._size), 0)
        return [offer, CurrTgsize(size=actual)] if actual else [offer]

    # Groups

    def _actual(self, group: int) -> int:
        """Return the number of packets in a group; 0 while it is not complete."""
        return self._shorts.get(group, self._size) if group < self._group else 0

    def data_sent(self, now_ns: int) -> None:
        """Note a train of data that was sent."""
        end = self._window.lead + 1
        while self._group + self._size <= end:
            self._end_group(self._size, now_ns)
        is_open = end > self._group and not self._window.has_unsent
        self.deadline_ns = now_ns + self._parameters.fec_close_ivl if is_open else NEVER

    def close_group(self, now_ns: int) -> bool:
        """End the open group early, because no more data comes for now (FEC-20).

        Return whether one was ended.
        """
        self.deadline_ns = NEVER
        actual = self._window.lead + 1 - self._group
        if actual <= 0 or self._window.has_unsent:
            return False
        self._shorts[self._group] = actual
        self._window.resume_at(self._group + self._size)
        self._end_group(actual, now_ns)
        for group in [short for short in self._shorts if short + self._size <= self._window.trail]:
            del self._shorts[group]
        return True

    def _end_group(self, actual: int, now_ns: int) -> None:
        if self._proactive:
            self._scheduled.append(self._group)
        self.responder.ended(self._group, actual, now_ns)
        self._group += self._size

    # Proactive parity

    def scheduled_octets(self) -> int:
        """Return the octets of the next group's proactive parity; 0 if none waits.

        Encode it if necessary.
        """
        while not self._encoded and self._scheduled:
            group = self._scheduled.popleft()
            actual = self._shorts.get(group, self._size)
            parts = whole_group(self._window, group, actual)
            if parts:  # else the group has left the window meanwhile
                indexes, trail = range(self._proactive), self._window.trail
                self._encoded = parity_packets(parts, group, self._form, indexes, actual, PacketType.ODATA, trail)
        return sum(map(len, self._encoded))

    def next_scheduled(self, most_octets: int, most_packets: int) -> Send:
        """Return the next proactive parity as ODATA, at least one packet."""
        stride = len(self._encoded[0])
        count = max(1, min(train_length(self._encoded), most_packets, most_octets // stride))
        packets, self._encoded = self._encoded[:count], self._encoded[count:]
        self._counters.parity_packets += count
        self._counters.odata_packets += count
        self._counters.odata_octets += count * stride
        return Send(self._segment, b"".join(packets), stride, is_data=True)

    # Parity on demand

    def counts_of(self, sqns: list[int]) -> list[tuple[int, int]]:
        """Return the groups and counts of a parity NAK."""
        return counts_of(sqns, self._size)

    def on_nak(self, sqns: list[int], asker: Nla, now_ns: int) -> tuple[int, bool]:
        """Owe the parity that a NAK requests.

        Return the number of requested packets, and whether parity can be made for any of them.
        """
        asked = self.counts_of(sqns)
        packets = sum(count for _, count in asked)
        self._counters.parity_naks_in += 1
        self._counters.nak_sqns_in += packets
        is_served = sum([self.request(group, count, now_ns, asker) for group, count in asked]) > 0
        self._counters.nak_packets_late += not is_served
        return packets, is_served

    def request(self, group: int, count: int, now_ns: int, asker: Nla | None = None) -> bool:
        """Owe parity of one group. Return False if none can be made, or none is offered."""
        if not self._parameters.fec_on_demand or group > self._window.lead or group < self._window.trail:
            return False
        return self.responder.request(group, count, self._actual(group), now_ns, asker=asker)

    def instead_of(self, spans: Iterable[Span], now_ns: int) -> list[Span]:
        """Owe parity in place of single packets of complete groups (FEC-19).

        Return the spans to repair by single packets. A request for sqns that a short group left out always gets parity,
        because parity carries the size of the group.
        """
        is_single = not self._parameters.fec_on_demand or self._parameters.fec_serves_single
        single: list[Span] = []
        wanted: dict[int, list[Span]] = {}
        for first, end in spans:
            while first < end:
                group = group_of(first, self._size)
                upto, actual = min(end, group + self._size), self._actual(group)
                if actual and upto > group + actual:
                    self.responder.request(group, 1 + self._size - actual, actual, now_ns)
                part = (first, min(upto, group + (actual or self._size)))
                if part[0] < part[1]:
                    is_alone = not actual or is_single or self.responder.is_exhausted(group)
                    target = single if is_alone else wanted.setdefault(group, [])
                    target.append(part)
                first = upto
        for group, parts in wanted.items():
            actual = self._shorts.get(group, self._size)
            count = sum(end - first for first, end in parts) + self._size - actual
            if not self.responder.request(group, count, actual, now_ns):
                single += parts
        return sorted(single)

    # Sending

    def ready_ns(self, pacer: Pacer) -> int:
        """Return when parity may leave, or the open group must be closed."""
        at = self.deadline_ns
        scheduled = self.scheduled_octets()
        if scheduled:
            at = min(at, pacer.data_ready_at(scheduled))
        if self.responder.deadline_ns != NEVER:
            ready = pacer.repair_ready_at(self.responder.next_octets())
            at = min(at, max(ready, self.responder.deadline_ns))
        return at

    def next_train(self, pacer: Pacer, now_ns: int) -> Effect | None:
        """Return the next train of parity; None if none may leave now (FEC-16).

        Proactive parity comes before new data and counts as data. Parity on demand counts as repair.
        """
        scheduled = self.scheduled_octets()
        if scheduled and pacer.data_ready_at(scheduled) <= now_ns:
            send = self.next_scheduled(pacer.train_octets, pacer.packet_room(now_ns))
            pacer.data_sent(len(send.octets), now_ns, len(send.octets) // send.stride)
            return send
        responder = self.responder
        if responder.deadline_ns > now_ns or pacer.repair_ready_at(responder.next_octets()) > now_ns:
            return None
        room, trail = pacer.repair_room(now_ns), self._window.trail
        repair = responder.next_train(room, trail, now_ns, pacer.packet_room(now_ns))
        if repair is not None:
            pacer.repair_sent(len(repair.octets), now_ns, len(repair.octets) // repair.stride)
        return repair
