"""Parity at whoever recovers: which group has ended, how much of it is missing, and what comes back of it (RFC 11.5).

What is missing is held by `Recovery` as ever, and its timers and retries are those of any loss. This says when a loss may be asked
for, at the end of its group; turns what is due into requests for numbers of packets; and rebuilds a group once enough of it is
there. Single packets are asked for where parity cannot help: none is offered on demand, the group has not ended or has partly
left the window, or asking for parity was in vain.
"""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable

from pgm.core.counters import Counters
from pgm.core.parity.store import ParityStore
from pgm.core.recovery.gap_detector import GapDetector
from pgm.core.recovery.group_limit import GroupLimit
from pgm.core.recovery.missing_range import MissingRange
from pgm.core.recovery.recovery import Recovery
from pgm.core.recovery.repair_table import RepairState
from pgm.core.repair.responder import RepairStore
from pgm.core.session.state import SessionState
from pgm.core.structures.ranges import Span, merged
from pgm.core.structures.run_store import RunStore
from pgm.fec import code, groups
from pgm.parameters import Parameters
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import PacketType
from pgm.wire.options import CurrTgsize, ParityPrm, find
from pgm.wire.parity import ParityPacket, group_of, read_parity, request_sqn, requested
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, Run


def offer_of(spm: Spm, state: SessionState) -> ParityPrm | None:
    """The parity that an SPM offers, if this node can make use of it and the first SPM of the session offered it too.

    Parity never begins in the middle of a stream: an SPM that was forged could turn losses into sqns that were never sent.
    """
    offer = find(spm.options, ParityPrm)
    if offer is None or not state.group_size or not state.keeps_group_size:
        return None
    return offer if offer.tgsize <= code.LARGEST_GROUP and code.is_available() else None


class ParityRecovery:
    """The groups of one session. `store` has the packets; `kept` is the same where they must be kept for this alone.

    What was missing and turns out never to have been sent is for `take_skipped`, after every call that is told something.
    `regain` takes a span back that was skipped, when something shows that sqns of its group were sent after all.
    """

    def __init__(
        self,
        offer: ParityPrm,
        state: SessionState,
        gap_detector: GapDetector,
        recovery: Recovery,
        parameters: Parameters,
        rng: random.Random,
        counters: Counters,
        *,
        store: RepairStore,
        kept: RunStore | None,
        regain: Callable[[Span, int], None],
    ) -> None:
        self.size = offer.tgsize
        self._is_on_demand = offer.on_demand
        if offer.on_demand:
            recovery.group_limit = GroupLimit(offer.tgsize, parameters.fec_groups)
        self._state = state
        self._gap_detector = gap_detector
        self._recovery = recovery
        self._parameters = parameters
        self._rng = rng
        self._counters = counters
        self._store = store
        self._kept = kept
        self._regain = regain
        self._skipped: list[Span] = []
        self._left_out: dict[int, list[Span]] = {}  # by short group: what was skipped of it
        self._open_from = group_of(
            gap_detector.end, self.size
        )  # the first group that has not ended, when looked at last
        self._hold_until_ns = 0  # of that group
        self._shorts: OrderedDict[int, int] = OrderedDict()  # packets in short groups
        self._holes: list[int] = []  # short groups behind which nothing was seen yet
        self._stock = ParityStore(self.size, parameters.fec_groups, counters)
        self._corrupt: OrderedDict[int, None] = OrderedDict()
        self._usual = 0  # parity packets that come unasked with a group
        self._closes_groups = False  # the source has ended a group early

    # What is said of groups

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """An SPM that was taken: at the end of a short group it carries its size."""
        short = find(spm.options, CurrTgsize)
        lead = unwrap(spm.lead, self._state.lead)
        if self._state.was_told_of(lead, lead + 1):
            self.sent(lead, lead + 1, now_ns)
        if short is not None:
            self._learn_end(lead, short.size)
        self.review(now_ns)

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Learn that sqns `first` to `end - 1` were sent, before they are taken in: no group that they are in ends before them."""
        if self._shorts:
            for group in range(group_of(first, self.size), end, self.size):
                if group in self._shorts and group + self._shorts[group] < end:
                    self._reopen(group, self.size, now_ns)

    def _reopen(self, group: int, actual: int, now_ns: int) -> None:
        """A group is longer than was said. What was skipped of it is missing again, or a loss."""
        del self._shorts[group]
        self._holes = [one for one in self._holes if one != group]
        self._counters.short_groups_denied += 1
        for span in self._left_out.pop(group, ()):
            self._regain(span, now_ns)
        self._learn(group, actual)

    def _learn_end(self, last: int, actual: int) -> None:
        group = group_of(last, self.size)
        if last == group + actual - 1:
            self._learn(group, actual)

    def _learn(self, group: int, actual: int) -> None:
        """A group is short. Nobody may say so of sqns that have come, or that the source says it has sent."""
        first, end = group + actual, group + self.size
        if not 0 < actual < self.size or group in self._shorts or self._state.was_told_of(first, end):
            return
        if next(self._store.parts(first, end), None) is not None:
            return
        self._closes_groups = True
        self._shorts[group] = actual
        self._holes.append(group)
        if len(self._shorts) > self._parameters.fec_groups:
            oldest, _ = self._shorts.popitem(last=False)
            self._holes = [one for one in self._holes if one != oldest]
            self._left_out.pop(oldest, None)

    def _actual(self, group: int) -> int:
        return self._shorts.get(group, self.size)

    def _has_ended(self, group: int) -> bool:
        """Whether all packets of a group were sent (FEC-25, FEC-31)."""
        return self._gap_detector.end >= group + self._actual(group)

    def ended_size(self, group: int) -> int | None:
        """Packets in a group; None while not all of them were sent."""
        return self._actual(group) if self._has_ended(group) else None

    def short_group(self, sqn: int) -> int | None:
        """The short group that left this sqn out; None for a sqn that was used, as far as is known."""
        group = group_of(sqn, self.size)
        return group if sqn >= group + self._actual(group) else None

    @property
    def _first_open(self) -> int:
        """The first group whose losses may not be asked for yet.

        Where parity comes unasked, the end of the data is not the end: what is on its way need not be asked for.
        """
        end = self._gap_detector.end
        group = group_of(end - 1, self.size)
        if not self._has_ended(group):
            return group
        has_come = self._stock.count(group)
        is_lacking = self._lacks(group)
        return group if is_lacking and self._usual > has_come and end == group + self.size else group + self.size

    def review(self, now_ns: int) -> None:
        """Something was learnt: skip what never was, hold what is in an open group, let go what is in one that has ended."""
        if not self._gap_detector.has_begun:
            return
        if self._holes and self._state.keeps_group_size:
            self._skip_holes()
        if not self._recovery.missing:
            self._stock.clear()
            self._open_from = group_of(self._gap_detector.end, self.size)
        else:
            self._rearm(now_ns)
        self._prune()

    def _skip_holes(self) -> None:
        end, left = self._gap_detector.end, []
        for group in self._holes:
            spans = self._recovery.arrived(group + self._actual(group), min(end, group + self.size))
            for low, high in spans:
                self._counters.skipped_sqns += high - low
                if self._counters.watch is not None:
                    self._counters.watch.skipped(self._state.tsi, low, high)
            if spans:
                self._skipped += spans
                self._left_out.setdefault(group, []).extend(spans)
            if end < group + self.size:
                left.append(group)
        self._holes = left

    def _rearm(self, now_ns: int) -> None:
        missing, first_open = self._recovery.missing, self._first_open
        if first_open > self._open_from:
            self._let_go(self._cut_at(self._open_from, first_open), now_ns)
            self._open_from, self._hold_until_ns = first_open, 0
        held = [found for found in self._cut_at(first_open, self._gap_detector.end) if found.first >= first_open]
        if held and not self._hold_until_ns:
            # A source that ends its groups when it is idle will end this one too (FEC-24).
            is_sure = self._closes_groups and not self._has_ended(first_open)
            ivl = self._parameters.stall_ivl if is_sure else self._parameters.fec_hold_ivl
            self._hold_until_ns = now_ns + ivl
        for found in held:
            if found.state is RepairState.BACK_OFF and not found.is_parked and found.deadline_ns < self._hold_until_ns:
                missing.arm(found, self._hold_until_ns)

    def _cut_at(self, first: int, end: int) -> list[MissingRange]:
        """The ranges of these sqns, cut at the edges; where there may be no more of them, all that reach in, as they are."""
        missing = self._recovery.missing
        if len(missing) + 2 <= self._parameters.rxw_gaps:
            return missing.within(first, end)
        return list(itertools.takewhile(lambda found: found.first < end, missing.reaching(first)))

    def _let_go(self, ended: list[MissingRange], now_ns: int) -> None:
        """Back off, the less the more is missing (FEC-27); together, so that one NAK lists all groups."""
        resting = [found for found in ended if found.state is RepairState.BACK_OFF and not found.is_parked]
        if resting:
            most = max(self.count(group) for group in {group_of(found.first, self.size) for found in resting})
            back_off = self._rng.randint(1, self._recovery.nak_bo_ivl) // most
            for found in resting:
                self._recovery.missing.arm(found, now_ns + self._parameters.reorder_ivl + back_off)

    def _prune(self) -> None:
        """Keep packets and parity of groups that lack something, and the packets of the last one."""
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
        """Sqns that were missing and never were."""
        spans, self._skipped = self._skipped, []
        return spans

    # Asking

    def count(self, group: int) -> int:
        """Packets to ask for, relative to a full group: what is neither here nor in parity that is (FEC-25)."""
        here = sum(part.count for part in self._store.parts(group, group + self.size)) + self._stock.count(group)
        return max(1, self.size - here)

    def plan(self, asking: Iterable[MissingRange]) -> tuple[list[int], list[Span]]:
        """What is due as requests for parity, one sqn a group as NAKs carry them, and as spans of single packets."""
        parity: dict[int, int] = {}
        single: list[Span] = []
        for found in asking:
            first = found.first
            while first < found.end:
                group = group_of(first, self.size)
                end = min(found.end, group + self.size)
                if self._asks_singly(group, found):
                    single.append((first, end))
                else:
                    parity[group] = self.count(group)
                first = end
        return [request_sqn(group, count) for group, count in sorted(parity.items())], merged(single)

    def _asks_singly(self, group: int, found: MissingRange) -> bool:
        # In turns: perhaps nobody above knows parity, or somebody answers single requests by parity.
        turn = (found.ncf_retries + found.data_retries) // self._parameters.fec_retries
        return (
            not self._is_on_demand
            or group < self._state.trail
            or group in self._corrupt
            or not self._has_ended(group)
            or turn % 2 == 1
        )

    def packets_asked(self, sqns: Iterable[int]) -> int:
        """How many packets parity requests ask for."""
        return sum(requested(sqn, self.size)[1] for sqn in sqns)

    def answered(self, nak: Nak) -> list[Span]:
        """The groups that a parity NCF or NAK speaks of for as many packets as are missing here, or more (FEC-26).

        A group whose parity has no room here yet waits on: what others get of it does not help.
        """
        asked = [requested(self._state.unwrap(sqn), self.size) for sqn in nak.sqns]
        end = self._recovery.asks_before_sqn
        spans = [(group, group + self.size) for group, count in asked if group < end and count >= self.count(group)]
        return merged(spans)

    # What comes

    def on_data(self, data: Data, first: int, now_ns: int) -> list[Run]:
        """Data that was taken in; returns what could be rebuilt by its help."""
        end = first + data.count
        if data.options:
            short = find(data.options, CurrTgsize)
            if short is not None:
                self._learn_end(end - 1, short.size)
        self.review(now_ns)
        touched = self._stock.within(first, end) if self._stock else ()
        return [run for group in touched for run in self._rebuild(group)]

    def on_parity(self, data: Data, first: int, now_ns: int) -> list[Run]:
        """Parity packets; returns what could be rebuilt. They never count as data (FEC-05)."""
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
            or group in self._corrupt
            or packet.index >= code.parity_limit(self.size)
        ):
            return False
        pinned = self._kept.pinned_octets if self._kept is not None else 0
        return self._stock.add(packet, self._parameters.rxw_bytes - pinned)

    def _rebuild(self, group: int) -> list[Run]:
        """The missing packets of a group, once as much parity is there as packets are not (FEC-29)."""
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
        runs = groups.decode(
            parts, parity, group, self.size, actual, tsi=state.tsi, data_port=state.data_port, trail=state.trail
        )
        if runs is None:
            self._counters.parity_corrupt += 1
            self._corrupt[group] = None
            if len(self._corrupt) > self._parameters.fec_groups:
                self._corrupt.popitem(last=False)
            return []
        wanted = [run for run in runs if self._recovery.is_missing(run.first)]
        self._counters.parity_sqns += len(wanted)
        return wanted
