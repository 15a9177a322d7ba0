"""Answers to parity NAKs with parity packets (RFC 11.4).

Requests are consolidated by count. Parity packets are computed on sending, and no number is sent twice before all are
used. Sources use a responder with the transmit window, repairers with the cache. Each segment has its own responder.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import attrs

from pgm.core.effects import Send
from pgm.core.repair.fair_share import FairShare
from pgm.core.repair.responder import RepairStore
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.fec import groups
from pgm.units import NEVER
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.options import Fin, Option, Syn, find
from pgm.wire.parity import MOST_EXTRA_OCTETS, ParityPacket, build_parity
from pgm.wire.train import MAX_CONVOY_PACKETS, Run


@attrs.frozen
class ParityFormat:
    """Common values of a session's parity packets.

    They are the session, the group size, and the numbers that this node uses.
    """

    tsi: Tsi
    data_port: int
    size: int
    start: int  # this node's first number, where lower ones are proactive or belong to other nodes
    limit: int  # count of numbers

    def following(self, index: int) -> int:
        """Return `index`, or 0 if all numbers are used up."""
        return index if index < self.limit else 0


def whole_group(store: RepairStore, group: int, actual: int) -> list[Run]:
    """Return all packets of a group; an empty list if the store lacks any."""
    parts = list(store.parts(group, group + actual))
    return parts if sum(part.count for part in parts) == actual else []


def parity_packets(
    parts: Sequence[Run],
    group: int,
    form: ParityFormat,
    indexes: Sequence[int],
    actual: int,
    kind: PacketType,
    trail: int,
) -> list[bytes]:
    """Return parity packets of a group as octets.

    They carry OPT_SYN and OPT_FIN if the group's first or last packet has that option (FEC-13).
    """
    first, last = parts[0].options(), parts[-1].part(parts[-1].end - 1, parts[-1].end).options()
    marks: list[Option] = [mark for mark in (find(first, Syn), find(last, Fin)) if mark is not None]
    packets: list[ParityPacket] = groups.encode(parts, group, form.size, indexes, actual)
    return [
        build_parity(kind, packet, tsi=form.tsi, data_port=form.data_port, size=form.size, trail=trail, marks=marks)
        for packet in packets
    ]


def train_length(packets: Sequence[bytes]) -> int:
    """Return how many packets from the first on have its size, for one train."""
    size = len(packets[0])
    return next((at for at, packet in enumerate(packets) if len(packet) != size), len(packets))


@attrs.define
class _PendingParity:
    """Parity of one group: next number, owed packets, and packets sent.

    The latter count from the first request.
    """

    next_index: int
    given: int = 0  # numbers used in all
    pending: int = 0
    sent: int = 0
    ignore_until_ns: int = -NEVER
    due_ns: int = NEVER
    actual: int = 0  # packets in the group, 0 while it is not complete


class ParityResponder:
    """On-demand parity that one session owes to a segment, or to a node by unicast."""

    def __init__(
        self, context: SessionContext, store: RepairStore, segment: Segment, form: ParityFormat, to: Nla | None = None
    ) -> None:
        self._store = store
        self._segment = segment
        self._form = form
        self._parameters = context.parameters
        self._counters = context.counters
        self._to = to
        self._groups: OrderedDict[int, _PendingParity] = OrderedDict()
        self._pending: OrderedDict[int, _PendingParity] = OrderedDict()
        self.deadline_ns = NEVER  # when the hold of the first owed packet ends; NEVER when none is owed
        self._shares = FairShare(context)

    @property
    def pending(self) -> int:
        """Return the number of owed parity packets."""
        return sum(owed.pending for owed in self._pending.values())

    def granted(self, asker: Nla, group: int, count: int, now_ns: int) -> int:
        """Return how many more packets of a group an asker may have."""
        return self._shares.grant(asker, count, self._stride(group, self._parameters.max_tpdu), now_ns)

    def _stride(self, group: int, default: int) -> int:
        """Return the octets of a packet of a group; `default` if the store has none."""
        return next((part.stride for part in self._store.parts(group, group + self._form.size)), default)

    def request(
        self,
        group: int,
        count: int,
        actual: int,
        now_ns: int,
        hold_ns: int | None = None,
        asker: Nla | None = None,
    ) -> bool:
        """Owe `count` parity packets, relative to a full group.

        Return False if they cannot be made. The packets are due `hold_ns` from now at the latest, by default
        `rdata_hold_ivl`. `actual` is the number of packets in the group. For an incomplete group `actual` is 0, and the
        packets wait for its completion (FEC-16).

        At least one packet is sent, because it tells receivers the size of a short group (FEC-22). An `asker` gets no
        more than its share.
        """
        if actual and not whole_group(self._store, group, actual):
            return False
        owed = self._group(group)
        if now_ns >= owed.ignore_until_ns:
            owed.sent = 0
        offset = self._form.size - actual if actual else 0
        wanted = max(1, count - offset) - owed.sent
        if wanted <= owed.pending:
            self._counters.repairs_ignored += 1  # confirmed all the same (FEC-18)
            return True
        if asker is not None:
            more = self.granted(asker, group, wanted - owed.pending, now_ns)
            if not more:
                return True  # confirmed: the parity exists, and the asker must request it again
            wanted = owed.pending + more
        owed.pending, owed.actual = wanted, actual
        if actual:
            hold = self._parameters.rdata_hold_ivl if hold_ns is None else hold_ns
            owed.due_ns = min(owed.due_ns, now_ns + hold)
        self._pending[group] = owed
        self.deadline_ns = min(self.deadline_ns, owed.due_ns)
        return True

    def is_exhausted(self, group: int) -> bool:
        """Return whether all numbers of a group were used.

        Receivers may then already have any further parity packet, so single packets are the better repair.
        """
        return group in self._groups and self._form.start + self._groups[group].given >= self._form.limit

    def _group(self, group: int) -> _PendingParity:
        if group not in self._groups:
            self._groups[group] = _PendingParity(self._form.start)
            if len(self._groups) > self._parameters.repair_states:
                oldest, _ = self._groups.popitem(last=False)
                if oldest in self._pending:
                    del self._pending[oldest]
                    self._counters.states_refused += 1
                    self._reschedule()  # the dropped group may have been the first one due
        return self._groups[group]

    def ended(self, group: int, actual: int, now_ns: int) -> None:
        """Release the owed parity of a group that is now complete.

        Scheduled parity of the group goes first.
        """
        if group in self._pending:
            owed = self._pending[group]
            owed.pending, owed.actual = max(1, owed.pending - (self._form.size - actual)), actual
            owed.due_ns = now_ns
            self.deadline_ns = min(self.deadline_ns, now_ns)

    def heard(self, group: int, index: int, now_ns: int) -> None:
        """Note a parity packet of another node on the segment.

        One packet less is owed, and the packet's number is used.
        """
        if group not in self._groups:
            return
        owed = self._groups[group]
        if index >= owed.next_index:
            owed.next_index = self._form.following(index + 1)
        if owed.pending:
            self._counters.repairs_cancelled += 1
            self._account(group, owed, 1, now_ns)

    def _account(self, group: int, owed: _PendingParity, count: int, now_ns: int) -> None:
        owed.pending -= count
        owed.sent += count
        owed.ignore_until_ns = now_ns + self._parameters.rdata_ignore_ivl
        if not owed.pending:
            owed.due_ns = NEVER
            del self._pending[group]
        self._reschedule()

    def _reschedule(self) -> None:
        self.deadline_ns = min((owed.due_ns for owed in self._pending.values()), default=NEVER)

    def next_octets(self) -> int:
        """Return an estimate of the next train's octets, for pacing."""
        for group, owed in self._pending.items():
            if owed.due_ns == self.deadline_ns:
                return min(owed.pending, MAX_CONVOY_PACKETS) * self._stride(group, 0)
        return 0

    def next_train(
        self, most_octets: int, trail: int, now_ns: int, most_packets: int = MAX_CONVOY_PACKETS
    ) -> Send | None:
        """Return parity RDATA of one due group; None if none is due.

        The train has as many packets as fit.
        """
        due = [(group, owed) for group, owed in self._pending.items() if owed.due_ns <= now_ns]
        for group, owed in due:
            actual = owed.actual or self._form.size
            parts = whole_group(self._store, group, actual)
            if not parts:  # it has left the window meanwhile
                self._account(group, owed, owed.pending, now_ns)
                continue
            longest = max(part.stride for part in parts) + MOST_EXTRA_OCTETS
            count = max(1, min(owed.pending, most_packets, most_octets // longest))
            indexes = self._numbers(owed.next_index, count)
            packets = parity_packets(parts, group, self._form, indexes, actual, PacketType.RDATA, trail)
            count = train_length(packets)
            owed.next_index = self._form.following(indexes[count - 1] + 1)
            owed.given += count
            self._account(group, owed, count, now_ns)
            return self._send(packets[:count])
        return None

    def _numbers(self, at: int, count: int) -> list[int]:
        numbers = []
        for _ in range(min(count, self._form.limit)):
            at = self._form.following(at)
            numbers.append(at)
            at += 1
        return numbers

    def _send(self, packets: Sequence[bytes]) -> Send:
        octets = b"".join(packets)
        self._counters.parity_packets += len(packets)
        self._counters.rdata_packets += len(packets)
        self._counters.rdata_octets += len(octets)
        return Send(self._segment, octets, len(packets[0]), self._to, is_data=True)
