"""Getting missing packets from above: back off, ask, be confirmed, wait for data, or give up (RFC 6.3).

One `MissingRange` stands for a range of sqns in the same state; nothing exists for sqns that arrived, so a
lossless session costs nothing here. Which state follows which is in `repair_table`; this module owns the
timers, the drawing of NAK_RB_IVL, the limit on what is asked for at a time, and giving up. It knows
neither windows nor packets: it is told spans of sqns.
"""

from __future__ import annotations

import itertools
import operator
import random
from collections.abc import Iterable, Iterator, Sequence

from pgm.core.counters import Counters
from pgm.core.pacing.token_bucket import TokenBucket
from pgm.core.recovery.group_limit import GroupLimit
from pgm.core.recovery.missing_range import MissingRange, RecoveryActions, parked_in
from pgm.core.recovery.outstanding_limit import OutstandingLimit
from pgm.core.recovery.repair_table import RECEIVER, Interval, RepairEvent, RepairState, RepairTable, Retries
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.core.structures.ranges import FIRST, Span, TimedRanges
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi
from pgm.wire.naks import LIST_SQNS

_SEVERAL = 4  # lists, of which leaving out a part of one is no matter
_OLD_TRIES = 3  # for what only caches can have: one may be lost, one may cross a change of parent
_STATE, _PROMISE = operator.attrgetter("state"), operator.attrgetter("state", "promised_ns", "data_retries")


class Recovery:
    """The missing packets of one session. `may_ask` is off until the path is known (RCV-22)."""

    def __init__(
        self,
        parameters: Parameters,
        rng: random.Random,
        counters: Counters,
        ncf_patience: ResponseTimeout,
        table: RepairTable = RECEIVER,
        *,
        tsi: Tsi = b"",
    ) -> None:
        self._tsi = tsi  # for those who watch
        self.settle_ivl = parameters.reorder_ivl  # ns in which what is missing may still come of itself
        self._parameters = parameters
        self._rng = rng
        self._counters = counters
        self._table = table
        self.ncf_patience = ncf_patience
        self.data_patience = ResponseTimeout(
            parameters.nak_rdata_ivl,
            max(parameters.nak_rdata_ivl, parameters.nak_max_ivl),
            min(parameters.nak_rdata_ivl, parameters.nak_rdata_min_ivl),
        )
        self._source_is_closing = False  # for time: the source is leaving
        self.missing: TimedRanges[MissingRange] = TimedRanges()
        self._at_once = OutstandingLimit(parameters, counters)
        self.group_limit: GroupLimit | None = None  # of a session that asks for parity
        self.asks_before_sqn = NEVER  # what lies from this sqn on waits for room by that limit
        self._waits_for_group = False  # parked ranges wait for that alone
        self._outstanding = 0  # sqns in WAIT_NCF and WAIT_DATA
        self.cached_below_sqn = 0  # what lies before this sqn a repairer has said to keep
        self.old_repair_ns = 0  # when something missing below the trail last arrived
        self._leaves_at_ns = -NEVER  # when the back-off of the gaps found last is over
        self._admit_at_ns = NEVER  # when to look for room for what is parked; NEVER when nothing is
        self.may_ask = False
        self.budget: TokenBucket | None = (
            None  # sqns that may be asked for in a time, of a receiver that restrains itself
        )
        self._affordable = NEVER  # what it allows now
        self.nak_bo_ivl = parameters.nak_bo_ivl  # ns; whoever is above may advertise another

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self.missing.next_deadline_ns, self._admit_at_ns) if self.may_ask else NEVER

    @property
    def has_room_at_ns(self) -> int:
        """When what is parked is looked at; now where answers have made room."""
        return self._admit_at_ns if self.may_ask else NEVER

    def allow_asking(self, now_ns: int) -> None:
        """The path is known. What waited for it backs off anew, so that not everybody asks at the same instant."""
        if self.may_ask:
            return
        self.may_ask = True
        back_off = self._nak_rb_ivl()
        for found in self.missing:
            if found.deadline_ns <= now_ns:
                self.missing.arm(found, now_ns + back_off)

    def source_leaves(self, now_ns: int) -> None:
        """The source serves as long as somebody asks: from now on every wait is as short as the parameters say (RFC 9.7.2)."""
        if self._source_is_closing:
            return
        self._source_is_closing = True
        for response_timeout in (self.ncf_patience, self.data_patience):
            response_timeout.ceiling_ns = response_timeout.floor_ns
        for found in self.missing:
            promised = found.state is RepairState.WAIT_DATA
            at_ns = now_ns + (self.data_patience if promised else self.ncf_patience).ivl_ns
            if at_ns < found.deadline_ns != NEVER:
                self.missing.arm(found, at_ns)

    def is_missing(self, sqn: int) -> bool:
        """Whether this sqn is being recovered."""
        return self.missing.at(sqn) is not None

    def has_asked(self, first: int, end: int) -> bool:
        """Whether an own NAK is under way for any of these sqns."""
        for found in self.missing.reaching(first):
            if found.first >= end:
                break
            if found.asked is not None:
                return True
        return False

    def detect(self, first: int, end: int, now_ns: int, *, at_once: bool = False) -> None:
        """Note a gap. `at_once` asks without back-off: a child is waiting (NE-10).

        Gaps that are found while a back-off runs share its end, so that one NAK lists them (RCV-33). That end is as
        random for them: nobody else backs off at the same times. One that was drawn of a longer NAK_BO_IVL is not shared.
        """
        settled_ns = now_ns + self.settle_ivl
        leaves_at_ns = settled_ns if at_once else self._leaving_at(settled_ns)
        for low, high in self.missing.uncovered(first, end):
            found = self.missing.add(MissingRange(low, high, found_at_ns=now_ns))
            self._counters.missing_sqns += high - low
            self.missing.arm(found, leaves_at_ns)
            if self._counters.watch is not None:
                self._counters.watch.missing(self._tsi, low, high, now_ns)

    def detect_new(self, spans: Sequence[Span], now_ns: int) -> None:
        """The same for gaps that lie in order behind all that is missing, while nobody watches."""
        if not spans:
            return
        leaves_at_ns, before = self._leaving_at(now_ns + self.settle_ivl), self.missing.sqns
        self.missing.extend(
            [MissingRange(first, end, deadline_ns=leaves_at_ns, found_at_ns=now_ns) for first, end in spans]
        )
        self._counters.missing_sqns += self.missing.sqns - before

    def _leaving_at(self, begins_ns: int) -> int:
        """When a back-off that begins then is over: with the one that runs, where that is one it could have drawn."""
        if not begins_ns <= self._leaves_at_ns <= begins_ns + self.nak_bo_ivl:
            self._leaves_at_ns = begins_ns + self._nak_rb_ivl()
        return self._leaves_at_ns

    def expedite(self, first: int, end: int, now_ns: int, *, is_relied_on: bool = False) -> None:
        """Ask for what is still backing off as soon as it cannot merely be out of order.

        `is_relied_on`: the parent itself asks us. What it promised on the segment it expects from us, so its
        promise is void and only a NAK of our own tells it to ask elsewhere (DLR-14, DLR-36).
        """
        for found in self.missing.within(first, end):
            has_asked = found.state is RepairState.WAIT_NCF and found.asked is not None
            if is_relied_on and not has_asked:
                self._outstanding -= found.outstanding
                found.state = RepairState.BACK_OFF
            at_ns = max(now_ns, found.found_at_ns + self.settle_ivl)
            if found.state is RepairState.BACK_OFF and at_ns < found.deadline_ns:
                self.missing.arm(found, at_ns)

    def restart_back_off(self, first: int, end: int, now_ns: int) -> None:
        """Nothing can bring these of itself any more: what backs off does so from now on."""
        if not self.missing or len(self.missing) + 2 > self._parameters.rxw_gaps:
            return
        at_ns = now_ns + self._nak_rb_ivl()
        for found in self.missing.within(first, end):
            if found.state is RepairState.BACK_OFF and at_ns < found.deadline_ns != NEVER:
                self.missing.arm(found, at_ns)

    def confirmed(self, spans: Iterable[Span], now_ns: int, peer: Nla | None = None) -> None:
        """Note that somebody above promised to repair `spans`: a matching NCF, of whoever was asked unless `peer` says.

        Only for NCFs that came from above. One from our own subnet says that a child was heard, not that
        we were; taking it for ours would stop the NAK that the child is waiting for.
        """
        self._heard(spans, RepairEvent.NCF_HEARD, now_ns, peer)

    def overheard(self, spans: Iterable[Span], now_ns: int) -> None:
        """Note that another receiver asked for `spans`: a matching multicast NAK."""
        self._heard(spans, RepairEvent.NAK_HEARD, now_ns, None)

    def _heard(self, spans: Iterable[Span], event: RepairEvent, now_ns: int, peer: Nla | None) -> None:
        if not self.missing:
            return  # the common case by far: on a subnet we hear of everybody's losses
        heard, cut = self._cut_where(list(spans))
        if event is RepairEvent.NCF_HEARD:
            self._note_promise(heard, now_ns, peer)
        backing_off = [found for found in heard if found.state is RepairState.BACK_OFF]
        self._counters.naks_suppressed += len(backing_off)
        if self._counters.watch is not None:
            for found in backing_off:
                self._counters.watch.suppressed(self._tsi, found, now_ns)
        self._step(heard, event, now_ns)
        for pieces in cut:
            self._join(pieces)

    def _cut_where(self, spans: Sequence[Span]) -> tuple[list[MissingRange], list[list[MissingRange]]]:
        """The ranges inside of spans, cut at their edges; and by span those of which there are several."""
        exact = self.missing.exactly(spans)
        if exact is not None:  # as what an own NAK listed is mostly: nothing to cut
            return exact, []
        inside: list[MissingRange] = []
        several: list[list[MissingRange]] = []
        for first, end in spans:
            if len(self.missing) + 2 > self._parameters.rxw_gaps:
                break  # cutting ranges is what would exceed the bound; asking once more is the lesser evil
            pieces = self.missing.within(first, end)
            inside += pieces
            if len(pieces) > 1:
                several.append(pieces)
        return inside, several

    def _note_promise(self, heard: list[MissingRange], now_ns: int, peer: Nla | None) -> None:
        """An NCF for these: whoever was asked has answered. What one NAK listed is one answer."""
        watch, asked_ns = self._counters.watch, None
        for found in heard:
            if found.asked is None or (peer is not None and peer != found.asked):
                continue
            if watch is not None and found.state is RepairState.WAIT_NCF:
                watch.confirmed(self._tsi, found, now_ns)
            if not found.ncf_retries and found.since_ns != asked_ns:
                asked_ns = found.since_ns
                self.ncf_patience.answered(now_ns - asked_ns)
            found.asked = None

    def arrived(self, first: int, end: int, now_ns: int | None = None) -> list[Span]:
        """Note data that came now, or sqns that are wanted no more. Returns which of them had been missing."""
        return self.arrived_each(((first, end),), now_ns)

    def arrived_each(self, spans: Iterable[Span], now_ns: int | None = None) -> list[Span]:
        """The same for several spans in order."""
        if not self.missing:
            return []
        found = self.missing.discard_each(spans)
        if found and now_ns is not None and self._counters.watch is not None:
            self._counters.watch.arrived(self._tsi, found, now_ns)
        was_measured = self.data_patience.is_measured
        for (state, promised_ns, data_retries), neighbours in itertools.groupby(found, _PROMISE):
            some = list(neighbours)
            if state is RepairState.BACK_OFF:
                continue
            self._outstanding -= sum([one.end - one.first for one in some])
            if state is RepairState.WAIT_DATA and now_ns is not None:
                self.data_patience.answered(now_ns - promised_ns, is_repeated=data_retries > 0, times=len(some))
        if now_ns is not None and not was_measured and self.data_patience.is_measured:
            self._hasten(now_ns)
        if now_ns is not None and now_ns < self._admit_at_ns < NEVER and self._has_room_after(found):
            self._admit_at_ns = now_ns  # answers are the clock: what is parked need not wait for a timer
        return [(one.first, one.end) for one in found]

    def _hasten(self, now_ns: int) -> None:
        """Wait for what was promised before any repair had come as long as for what is promised from now on.

        Else the first repair that is lost holds up delivery for all of nak_rdata_ivl, and with it whatever comes meanwhile.
        """
        sooner_ns = self.data_patience.floor_ns - self.data_patience.ivl_ns
        for found in self.missing:
            if sooner_ns > 0 and found.state is RepairState.WAIT_DATA and found.deadline_ns != NEVER:
                self.missing.arm(found, max(now_ns, found.deadline_ns - sooner_ns))

    def give_up_before(self, sqn: int) -> list[Span]:
        """End the recovery of everything below `sqn` (RCV-11)."""
        oldest = self.missing.oldest
        return self.arrived(oldest.first, sqn) if oldest is not None and oldest.first < sqn else []

    def give_up_due(self, now_ns: int) -> list[Span]:
        """End the recovery of what has had time to arrive late, without asking: for streams that are not repaired."""
        due = self.missing.take_due(now_ns)
        for found in due:
            self.missing.remove(found)
            self._settle(found)
            if self._counters.watch is not None:
                self._counters.watch.gave_up(self._tsi, found, now_ns)
        return sorted((found.first, found.end) for found in due)

    def handle_deadline(self, now_ns: int, *, may_give_up: bool, trail: int = 0) -> RecoveryActions:
        """Move every range whose timer has run out. What lies below `trail` only a cache can repair.

        While the session is silent nobody can tell loss from an outage above, so nothing is given up and no retry
        is counted: they are all there when the session is heard again.
        """
        step = RecoveryActions([], [], [])
        due = self.missing.take_due(now_ns)
        if due and due[0].first < trail:
            due = self._in_order(due, trail)
        ready = [found for found in due if found.state is RepairState.BACK_OFF]
        waiting, timed_out = (
            self._timed_out(due, step, now_ns, may_give_up, trail) if len(ready) < len(due) else ([], [])
        )
        step.asking = self._admitted(ready, step, now_ns, trail)
        self._step(step.asking, RepairEvent.TIMER, now_ns)
        for response_timeout in timed_out:
            response_timeout.timed_out(now_ns)
        if waiting:
            self._join(waiting)
        step.asking = self._join(step.asking)
        return step

    def _timed_out(
        self, due: list[MissingRange], step: RecoveryActions, now_ns: int, may_give_up: bool, trail: int
    ) -> tuple[list[MissingRange], list[ResponseTimeout]]:
        """What waited in vain, of what is due, backs off again or is given up. Returns what waits on, and the interval of each."""
        waiting: list[MissingRange] = []
        late: list[ResponseTimeout] = []
        # Shared by what falls due together and with gaps found lately, so that it fits one NAK list. One over now is drawn anew.
        back_off = self._leaving_at(now_ns) - now_ns
        for found in due:
            if found.state is RepairState.BACK_OFF:
                continue
            # A promise of somebody else that came to nothing does not excuse the parent that was asked.
            is_unanswered = found.state is RepairState.WAIT_NCF or found.asked is not None
            if is_unanswered and found.asked not in step.unanswered:
                step.unanswered.append(found.asked)  # once: one NAK may have listed many ranges
            found.asked = None
            response_timeout = self.ncf_patience if found.state is RepairState.WAIT_NCF else self.data_patience
            late.append(response_timeout)
            if self._counters.watch is not None:
                self._counters.watch.timed_out(self._tsi, found, now_ns)
            self._step((found,), RepairEvent.TIMER, now_ns, back_off, response_timeout if may_give_up else None)
            if may_give_up and (self._is_exhausted(found) or self._is_beyond_caches(found, trail, now_ns)):
                self.missing.remove(found)
                self._settle(found)
                step.given_up.append((found.first, found.end))
                if self._counters.watch is not None:
                    self._counters.watch.gave_up(self._tsi, found, now_ns)
            else:
                waiting.append(found)
        return waiting, late

    def _join(self, pieces: list[MissingRange]) -> list[MissingRange]:
        """Make pieces that are in the same state until the same instant one range again; returns what is left.

        Repairs and the NAKs of others cut ranges, each piece then has a timer of its own, and a NAK for
        each: without this a long repair ends in a storm of NAKs for a few sqns each.
        """
        in_order = sorted(pieces, key=FIRST)
        if {one.end for one in in_order}.isdisjoint([one.first for one in in_order]):
            return in_order  # as scattered losses are: no two touch
        whole: list[MissingRange] = []
        for one in in_order:
            if whole and whole[-1].end == one.first and whole[-1].is_like(one):
                whole[-1].ncf_retries = min(whole[-1].ncf_retries, one.ncf_retries)
                whole[-1].data_retries = min(whole[-1].data_retries, one.data_retries)
                whole[-1].data_waits = min(whole[-1].data_waits, one.data_waits)
                self.missing.join(whole[-1], one)
            else:
                whole.append(one)
        return whole

    def _admitted(
        self, ready: list[MissingRange], step: RecoveryActions, now_ns: int, trail: int
    ) -> list[MissingRange]:
        """What may be asked for now, oldest first, of the ranges whose back-off is over; the rest is parked.

        Parked ranges have no timers: with tens of thousands of them, looking at each again and again would take all the
        time there is. They are looked for in order when there may be room, and use up no retries meanwhile.
        """
        if self.budget is not None:
            self._affordable = self.budget.available(now_ns)
        if self._admit_at_ns != NEVER:
            if now_ns < self._admit_at_ns and not self._has_worthwhile_room:
                return []  # what is ready now is behind them
            self._at_once.begin_wave()  # before it is found out how much there is room for
            self._limit_groups(trail)
            ready = self._in_order(self._parked(trail), trail)
        elif ready:
            self._at_once.begin_wave()
            self._limit_groups(trail)
        self._waits_for_group = self.asks_before_sqn != NEVER
        self._admit_at_ns = NEVER
        if self._waits_for_group:
            self._admit_at_ns = now_ns + self._parameters.nak_rpt_ivl
            ready = self._within_groups(ready)
        admitted: list[MissingRange] = []
        room, taken = self._room, 0
        if sum([found.end - found.first for found in ready]) <= room:
            admitted, ready = ready, []
        for found in ready:
            if room < self._at_once.worthwhile(found.count, self.budget):
                self._admit_at_ns, self._waits_for_group = now_ns + self._parameters.nak_rpt_ivl, False
                break
            if found.count > room:
                self._admit_at_ns, self._waits_for_group = now_ns + self._parameters.nak_rpt_ivl, False
                if self._is_full and not admitted and not self._outstanding:
                    admitted = self._instead_of_part(found, room, step, now_ns)
                if self._is_full:
                    break  # what is asked for makes a place in the table, too
                # Whole lists where there is room for several: what is left over would take a NAK of its own each time.
                rest = (room + taken) % LIST_SQNS if room >= _SEVERAL * LIST_SQNS else 0
                self.missing.within(found.first, found.first + room - rest)
                room = found.count
            room -= found.count
            taken += found.count
            admitted.append(found)
        if self.budget is not None:
            self.budget.charge(sum(found.count for found in admitted), now_ns)
        return admitted

    def _instead_of_part(
        self, found: MissingRange, room: int, step: RecoveryActions, now_ns: int
    ) -> list[MissingRange]:
        """What to ask for whole where the table has no place for a part of `found`, and nothing asked for will make one.

        Nothing for now while only what still backs off is small enough. Where nothing is, the oldest other range makes the place.
        """
        worthwhile = self._at_once.worthwhile(room, self.budget)
        small = [one for one in self.missing if one.count <= (room if one.is_parked else worthwhile)]
        if not small:
            oldest = next(one for one in self.missing if one is not found)
            step.crowded_out += self.arrived(oldest.first, oldest.end)
            if self._counters.watch is not None:
                self._counters.watch.gave_up(self._tsi, oldest, now_ns)
        return parked_in(small, room)

    def _limit_groups(self, trail: int) -> None:
        if self.group_limit is not None:
            self.asks_before_sqn = self.group_limit.end(self.missing, trail)

    def _within_groups(self, ready: list[MissingRange]) -> list[MissingRange]:
        """Those that lie before `asks_before_sqn`, cut there unless the table has no place for the rest."""
        end = self.asks_before_sqn
        within = [found for found in ready if found.first < end]
        for found in within:
            if found.end > end and not self._is_full:
                self.missing.within(found.first, end)
        return within

    @property
    def _is_full(self) -> bool:
        """Whether cutting a range would make one too many."""
        return len(self.missing) >= self._parameters.rxw_gaps

    @property
    def _room(self) -> int:
        """Sqns that may be asked for besides those that are."""
        room = self._at_once.sqns - self._outstanding
        return room if self.budget is None else min(room, self._affordable)

    @property
    def _has_worthwhile_room(self) -> bool:
        return self._room >= self._at_once.worthwhile(self.missing.sqns - self._outstanding, self.budget)

    def _has_room_after(self, arrived: list[MissingRange]) -> bool:
        """Whether parked ranges need not wait any longer, now that these have arrived."""
        if self._waits_for_group and self.group_limit is not None:
            return self.group_limit.is_freed(self.missing, arrived)
        return self._has_worthwhile_room

    def _parked(self, trail: int) -> list[MissingRange]:
        """The parked ranges that come first, enough of them to take up all room and more; one at least, if there is one."""
        found: list[MissingRange] = []
        room, sqns = self._room, 0
        for one in itertools.chain(self._askable(trail), self._askable()):
            if one.deadline_ns != NEVER or one.state is not RepairState.BACK_OFF:
                continue  # by far most of them while much is asked for: no calls for those
            if found and (sqns > room or one is found[0]):
                break
            found.append(one)
            sqns += one.end - one.first
        return found

    def _askable(self, sqn: int = -NEVER) -> Iterator[MissingRange]:
        """The ranges from that of `sqn` on for whose groups there is room."""
        ranges, end = self.missing.reaching(sqn), self.asks_before_sqn
        return ranges if end == NEVER else itertools.takewhile(lambda one: one.first < end, ranges)

    def _in_order(self, due: list[MissingRange], trail: int) -> list[MissingRange]:
        """Oldest first (RCV-41), but what the source still has before what only a cache can have.

        While those are asked for in vain, more would fall out of the window.
        """
        for found in tuple(due):
            if found.first < trail < found.end and not self._is_full:
                self.missing.within(found.first, trail)
                rest = self.missing.at(trail)
                assert rest is not None
                due.append(rest)
        return sorted(due, key=lambda one: (one.first < trail, one.first))

    def _step(
        self,
        ranges: Iterable[MissingRange],
        event: RepairEvent,
        now_ns: int,
        back_off: int = 0,
        vain: ResponseTimeout | None = None,
    ) -> None:
        """Move ranges to their next state; those that befalls something together are mostly in the same."""
        for state, neighbours in itertools.groupby(ranges, _STATE):
            some, row = list(neighbours), self._table[state, event]
            if row.next_state is not state:
                more = (row.next_state is not RepairState.BACK_OFF) - (state is not RepairState.BACK_OFF)
                self._outstanding += more * sum([found.end - found.first for found in some])
                is_promised = row.next_state is RepairState.WAIT_DATA
                for found in some:
                    found.state, found.since_ns = row.next_state, now_ns
                    if is_promised and not found.data_retries:
                        found.promised_ns = now_ns
            if vain is not None and row.counts is not None:
                for found in some:
                    if row.counts is Retries.NCF:
                        found.ncf_retries += vain.retries
                    else:
                        found.data_retries += vain.retries
                        found.data_waits += vain.retries_worth
            self.missing.arm_each(some, now_ns + self._interval(row.restarts, back_off))

    def _interval(self, name: Interval, back_off: int) -> int:
        if name is Interval.NAK_RB_IVL:
            return back_off or self._nak_rb_ivl()
        return (self.ncf_patience if name is Interval.NAK_RPT_IVL else self.data_patience).ivl_ns

    def _is_exhausted(self, found: MissingRange) -> bool:
        """Whether a count has exceeded its limit; OpenPGM stops one repeat earlier (RCV-37)."""
        return (
            found.ncf_retries > self._parameters.nak_ncf_retries or found.data_waits > self._parameters.nak_data_retries
        )

    def _is_beyond_caches(self, found: MissingRange, trail: int, now_ns: int) -> bool:
        """Whether a range that the source has left behind was asked for in vain, and nothing of its kind comes any more.

        All retries for every nak_max_outstanding sqns in turn would hold up delivery for minutes when no cache has them.
        """
        if found.first < self.cached_below_sqn:
            return False
        if found.end > trail or found.ncf_retries + found.data_waits < _OLD_TRIES:
            return False
        return now_ns - self.old_repair_ns >= _OLD_TRIES * self._parameters.nak_rdata_ivl

    def _nak_rb_ivl(self) -> int:
        return self._rng.randint(1, self.nak_bo_ivl)

    def _settle(self, found: MissingRange) -> None:
        """Account for a range that left the table."""
        self._outstanding -= found.outstanding
