"""Recovery of missing packets: back-off, NAK, NCF, data, or giving up (RFC 6.3).

One `MissingRange` represents a range of sqns in the same state. Received sqns have no object, so a session without
losses costs nothing here. The module `repair_table` defines the transitions between states. This module owns the timers,
the draw of NAK_RB_IVL, the limit on outstanding sqns, and giving up. The recovery works on spans of sqns and knows
neither windows nor packets.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence

from pgm.core.loss_observer import NO_OBSERVER
from pgm.core.polling.back_off import draw_back_off
from pgm.core.recovery.admission import RequestAdmission
from pgm.core.recovery.missing_range import MissingRange, RecoveryActions
from pgm.core.recovery.repair_table import RECEIVER, Interval, RepairEvent, RepairState, RepairTable, Retries
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.core.session_context import SessionContext
from pgm.core.structures.ranges import FIRST, Span, TimedRanges, merged
from pgm.units import NEVER
from pgm.wire.formats import Nla

_OLD_TRIES = 3  # for data that only caches can have: one NAK may be lost, one may cross a change of parent
_STATE, _PROMISE = operator.attrgetter("state"), operator.attrgetter("state", "promised_ns", "data_retries")


class Recovery:
    """Recovery of one session's missing packets. `may_ask` is off until the path is known (RCV-22)."""

    def __init__(self, context: SessionContext, ncf_timeout: ResponseTimeout, table: RepairTable = RECEIVER) -> None:
        parameters = context.parameters
        self._tsi = context.tsi  # for the observer of losses
        self.settle_ivl = parameters.reorder_ivl  # ns in which a missing packet may merely be out of order
        self._parameters = parameters
        self._rng = context.rng
        self._counters = context.counters
        self._table = table
        self.ncf_timeout = ncf_timeout
        self.data_timeout = ResponseTimeout(
            parameters.nak_rdata_ivl,
            max(parameters.nak_rdata_ivl, parameters.nak_max_ivl),
            min(parameters.nak_rdata_ivl, parameters.nak_rdata_min_ivl),
        )
        self._open_ceilings: tuple[int, ...] = ()  # those of the timeouts before the source began to close
        self.missing: TimedRanges[MissingRange] = TimedRanges()
        self.admission = RequestAdmission(context, self.missing)
        self.cached_below_sqn = 0  # a repairer has offered all data below this sqn
        self.old_repair_ns = 0  # when a missing packet below the trail last arrived
        self._shared_end_ns = -NEVER  # when the shared back-off ends, and its NAK leaves
        self.may_ask = False
        self.nak_bo_ivl = parameters.nak_bo_ivl  # ns, unless sources or parents advertise another interval

    def change(self, *, has_lines: bool) -> None:
        """Take the timers of the parameters as they are now. An advertised back-off stays in force."""
        parameters = self._parameters
        rdata_ivl = parameters.nak_rdata_ivl
        least = min(rdata_ivl, parameters.nak_rdata_min_ivl)
        self.data_timeout.change(rdata_ivl, max(rdata_ivl, parameters.nak_max_ivl), least)
        if not has_lines:  # else the lines set it
            self.settle_ivl = parameters.reorder_ivl

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called; NEVER while NAKs are off."""
        return min(self.missing.find_deadline_ns(), self.admission.at_ns) if self.may_ask else NEVER

    @property
    def has_room_at_ns(self) -> int:
        """Return when parked ranges are next considered. That time is now if answers have made room."""
        return self.admission.at_ns if self.may_ask else NEVER

    def allow_asking(self, now_ns: int) -> None:
        """Allow NAKs: the path is known. Ranges past their back-off back off again, lest all receivers NAK at once."""
        if self.may_ask:
            return
        self.may_ask = True
        back_off = self.draw_back_off()
        for missing in self.missing:
            if missing.deadline_ns <= now_ns:
                self.missing.arm(missing, now_ns + back_off)

    def source_leaves(self, now_ns: int) -> None:
        """Shorten every wait to its lower bound: a closing source stays only while NAKs arrive (RFC 9.7.2)."""
        if self._open_ceilings:
            return
        self._open_ceilings = (self.ncf_timeout.ceiling_ns, self.data_timeout.ceiling_ns)
        for response_timeout in (self.ncf_timeout, self.data_timeout):
            response_timeout.ceiling_ns = response_timeout.floor_ns
        for missing in self.missing:
            is_promised = missing.state is RepairState.WAIT_DATA
            at_ns = now_ns + (self.data_timeout if is_promised else self.ncf_timeout).ivl_ns
            if at_ns < missing.deadline_ns != NEVER:
                self.missing.arm(missing, at_ns)

    def source_stays(self) -> None:
        """End the shorter waits: the source has not closed after all."""
        if self._open_ceilings:
            self.ncf_timeout.ceiling_ns, self.data_timeout.ceiling_ns = self._open_ceilings
            self._open_ceilings = ()

    def is_missing(self, sqn: int) -> bool:
        """Return whether this sqn is missing and in recovery."""
        return self.missing.at(sqn) is not None

    def has_asked(self, first: int, end: int) -> bool:
        """Return whether a NAK of this node is under way for any of these sqns."""
        for missing in self.missing.reaching(first):
            if missing.first >= end:
                break
            if missing.asked is not None:
                return True
        return False

    def detect(self, first: int, end: int, now_ns: int, *, at_once: bool = False) -> None:
        """Note a gap.

        `at_once` requests the data without back-off, because a child is waiting (NE-10). A gap detected during a
        back-off shares the end of that back-off, so that one NAK lists all gaps (RCV-33). The shared end is random too,
        because other nodes draw back-offs of their own. A back-off that was drawn from a longer NAK_BO_IVL is not
        shared.
        """
        settled_ns = now_ns + self.settle_ivl
        end_ns = settled_ns if at_once else self._back_off_end_ns(settled_ns)
        for low, high in self.missing.uncovered(first, end):
            missing = self.missing.add(MissingRange(low, high, found_at_ns=now_ns))
            self._counters.missing_sqns += high - low
            self.missing.arm(missing, end_ns)
            self._counters.watch.missing(self._tsi, low, high, now_ns)

    def detect_new(self, spans: Sequence[Span], now_ns: int) -> None:
        """Note gaps in order, all above every missing sqn."""
        if not spans:
            return
        end_ns, before = self._back_off_end_ns(now_ns + self.settle_ivl), self.missing.sqns
        self.missing.extend([MissingRange(first, end, deadline_ns=end_ns, found_at_ns=now_ns) for first, end in spans])
        self._counters.missing_sqns += self.missing.sqns - before
        if self._counters.watch is not NO_OBSERVER:
            for first, end in spans:
                self._counters.watch.missing(self._tsi, first, end, now_ns)

    def _back_off_end_ns(self, begins_ns: int) -> int:
        """Return the end of a back-off from `begins_ns`: that of the running back-off if it is in the allowed range."""
        if not begins_ns <= self._shared_end_ns <= begins_ns + self.nak_bo_ivl:
            self._shared_end_ns = begins_ns + self.draw_back_off()
        return self._shared_end_ns

    def expedite(self, first: int, end: int, now_ns: int, *, is_relied_on: bool = False) -> None:
        """End back-offs as soon as the sqns cannot merely be out of order.

        With `is_relied_on` the parent itself has sent a NAK to this node. The parent then expects from this node the
        data that it promised on the segment, so the promise is void. Only a NAK of this node makes the parent ask
        elsewhere (DLR-14, DLR-36).
        """
        for missing in self.missing.within(first, end):
            has_asked = missing.state is RepairState.WAIT_NCF and missing.asked is not None
            if is_relied_on and not has_asked:
                self.admission.outstanding -= missing.outstanding
                missing.state = RepairState.BACK_OFF
            at_ns = max(now_ns, missing.found_at_ns + self.settle_ivl)
            if missing.state is RepairState.BACK_OFF and at_ns < missing.deadline_ns:
                self.missing.arm(missing, at_ns)

    def ask_sibling(self, missing: MissingRange, sibling: Nla, wait_ivl: int, now_ns: int) -> None:
        """Note that a range is requested of a sibling, which confirms within `wait_ivl` ns or not at all."""
        missing.asked, missing.asks_sibling = sibling, True
        missing.sibling_tries += 1
        self.missing.arm(missing, now_ns + wait_ivl)

    def leave_siblings(self, spans: Iterable[Span], tries: int, now_ns: int) -> None:
        """Ask the parents for `spans`, which a sibling lacks too: as after `tries` NAKs to siblings."""
        for first, end in spans:
            if not self.missing or len(self.missing) + 2 > self._parameters.rxw_gaps:
                return
            for missing in self.missing.within(first, end):
                missing.sibling_tries = tries
                if missing.asks_sibling and missing.state is RepairState.WAIT_NCF:
                    self.admission.outstanding -= missing.outstanding
                    missing.state, missing.asked, missing.asks_sibling = RepairState.BACK_OFF, None, False
                    self.missing.arm(missing, now_ns + self.draw_back_off())

    def restart_back_off(self, first: int, end: int, now_ns: int) -> None:
        """Restart back-offs now, because these sqns can no longer arrive without a NAK."""
        if not self.missing or len(self.missing) + 2 > self._parameters.rxw_gaps:
            return
        at_ns = now_ns + self.draw_back_off()
        for missing in self.missing.within(first, end):
            if missing.state is RepairState.BACK_OFF and at_ns < missing.deadline_ns != NEVER:
                self.missing.arm(missing, at_ns)

    def confirmed(
        self, spans: Iterable[Span], now_ns: int, peer: Nla | None = None, *, is_for_asker: bool = False
    ) -> None:
        """Note an NCF from above, the promise to repair `spans`.

        `peer` is its sender; None means the asked parent. An NCF from this node's own subnet must not come here. It
        confirms a child's NAK and not a NAK of this node, and would stop the NAK that the child is waiting for. With
        `is_for_asker` the repair goes to the node that asked, so a range that this node has not requested waits for none.
        """
        self._heard(spans, RepairEvent.NCF_HEARD, now_ns, peer, is_for_asker=is_for_asker)

    def overheard(self, spans: Iterable[Span], now_ns: int) -> None:
        """Note another receiver's multicast NAK for `spans`."""
        self._heard(spans, RepairEvent.NAK_HEARD, now_ns, None)

    def _heard(
        self, spans: Iterable[Span], event: RepairEvent, now_ns: int, peer: Nla | None, *, is_for_asker: bool = False
    ) -> None:
        if not self.missing:
            return  # the most frequent case: NAKs and NCFs for the losses of all other receivers on the subnet
        heard, cut = self._cut_at_edges(list(spans))
        if is_for_asker:
            heard = [missing for missing in heard if missing.state is RepairState.WAIT_NCF]
        if event is RepairEvent.NCF_HEARD:
            self._note_promise(heard, now_ns, peer)
        backing_off = [missing for missing in heard if missing.state is RepairState.BACK_OFF]
        self._counters.naks_suppressed += len(backing_off)
        for missing in backing_off:
            self._counters.watch.suppressed(self._tsi, missing, now_ns)
        self._step(heard, event, now_ns)
        for pieces in cut:
            self._join(pieces)

    def _cut_at_edges(self, spans: Sequence[Span]) -> tuple[list[MissingRange], list[list[MissingRange]]]:
        """Cut ranges at the edges of `spans`. Return the ranges inside, and the groups of ranges that share a span."""
        exact = self.missing.exactly(spans)
        if exact is not None:  # the usual case for the spans of an own NAK
            return exact, []
        inside: list[MissingRange] = []
        several: list[list[MissingRange]] = []
        for first, end in merged(spans):
            if len(self.missing) + 2 > self._parameters.rxw_gaps:
                break  # a cut would exceed rxw_gaps, and one NAK too many is the lesser evil
            pieces = self.missing.within(first, end)
            inside += pieces
            if len(pieces) > 1:
                several.append(pieces)
        return inside, several

    def _note_promise(self, heard: list[MissingRange], now_ns: int, peer: Nla | None) -> None:
        """Note that the asked parent has answered. All ranges of one NAK together are one measured answer."""
        watch, asked_ns = self._counters.watch, None
        is_watched = watch is not NO_OBSERVER
        for missing in heard:
            if missing.asked is None or (peer is not None and peer != missing.asked):
                continue
            if is_watched and missing.state is RepairState.WAIT_NCF:
                watch.confirmed(self._tsi, missing, now_ns)
            if missing.asks_sibling:  # whose answers say nothing of the parents
                missing.asked, missing.asks_sibling = None, False
                continue
            if not missing.ncf_retries and missing.since_ns != asked_ns:
                asked_ns = missing.since_ns
                self.ncf_timeout.answered(now_ns - asked_ns)
            missing.asked, missing.unanswered = None, 0

    def arrived(self, first: int, end: int, now_ns: int | None = None) -> list[Span]:
        """Remove sqns received at `now_ns`, or abandoned if None. Return the spans that were missing, in order."""
        return self.arrived_each(((first, end),), now_ns)

    def arrived_each(self, spans: Iterable[Span], now_ns: int | None = None) -> list[Span]:
        """Remove received or abandoned sqns of several spans in order; see `arrived`."""
        if not self.missing:
            return []
        removed = self.missing.discard_each(spans)
        if removed and now_ns is not None:
            self._counters.watch.arrived(self._tsi, removed, now_ns)
        was_measured = self.data_timeout.is_measured
        for (state, promised_ns, data_retries), group in itertools.groupby(removed, _PROMISE):
            ranges = list(group)
            if state is RepairState.BACK_OFF:
                continue
            self.admission.outstanding -= sum([missing.end - missing.first for missing in ranges])
            if state is RepairState.WAIT_DATA and now_ns is not None:
                self.data_timeout.answered(now_ns - promised_ns, is_repeated=data_retries > 0, times=len(ranges))
        if now_ns is not None and not was_measured and self.data_timeout.is_measured:
            self._shorten_data_waits(now_ns)
        if not self.missing:
            self.data_timeout.relax()
        if now_ns is not None:
            self.admission.arrived(removed, now_ns)
        return [(missing.first, missing.end) for missing in removed]

    def _shorten_data_waits(self, now_ns: int) -> None:
        """Shorten waits for data to the first measured interval, lest a lost repair delays all by nak_rdata_ivl."""
        sooner_ns = self.data_timeout.floor_ns - self.data_timeout.ivl_ns
        for missing in self.missing:
            if sooner_ns > 0 and missing.state is RepairState.WAIT_DATA and missing.deadline_ns != NEVER:
                self.missing.arm(missing, max(now_ns, missing.deadline_ns - sooner_ns))

    def give_up_before(self, sqn: int) -> list[Span]:
        """End the recovery of all sqns below `sqn` (RCV-11). Return the spans that had been missing."""
        oldest = self.missing.oldest
        return self.arrived(oldest.first, sqn) if oldest is not None and oldest.first < sqn else []

    def give_up_due(self, now_ns: int) -> list[Span]:
        """End the recovery of all due ranges without a NAK, for streams without repair.

        Return the spans, in order. The deadline has left these packets time to arrive late.
        """
        due = self.missing.take_due(now_ns)
        for missing in due:
            self.missing.remove(missing)
            self.admission.outstanding -= missing.outstanding
            self._counters.watch.gave_up(self._tsi, missing, now_ns)
        return sorted((missing.first, missing.end) for missing in due)

    def handle_deadline(self, now_ns: int, *, may_give_up: bool, trail: int = 0) -> RecoveryActions:
        """Move every range whose timer is due, and return the actions.

        Only a cache can repair sqns below `trail`. `may_give_up` is False while the session is silent, because loss and
        an outage above then look the same. No range is given up and no retry is counted in that case, so that all
        retries remain when packets arrive again.
        """
        actions = RecoveryActions([], [], [])
        due = self.missing.take_due(now_ns)
        if due and due[0].first < trail:
            due = self.admission.in_order(due, trail)
        ready = [missing for missing in due if missing.state is RepairState.BACK_OFF]
        waiting, timed_out = (
            self._timed_out(due, actions, now_ns, may_give_up, trail) if len(ready) < len(due) else ([], [])
        )
        actions.asking, dropped = self.admission.admit(ready, now_ns, trail)
        for missing in dropped:
            actions.crowded_out.append((missing.first, missing.end))
            self._counters.watch.gave_up(self._tsi, missing, now_ns)
        self._step(actions.asking, RepairEvent.TIMER, now_ns)
        for response_timeout in timed_out:
            response_timeout.timed_out(now_ns)
        if waiting:
            self._join(waiting)
        actions.asking = self._join(actions.asking)
        return actions

    def _timed_out(
        self, due: list[MissingRange], actions: RecoveryActions, now_ns: int, may_give_up: bool, trail: int
    ) -> tuple[list[MissingRange], list[ResponseTimeout]]:
        """Start a new back-off for each timed-out range in `due`, or give the range up.

        Return the ranges that back off, and the timeout that has run out for each range, given up or not.
        """
        waiting: list[MissingRange] = []
        late: list[ResponseTimeout] = []
        # Ranges that are due together share one back-off, also with gaps detected lately, so that one NAK list has room for all.
        back_off = self._back_off_end_ns(now_ns) - now_ns
        for missing in due:
            if missing.state is RepairState.BACK_OFF:
                continue
            # Another node's NCF without data does not excuse the asked parent, which owes an NCF of its own.
            is_unanswered = missing.state is RepairState.WAIT_NCF or missing.asked is not None
            if is_unanswered and missing.asked not in actions.unanswered:
                actions.unanswered.append(missing.asked)  # only once, because one NAK may have listed many ranges
            if is_unanswered and not missing.asks_sibling:
                missing.unanswered, missing.tried = missing.unanswered + 1, missing.asked or missing.tried
            response_timeout = self.ncf_timeout if missing.state is RepairState.WAIT_NCF else self.data_timeout
            if not missing.asks_sibling:
                late.append(response_timeout)
            missing.asked, missing.asks_sibling = None, False
            self._counters.watch.timed_out(self._tsi, missing, now_ns)
            self._step((missing,), RepairEvent.TIMER, now_ns, back_off, response_timeout if may_give_up else None)
            if may_give_up and (self._is_exhausted(missing) or self._is_beyond_caches(missing, trail, now_ns)):
                self.missing.remove(missing)
                self.admission.outstanding -= missing.outstanding
                actions.given_up.append((missing.first, missing.end))
                self._counters.watch.gave_up(self._tsi, missing, now_ns)
            else:
                waiting.append(missing)
        return waiting, late

    def _join(self, pieces: list[MissingRange]) -> list[MissingRange]:
        """Join adjacent pieces with the same state and deadline.

        Return the ranges that remain, in order. Repairs and NAKs of other nodes cut ranges. Each piece then has a timer
        and a NAK of its own. Without joins a long repair would end in a storm of NAKs for a few sqns each.
        """
        in_order = sorted(pieces, key=FIRST)
        if {piece.end for piece in in_order}.isdisjoint([piece.first for piece in in_order]):
            return in_order  # scattered losses: no two pieces touch
        joined: list[MissingRange] = []
        for piece in in_order:
            if joined and joined[-1].end == piece.first and joined[-1].is_like(piece):
                joined[-1].ncf_retries = min(joined[-1].ncf_retries, piece.ncf_retries)
                joined[-1].data_retries = min(joined[-1].data_retries, piece.data_retries)
                joined[-1].unanswered = min(joined[-1].unanswered, piece.unanswered)
                joined[-1].data_waits = min(joined[-1].data_waits, piece.data_waits)
                self.missing.join(joined[-1], piece)
            else:
                joined.append(piece)
        return joined

    def _step(
        self,
        ranges: Iterable[MissingRange],
        event: RepairEvent,
        now_ns: int,
        back_off: int = 0,
        timeout: ResponseTimeout | None = None,
    ) -> None:
        """Move ranges, in groups of one state, to the state `event` leads to. A `timeout` counts as a retry."""
        for state, group in itertools.groupby(ranges, _STATE):
            batch, row = list(group), self._table[state, event]
            if row.next_state is not state:
                more = (row.next_state is not RepairState.BACK_OFF) - (state is not RepairState.BACK_OFF)
                self.admission.outstanding += more * sum([missing.end - missing.first for missing in batch])
                is_promised = row.next_state is RepairState.WAIT_DATA
                for missing in batch:
                    missing.state, missing.since_ns = row.next_state, now_ns
                    if is_promised and not missing.data_retries:
                        missing.promised_ns = now_ns
            if timeout is not None and row.counts is not None:
                for missing in batch:
                    if row.counts is Retries.NCF:
                        missing.ncf_retries += timeout.retries
                    else:
                        missing.data_retries += timeout.retries
                        missing.data_waits += timeout.retries_worth
            self.missing.arm_each(batch, now_ns + self._interval(row.restarts, back_off))

    def _interval(self, name: Interval, back_off: int) -> int:
        if name is Interval.NAK_RB_IVL:
            return back_off or self.draw_back_off()
        return (self.ncf_timeout if name is Interval.NAK_RPT_IVL else self.data_timeout).ivl_ns

    def _is_exhausted(self, missing: MissingRange) -> bool:
        """Return whether a retry count has exceeded its limit (RCV-37). OpenPGM stops one repeat earlier."""
        return (
            missing.ncf_retries > self._parameters.nak_ncf_retries
            or missing.data_waits > self._parameters.nak_data_retries
        )

    def _is_beyond_caches(self, missing: MissingRange, trail: int, now_ns: int) -> bool:
        """Return whether a range below the trail is hopeless.

        The range has had its tries, and no repair below the trail has come lately. If no cache has the data, all
        retries for each nak_max_outstanding sqns in turn would hold up delivery for minutes.
        """
        if missing.first < self.cached_below_sqn:
            return False
        if missing.end > trail or missing.ncf_retries + missing.data_waits < _OLD_TRIES:
            return False
        return now_ns - self.old_repair_ns >= _OLD_TRIES * self._parameters.nak_rdata_ivl

    def draw_back_off(self) -> int:
        """Return a new NAK_RB_IVL, in ns."""
        return draw_back_off(self._parameters, self.nak_bo_ivl, self._rng)
