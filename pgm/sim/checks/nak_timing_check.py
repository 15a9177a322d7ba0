"""When a receiver may send a NAK, and when it must: RFC 3208 section 6.3 told from outside.

The model knows nothing of the core's states. It sees what a receiver hears and says, asks only whether a sqn
is missing there, and keeps per missing sqn two instants: before the first the receiver must not ask, by the
second it must have asked or been told.

* After a NAK of its own, or of another receiver, it waits NAK_RPT_IVL.
* After an NCF it waits NAK_RDATA_IVL; a NAK heard while it does so starts that wait anew. Once repairs were measured that
  interval follows what they take: the session says how long it is now, and has to stay between its bounds. What was promised before
  the first repair came then waits no longer either.
* A wait that is over leads to a NAK within NAK_BO_IVL; a new gap within `reorder_ivl` + NAK_BO_IVL, or `ab_hold_ivl` where
  there are several lines. While answers are late
  a wait may last up to `nak_max_ivl`.

With parity on demand it asks for numbers of packets of a group, at the end of the group: that has a rhythm of its own, which this
model does not know.

Nothing is demanded of a receiver that has not heard an SPM (RCV-22), and nothing while it may not ask for more
at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import attrs

from pgm.core.effects import CloseCause, Closed, Effect, Opened, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.parameters import Parameters
from pgm.sim.checks.checker import Checker
from pgm.sim.node import SimulatedNode
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.options import Fin, ParityPrm, Rst, find
from pgm.wire.sequence_numbers import unwrap
from pgm.wire.train import Data, Train

_TIE = MICROSECOND  # instants are exact; this only spares a tie between a timer and an arrival


@attrs.define
class _Wait:
    """One missing sqn. `is_promised` after an NCF.

    `promised_until_ns` is the end of that wait by the most generous reading: a driver may serve it late.
    """

    not_before_ns: int = 0
    ask_by_ns: int = NEVER
    is_promised: bool = False
    promised_until_ns: int = -NEVER
    promised_ns: int = 0  # when that wait began, or began anew


@attrs.define
class ReceiverModel:
    """One session at one receiver, as seen from outside."""

    node: SimulatedNode
    tsi: Tsi
    end: int  # behind the newest sqn known
    has_path: bool = False
    resumed_ns: int = -1  # when the process last went on after a stop ...
    slept_from_ns: int = 0  # ... which no timer was served since
    busy_ns: int = -NEVER  # when more was missing than may be asked for at a time
    longest_data_ivl: int = 0  # by which it may wait for what was promised since that interval last shrank
    late_ns: int = -NEVER  # when it last waited longer than the parameters say, since answers are late
    waits: dict[int, _Wait] = attrs.field(factory=dict)
    due: list[tuple[int, int]] = attrs.field(factory=list)  # (ask_by_ns, sqn), stale entries included
    fresh: list[tuple[int, int]] = attrs.field(factory=list)  # spans that may be new gaps
    heard: list[tuple[int, int]] = attrs.field(factory=list)  # what now waits for data, by which interval
    leaves: bool = False  # whether the source has said its end, since when waits may be cut short
    promised: list[int] = attrs.field(factory=list)  # sqns in them that an NCF showed and promised at once

    @property
    def core(self) -> ReceiverCore:
        """The receiver."""
        core = self.node.core
        assert isinstance(core, ReceiverCore)
        return core

    @property
    def limits(self) -> Parameters:
        """Its timers."""
        return self.node.parameters

    def unwrapped(self, sqns: Iterable[int]) -> list[int]:
        """Wire sqns as this receiver counts them."""
        return [unwrap(sqn, self.end - 1) for sqn in sqns]

    def is_missing(self, sqn: int) -> bool:
        """Whether the receiver lacks it."""
        return self.core.is_missing(self.tsi, sqn)

    @property
    def is_patient(self) -> bool:
        """Whether the receiver waits longer than NAK_RPT_IVL or NAK_RDATA_IVL, or backs off for longer than NAK_BO_IVL."""
        session = self.core.sessions.get(self.tsi)
        if session is None:
            return False
        is_silenced = session.state.spm is not None and not session.may_ask
        is_told = session.nak_bo_ivl_ns > self.limits.nak_bo_ivl
        return is_silenced or is_told or session.intervals_ns > (self.limits.nak_rpt_ivl, self.limits.nak_rdata_ivl)

    @property
    def data_ivl(self) -> int:
        """How long it waits for a repair now. By what repairs take, within the bounds of its parameters."""
        session = self.core.sessions.get(self.tsi)
        if session is None:
            return self.limits.nak_rdata_ivl
        limits, ivl = self.limits, session.intervals_ns[1]
        least, most = min(limits.nak_rdata_ivl, limits.nak_rdata_min_ivl), max(limits.nak_rdata_ivl, limits.nak_max_ivl)
        if not least <= ivl <= most:
            self.node.fail(f"waits {ivl} ns for repairs, which is beyond its bounds")
        return ivl

    @property
    def bo_ivl(self) -> int:
        """The longest that it backs off: by its parameter, or by what it was told."""
        session = self.core.sessions.get(self.tsi)
        return self.limits.nak_bo_ivl if session is None else max(self.limits.nak_bo_ivl, session.nak_bo_ivl_ns)

    @property
    def is_busy(self) -> bool:
        """Whether more is missing than may be asked for at a time: then the oldest go first and the others wait."""
        session = self.core.sessions.get(self.tsi)
        return session is not None and session.missing_sqns > self.limits.nak_max_outstanding

    def set(self, sqn: int, wait: _Wait, ask_by_ns: int) -> None:
        """Demand a sign by an instant."""
        # Two timers may lie between: the wait, then the back-off.
        wait.ask_by_ns = ask_by_ns + _TIE + 2 * self.node.context.timer_slack_ns
        heapq.heappush(self.due, (wait.ask_by_ns, sqn))


class NakTimingCheck(Checker):
    """NAKs neither too early nor too late, per receiver, session and sqn."""

    def __init__(self) -> None:
        self._ears: dict[int, dict[Tsi, ReceiverModel]] = {}
        self._parity: set[tuple[int, Tsi]] = set()  # sessions that offer parity, by who has heard so

    def started(self, node: SimulatedNode) -> None:
        """A new process knows nothing."""
        self._ears[node.index] = {}

    def resumed(self, node: SimulatedNode) -> None:
        """A stopped process could not ask: what is due is due from now."""
        for ear in self._ears.get(node.index, {}).values():
            ear.resumed_ns, ear.slept_from_ns = self.world.now_ns, node.paused_ns
            self._start_anew(ear)

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        """Sessions come and go."""
        ears = self._ears[node.index]
        if isinstance(effect, Opened) and not effect.resumed and (node.index, effect.tsi) not in self._parity:
            ears[effect.tsi] = ReceiverModel(node, effect.tsi, effect.first)
        elif isinstance(effect, Closed) and effect.cause is not CloseCause.SILENT:
            ears.pop(effect.tsi, None)

    # What it hears

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Note what promises or postpones, and which gaps this may show."""
        if not node.is_receiver:
            return
        ears = self._ears[node.index]
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Spm) and item.options and find(item.options, ParityPrm) is not None:
                self._parity.add((node.index, item.tsi))
                ears.pop(item.tsi, None)
            ear = ears.get(item.tsi)
            if ear is None:
                continue
            if isinstance(item, Data):
                first = ear.unwrapped([item.wire_sqn])[0]
                self._reaches(ear, first, first + item.count)
            elif isinstance(item, Spm):
                self._heard_path(ear)
                ear.leaves = ear.leaves or any(find(item.options, kind) is not None for kind in (Fin, Rst))
                lead = ear.unwrapped([item.lead])[0]
                self._reaches(ear, lead + 1, lead + 1)
            elif isinstance(item, Nak):
                self._heard(ear, item)

    def _heard_path(self, ear: ReceiverModel) -> None:
        if not ear.has_path:
            ear.has_path = True
            self._start_anew(ear)

    def _start_anew(self, ear: ReceiverModel) -> None:
        """The receiver could not ask so far: what is due is due from now."""
        limits = ear.limits
        for sqn, wait in ear.waits.items():
            ear.set(sqn, wait, max(wait.not_before_ns, self.world.now_ns + limits.nak_rpt_ivl) + limits.nak_bo_ivl)

    def _reaches(self, ear: ReceiverModel, first: int, end: int) -> None:
        if first > ear.end:
            ear.fresh.append((ear.end, first))
        ear.end = max(ear.end, end)

    def _heard(self, ear: ReceiverModel, nak: Nak) -> None:
        sqns = ear.unwrapped(nak.sqns)
        for sqn in sqns:
            if not ear.is_missing(sqn):
                continue
            wait = ear.waits.setdefault(sqn, _Wait())
            if nak.kind is PacketType.NCF:
                self._promised(ear, sqn, wait)
            elif nak.kind is PacketType.NAK:
                self._heard_nak(ear, sqn, wait)
        if nak.kind is PacketType.NCF and max(sqns) <= ear.end - 1 + ear.limits.ncf_lead_sqns:
            if max(sqns) >= ear.end:
                ear.fresh.append((ear.end, max(sqns) + 1))
                ear.promised += [sqn for sqn in sqns if sqn >= ear.end]
            ear.end = max(ear.end, max(sqns) + 1)

    def _heard_nak(self, ear: ReceiverModel, sqn: int, wait: _Wait) -> None:
        """A NAK of another receiver. Where the driver may not have served the end of a wait yet, both readings stand."""
        now_ns, limits = self.world.now_ns, ear.limits
        wait.is_promised = wait.is_promised and now_ns < wait.not_before_ns
        served_ns = ear.slept_from_ns if ear.resumed_ns == now_ns else now_ns - self.world.timer_slack_ns
        may_wait_for_data = served_ns <= wait.promised_until_ns
        data_ivl = ear.data_ivl
        if wait.is_promised:
            wait.promised_ns = now_ns
            ear.longest_data_ivl = max(ear.longest_data_ivl, data_ivl)
            self._wait(ear, sqn, wait, data_ivl, data_ivl)
        else:
            least = min(limits.nak_rpt_ivl, data_ivl) if may_wait_for_data else limits.nak_rpt_ivl
            self._wait(ear, sqn, wait, least, limits.nak_rpt_ivl)
        if may_wait_for_data:
            wait.promised_until_ns = now_ns + data_ivl
            ear.set(sqn, wait, now_ns + max(data_ivl, limits.nak_rpt_ivl) + limits.nak_bo_ivl)
            ear.heard.append((sqn, data_ivl))

    def _promised(self, ear: ReceiverModel, sqn: int, wait: _Wait) -> None:
        wait.is_promised = True
        data_ivl = ear.data_ivl
        self._wait(ear, sqn, wait, data_ivl, data_ivl)
        wait.promised_ns = self.world.now_ns
        ear.longest_data_ivl = max(ear.longest_data_ivl, data_ivl)
        wait.promised_until_ns = wait.promised_ns + data_ivl
        ear.heard.append((sqn, data_ivl))

    def _hastened(self, ear: ReceiverModel) -> None:
        """The first repair shows what repairs take: what was promised before waits no longer than that."""
        ivl = ear.data_ivl
        if ivl < ear.longest_data_ivl:
            for wait in ear.waits.values():
                if wait.is_promised:
                    wait.not_before_ns = min(wait.not_before_ns, max(self.world.now_ns, wait.promised_ns + ivl))
        ear.longest_data_ivl = ivl

    def _measured(self, ear: ReceiverModel) -> None:
        """A repair in the same train may have changed the interval before or after it was used: both readings stand."""
        now_ns, ivl = self.world.now_ns, ear.data_ivl
        for sqn, before in ear.heard:
            wait = ear.waits.get(sqn)
            if wait is None or ivl == before:
                continue
            wait.not_before_ns = min(wait.not_before_ns, now_ns + ivl)
            if ivl > before:
                wait.promised_until_ns = max(wait.promised_until_ns, now_ns + ivl)
                ear.set(sqn, wait, max(wait.ask_by_ns, now_ns + ivl + ear.limits.nak_bo_ivl))
        ear.heard.clear()
        if ear.leaves:
            for wait in ear.waits.values():
                if wait.is_promised:
                    wait.not_before_ns = min(wait.not_before_ns, now_ns + ivl)

    def _wait(self, ear: ReceiverModel, sqn: int, wait: _Wait, least: int, most: int) -> None:
        wait.not_before_ns = self.world.now_ns + least
        ear.set(sqn, wait, self.world.now_ns + most + ear.limits.nak_bo_ivl)

    # What it says

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """A NAK of its own: not too early?"""
        if not node.is_receiver or send.is_data:
            return
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is PacketType.NAK and not (send.to is None and send.hops == 1):
                ear = self._ears[node.index].get(item.tsi)
                if ear is not None:
                    self._asked(ear, ear.unwrapped(item.sqns))

    def _asked(self, ear: ReceiverModel, sqns: list[int]) -> None:
        now_ns = self.world.now_ns
        for sqn in sqns:
            wait = ear.waits.setdefault(sqn, _Wait())
            if now_ns < wait.not_before_ns:
                after = "an NCF" if wait.is_promised else "a NAK"
                ear.node.fail(f"NAK for {sqn} comes {wait.not_before_ns - now_ns} ns too early after {after}")
            wait.is_promised, wait.promised_until_ns = False, -NEVER
            self._wait(ear, sqn, wait, ear.limits.nak_rpt_ivl, ear.limits.nak_rpt_ivl)

    # What it does not say

    def called(self, node: SimulatedNode) -> None:
        """New gaps begin to count; what is overdue is an error."""
        if not node.is_receiver:
            return
        for ear in self._ears[node.index].values():
            if ear.fresh:
                self._find(ear)
            if ear.heard or ear.leaves:
                self._measured(ear)
            if ear.waits:
                self._hastened(ear)
            if ear.is_busy:
                ear.busy_ns = self.world.now_ns
            if ear.is_patient:
                ear.late_ns = self.world.now_ns
            if ear.due and ear.due[0][0] < self.world.now_ns:
                self._overdue(ear)

    def _find(self, ear: ReceiverModel) -> None:
        limits = ear.limits
        settles_ivl = max(limits.reorder_ivl, limits.ab_hold_ivl if ear.node.plan.lines else 0)
        until_ns = self.world.now_ns + settles_ivl + limits.nak_bo_ivl
        for first, end in ear.fresh:
            for sqn in range(first, end):
                if sqn in ear.waits or not ear.is_missing(sqn):
                    continue
                wait = ear.waits[sqn] = _Wait()
                if sqn in ear.promised:
                    self._promised(ear, sqn, wait)
                else:
                    ear.set(sqn, wait, until_ns)
        ear.fresh.clear()
        ear.promised.clear()

    def _overdue(self, ear: ReceiverModel) -> None:
        now_ns, limits = self.world.now_ns, ear.limits
        patience = limits.nak_rpt_ivl + limits.nak_bo_ivl
        longest = limits.nak_max_ivl + ear.bo_ivl
        while ear.due and ear.due[0][0] < now_ns:
            at_ns, sqn = heapq.heappop(ear.due)
            wait = ear.waits.get(sqn)
            if wait is None or wait.ask_by_ns != at_ns:
                continue
            if not ear.is_missing(sqn):
                del ear.waits[sqn]
            elif not ear.has_path or now_ns - ear.busy_ns <= patience or now_ns - ear.late_ns <= longest:
                ear.set(sqn, wait, now_ns + patience)
            else:
                ear.node.fail(f"{sqn} is missing, a NAK was due {now_ns - at_ns} ns ago")
