"""Parity at a node that recovers missing packets (RFC 11.5).

`Recovery` holds the missing packets, with the timers and retries of any loss. This module has three tasks:

- allow the request of a loss, at the end of its group;
- turn due ranges into requests for numbers of packets;
- rebuild a group once enough packets of the group are here.

Single packets are requested if parity cannot help: no parity is offered on demand, the group has not ended or has partly
left the window, or requests for parity remained without success.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import attrs

from pgm.core.parity.short_groups import ShortGroups
from pgm.core.parity.store import ParityStore
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.recovery.group_limit import GroupLimit, GroupProbe
from pgm.core.recovery.missing_range import MissingRange
from pgm.core.recovery.repair_table import RepairState
from pgm.core.repair.responder import RepairStore
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import Span, merged
from pgm.core.structures.run_store import RunStore
from pgm.fec import code, groups
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import PacketType
from pgm.wire.options import CurrTgsize, ParityPrm, find
from pgm.wire.parity import ParityPacket, group_of, read_parity, request_sqn, requested
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, Run


def offer_of(spm: Spm, state: SessionState) -> ParityPrm | None:
    """Return the parity that an SPM offers; None if this node cannot use it.

    Return None also if the session's first SPM offered no parity. Parity never begins in the middle of a stream, because
    a forged SPM could turn losses into sqns that were never sent.
    """
    offer = find(spm.options, ParityPrm)
    if offer is None or not state.group_size or not state.keeps_group_size:
        return None
    return offer if offer.tgsize <= code.LARGEST_GROUP and code.is_available() else None


@attrs.define
class _OpenGroup:
    """The first open group as of the last review, and the end of the hold of its losses."""

    first: int
    hold_until_ns: int = 0


class ParityRecovery:
    """Transmission groups of one session.

    `store` has the packets. `kept` is the same store if the packets are kept for parity alone. After each call that
    learns of packets or groups, `take_skipped` returns missing sqns that were never used. `regain` takes back a skipped
    span when evidence shows that sqns of its group were sent after all.
    """

    def __init__(
        self,
        context: SessionContext,
        offer: ParityPrm,
        state: SessionState,
        gap_detector: GapDetector,
        *,
        store: RepairStore,
        kept: RunStore | None,
        regain: Callable[[Span, int], None],
    ) -> None:
        parameters, recovery = context.parameters, gap_detector.recovery
        self.size = offer.tgsize
        self._is_on_demand = offer.on_demand
        if offer.on_demand:
            recovery.admission.groups = GroupLimit(offer.tgsize, parameters.fec_groups)
        self._state = state
        self._gap_detector = gap_detector
        self._recovery = recovery
        self._parameters = parameters
        self._counters = context.counters
        self._store = store
        self._kept = kept
        self._regain = regain
        self._skipped: list[Span] = []
        self._open = _OpenGroup(group_of(gap_detector.end, self.size))
        self._shorts = ShortGroups(parameters.fec_groups)
        self._stock = ParityStore(self.size, parameters.fec_groups, context.counters)
        self._usual = 0  # proactive parity packets of a group

    # Sizes and ends of groups

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take an SPM, which carries the size of a short group at the end of that group."""
        short = find(spm.options, CurrTgsize)
        lead = unwrap(spm.lead, self._state.lead)
        if self._state.was_told_of(lead, lead + 1):
            self.sent(lead, lead + 1, now_ns)
        if short is not None:
            self._learn_end(lead, short.size)
        self.review(now_ns)

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note that `first` to `end - 1` were sent, before these packets are taken.

        A group that has any of these sqns cannot end before them.
        """
        sizes = self._shorts.sizes
        if sizes:
            for group in range(group_of(first, self.size), end, self.size):
                if group in sizes and group + sizes[group] < end:
                    self._reopen(group, self.size, now_ns)

    def _reopen(self, group: int, actual: int, now_ns: int) -> None:
        """Correct a group that is longer than announced.

        Its skipped sqns are missing again, or lost.
        """
        self._counters.short_groups_denied += 1
        for span in self._shorts.remove(group):
            self._regain(span, now_ns)
        self._learn(group, actual)

    def _learn_end(self, last: int, actual: int) -> None:
        group = group_of(last, self.size)
        if last == group + actual - 1:
            self._learn(group, actual)

    def _learn(self, group: int, actual: int) -> None:
        """Record a short group.

        A group cannot be short by a sqn that has come, or that the source has announced.
        """
        first, end = group + actual, group + self.size
        if not 0 < actual < self.size or group in self._shorts.sizes or self._state.was_told_of(first, end):
            return
        if next(self._store.parts(first, end), None) is not None:
            return
        if not self._is_on_demand:
            self._recovery.admission.groups = GroupProbe(self.size)
        self._shorts.add(group, actual)

    def _actual(self, group: int) -> int:
        return self._shorts.sizes.get(group, self.size)

    def _has_ended(self, group: int) -> bool:
        """Return whether all packets of a group were sent (FEC-25, FEC-31)."""
        return self._gap_detector.end >= group + self._actual(group)

    def ended_size(self, group: int) -> int | None:
        """Return the number of packets in a group; None while not all were sent."""
        return self._actual(group) if self._has_ended(group) else None

    def short_group(self, sqn: int) -> int | None:
        """Return the short group that left this sqn out; None if no such group is known."""
        group = group_of(sqn, self.size)
        return group if sqn >= group + self._actual(group) else None

    @property
    def _first_open(self) -> int:
        """Return the first group whose losses may not be requested yet.

        With proactive parity a group stays open after the end of its data, until the usual parity packets have come.
        """
        end = self._gap_detector.end
        group = group_of(end - 1, self.size)
        if not self._has_ended(group):
            return group
        received = self._stock.count(group)
        is_lacking = self._lacks(group)
        return group if is_lacking and self._usual > received and end == group + self.size else group + self.size

    def review(self, now_ns: int) -> None:
        """Apply new knowledge of packets and groups.

        Sqns that were never used are skipped. Losses in the open group are held, and those in ended groups are released.
        """
        if not self._gap_detector.has_begun:
            return
        if self._shorts.holes and self._state.keeps_group_size:
            self._skip_holes(now_ns)
        if not self._recovery.missing:
            self._stock.clear()
            self._open.first = group_of(self._gap_detector.end, self.size)
        else:
            self._rearm(now_ns)
        self._prune()

    def _skip_holes(self, now_ns: int) -> None:
        end, left = self._gap_detector.end, []
        for group in self._shorts.holes:
            spans = self._recovery.arrived(group + self._actual(group), min(end, group + self.size))
            for low, high in spans:
                self._counters.skipped_sqns += high - low
                self._counters.watch.skipped(self._state.tsi, low, high)
            if spans:
                self._skipped += spans
                self._recovery.admission.learnt_group(now_ns)
                self._shorts.left_out.setdefault(group, []).extend(spans)
            if end < group + self.size:
                left.append(group)
        self._shorts.holes = left

    def _rearm(self, now_ns: int) -> None:
        missing, first_open, known = self._recovery.missing, self._first_open, self._open
        if first_open > known.first:
            self._release(self._cut_at(known.first, first_open), now_ns)
            known.first, known.hold_until_ns = first_open, 0
        held = [gap for gap in self._cut_at(first_open, self._gap_detector.end) if gap.first >= first_open]
        if held and not known.hold_until_ns:
            # A source that ends its groups when idle will end this one too (FEC-24).
            is_sure = self._shorts.have_come and not self._has_ended(first_open)
            ivl = self._parameters.stall_ivl if is_sure else self._parameters.fec_hold_ivl
            known.hold_until_ns = now_ns + ivl
        for gap in held:
            if gap.state is RepairState.BACK_OFF and not gap.is_parked and gap.deadline_ns < known.hold_until_ns:
                missing.arm(gap, known.hold_until_ns)

    def _cut_at(self, first: int, end: int) -> list[MissingRange]:
        """Cut missing ranges at `first` and `end`, and return those between.

        If the table of ranges is full, nothing is cut, and ranges that extend beyond an edge are included.
        """
        missing = self._recovery.missing
        if len(missing) + 2 <= self._parameters.rxw_gaps:
            return missing.within(first, end)
        return list(itertools.takewhile(lambda gap: gap.first < end, missing.reaching(first)))

    def _release(self, ended: list[MissingRange], now_ns: int) -> None:
        """Start the back-off of losses in ended groups (FEC-27).

        The more packets are missing, the shorter is the back-off. All ranges share one back-off, so that one NAK lists
        all groups.
        """
        waiting = [gap for gap in ended if gap.state is RepairState.BACK_OFF and not gap.is_parked]
        if waiting:
            most = max(self.count(group) for group in {group_of(gap.first, self.size) for gap in waiting})
            back_off = self._recovery.draw_back_off() // most
            for gap in waiting:
                self._recovery.missing.arm(gap, now_ns + self._parameters.reorder_ivl + back_off)

    def _prune(self) -> None:
        """Drop packets and parity that are no longer needed.

        Incomplete groups keep their packets and parity, and the last group keeps its packets.
        """
        oldest = self._recovery.missing.oldest
        needed = group_of(self._gap_detector.end if oldest is None else oldest.first, self.size)
        if self._stock:
            self._stock.drop_before(needed)
        if self._kept is None:
            return
        self._kept.drop_before(needed)
        while self._kept.pinned_octets > self._parameters.rxw_bytes and self._kept.oldest is not None:
            self._kept.cut_oldest(self._kept.oldest.count)

    def take_skipped(self) -> list[Span]:
        """Return missing sqns that were never used, once."""
        spans, self._skipped = self._skipped, []
        return spans

    # Requests

    def count(self, group: int) -> int:
        """Return the packets to request, relative to a full group (FEC-25).

        The number is the group size, less the packets and parity packets that are here, and at least 1.
        """
        here = sum(part.count for part in self._store.parts(group, group + self.size)) + self._stock.count(group)
        return max(1, self.size - here)

    def plan(self, asking: Iterable[MissingRange]) -> tuple[list[int], list[Span]]:
        """Turn due ranges into parity requests and spans of single packets.

        A parity request is one sqn for each group, in the form of NAKs.
        """
        parity: dict[int, int] = {}
        single: list[Span] = []
        for gap in asking:
            first = gap.first
            while first < gap.end:
                group = group_of(first, self.size)
                end = min(gap.end, group + self.size)
                if self._asks_singly(group, gap):
                    single.append((first, end))
                else:
                    parity[group] = self.count(group)
                first = end
        return [request_sqn(group, count) for group, count in sorted(parity.items())], merged(single)

    def _asks_singly(self, group: int, gap: MissingRange) -> bool:
        # Alternate, because the nodes above may not support parity, or may answer single requests by parity.
        turn = (gap.ncf_retries + gap.data_retries) // self._parameters.fec_retries
        return (
            not self._is_on_demand
            or group < self._state.trail
            or self._stock.is_refused(group)
            or not self._has_ended(group)
            or turn % 2 == 1
        )

    def packets_asked(self, sqns: Iterable[int]) -> int:
        """Return the number of packets that parity requests ask for."""
        return sum(requested(sqn, self.size)[1] for sqn in sqns)

    def answered(self, nak: Nak) -> list[Span]:
        """Return the groups of a parity NCF or NAK that cover the losses here (FEC-26).

        The count of such a group is at least the number of packets missing here. A group without room in the store does
        not count: parity for other receivers would be dropped here.
        """
        asked = [requested(self._state.unwrap(sqn), self.size) for sqn in nak.sqns]
        end = self._recovery.admission.groups.end_sqn
        spans = [(group, group + self.size) for group, count in asked if group < end and count >= self.count(group)]
        return merged(spans)

    # Received packets

    def on_data(self, data: Data, first: int, now_ns: int) -> list[Run]:
        """Take received data. Return the packets that can now be rebuilt."""
        end = first + data.count
        if data.options:
            short = find(data.options, CurrTgsize)
            if short is not None:
                self._learn_end(end - 1, short.size)
        self.review(now_ns)
        touched = self._stock.within(first, end) if self._stock else ()
        return [run for group in touched for run in self._rebuild(group)]

    def on_parity(self, data: Data, first: int, now_ns: int) -> list[Run]:
        """Take parity packets, which never count as data (FEC-05).

        Return the packets that can now be rebuilt.
        """
        packets = read_parity(data, first, self.size)
        self._counters.parity_packets_in += len(packets)
        for packet in packets:
            actual = packet.actual or self.size
            if actual > self._actual(packet.group):
                self._reopen(packet.group, actual, now_ns)
            elif packet.actual is not None:
                self._learn(packet.group, packet.actual)
            end = packet.group + self._actual(packet.group)
            if self._state.reveals(end):
                self._gap_detector.reveal(end, now_ns)
                self._state.revealed(end)
            if data.type is PacketType.ODATA:
                self._usual = max(self._usual, packet.index + 1)
            if not self._collect(packet):
                self._counters.parity_packets_unused += 1
        runs = [run for group in dict.fromkeys(packet.group for packet in packets) for run in self._rebuild(group)]
        self.review(now_ns)
        return runs

    def _lacks(self, group: int) -> bool:
        return self._recovery.missing.overlaps(group, group + self._actual(group))

    def _collect(self, packet: ParityPacket) -> bool:
        group = packet.group
        if (
            (packet.actual or self.size) != self._actual(group)
            or not self._lacks(group)
            or self._stock.is_refused(group)
            or packet.index >= code.parity_limit(self.size)
        ):
            return False
        pinned = self._kept.pinned_octets if self._kept is not None else 0
        return self._stock.add(packet, self._parameters.rxw_bytes - pinned)

    def _rebuild(self, group: int) -> list[Run]:
        """Return the missing packets of a group, if they can be rebuilt (FEC-29).

        A group needs as many parity packets as packets are missing.
        """
        collected = self._stock.of(group)
        if not collected or not self._has_ended(group):
            return []
        actual = self._actual(group)
        parts = list(self._store.parts(group, group + actual))
        lacking = actual - sum(part.count for part in parts)
        if not self._lacks(group):
            self._stock.drop(group)
            return []
        if len(collected) < lacking:
            return []
        self._stock.drop(group)
        parity = [collected[index] for index in sorted(collected)[:lacking]]
        state = self._state
        header = groups.OriginalHeader(state.tsi, state.data_port, state.trail)
        runs = groups.decode(parts, parity, group, self.size, actual, header)
        if runs is None:
            self._counters.parity_corrupt += 1
            self._stock.refuse(group)
            return []
        wanted = [run for run in runs if self._recovery.is_missing(run.first)]
        self._counters.parity_sqns += len(wanted)
        return wanted
