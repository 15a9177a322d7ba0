"""Instants at which a receiver may and must send a NAK: RFC 3208 section 6.3.

The model works from outside and does not know the core's states. It sees the packets that a receiver gets and sends,
and asks only whether a sqn is missing there. For each missing sqn it keeps two instants. Before the first, the receiver
must not send a NAK. By the second, the receiver must have sent one or received an NCF.

* After a NAK of its own, or of another receiver, the receiver waits NAK_RPT_IVL.
* After an NCF it waits NAK_RDATA_IVL. A NAK of another receiver restarts that wait.
* After the first measured repair, NAK_RDATA_IVL follows the repair times. The session reports the present value, which
  must stay within its bounds. Waits that began before the first repair are shortened to it, too.
* The end of a wait leads to a NAK within NAK_BO_IVL. A new gap leads to one within `reorder_ivl` + NAK_BO_IVL, or
  `ab_hold_ivl` + NAK_BO_IVL with several lines. While answers are late, a wait may last up to `nak_max_ivl`.

With parity on demand a receiver requests a number of packets of a group, at the end of the group. That timing differs,
and this model does not cover it.

The model requires nothing of a receiver without an SPM (RCV-22), nor of one at its limit on outstanding requests.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import attrs

from pgm.core.effects import CloseCause, Closed, Effect, Opened, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.recovery.nak_control import is_for_asker
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

_TIE = MICROSECOND  # instants are exact; this covers only a timer and an arrival at the same instant


@attrs.define
class _Wait:
    """Wait for one missing sqn.

    `is_confirmed` holds after an NCF. `data_wait_end_ns` is the latest end of the wait for data, since a driver may
    serve that end late.
    """

    not_before_ns: int = 0
    ask_by_ns: int = NEVER
    is_confirmed: bool = False
    data_wait_end_ns: int = -NEVER
    confirmed_ns: int = 0  # start or last restart of the wait for data
    asked_ns: int = -NEVER  # when the receiver itself last sent a NAK

    def is_asked(self, now_ns: int) -> bool:
        """Return whether the receiver waits for an NCF to its own NAK."""
        return not self.is_confirmed and self.asked_ns >= 0 and now_ns < self.not_before_ns


@attrs.define
class ReceiverModel:
    """Model of one session at one receiver, as seen from outside."""

    node: SimulatedNode
    tsi: Tsi
    end: int  # sqn after the newest one known
    has_path: bool = False
    resumed_ns: int = -1  # when the process last resumed after a stop ...
    slept_from_ns: int = 0  # ... during which no timer was served
    at_limit_ns: int = -NEVER  # when the missing sqns last exceeded the limit on outstanding requests
    longest_data_ivl: int = 0  # longest wait for data that began since the interval last shrank
    late_ns: int = -NEVER  # when the receiver last used longer waits than its parameters, because answers were late
    waits: dict[int, _Wait] = attrs.field(factory=dict)
    due: list[tuple[int, int]] = attrs.field(factory=list)  # (ask_by_ns, sqn), stale entries included
    new_spans: list[tuple[int, int]] = attrs.field(factory=list)  # spans that may be new gaps
    # sqns whose wait for data just began, and the interval used
    data_waits: list[tuple[int, int]] = attrs.field(factory=list)
    source_is_closing: bool = False  # the source has announced its end, after which waits may be cut short
    confirmed_sqns: list[int] = attrs.field(factory=list)  # sqns in `new_spans` that an NCF both showed and confirmed

    @property
    def core(self) -> ReceiverCore:
        """Core of the receiver."""
        core = self.node.core
        assert isinstance(core, ReceiverCore)
        return core

    @property
    def limits(self) -> Parameters:
        """Parameters of the receiver."""
        return self.node.parameters

    def unwrapped(self, sqns: Iterable[int]) -> list[int]:
        """Return wire sqns as this receiver counts them."""
        return [unwrap(sqn, self.end - 1) for sqn in sqns]

    def is_missing(self, sqn: int) -> bool:
        """Return whether the receiver lacks a sqn."""
        return self.core.is_missing(self.tsi, sqn)

    @property
    def has_long_waits(self) -> bool:
        """Whether the waits exceed NAK_RPT_IVL or NAK_RDATA_IVL, or back-offs NAK_BO_IVL."""
        session = self.core.sessions.get(self.tsi)
        if session is None:
            return False
        recovery, limits = session.recovery, self.limits
        is_silenced = session.state.spm is not None and not recovery.may_ask
        intervals_ns = recovery.ncf_timeout.ivl_ns, recovery.data_timeout.ivl_ns
        has_long_back_off = recovery.nak_bo_ivl > limits.nak_bo_ivl
        return is_silenced or has_long_back_off or intervals_ns > (limits.nak_rpt_ivl, limits.nak_rdata_ivl)

    @property
    def data_ivl(self) -> int:
        """Present wait for a repair, ns. Fails the run if the session's interval is out of bounds."""
        session = self.core.sessions.get(self.tsi)
        if session is None:
            return self.limits.nak_rdata_ivl
        limits, ivl = self.limits, session.recovery.data_timeout.ivl_ns
        least, most = min(limits.nak_rdata_ivl, limits.nak_rdata_min_ivl), max(limits.nak_rdata_ivl, limits.nak_max_ivl)
        if not least <= ivl <= most:
            self.node.fail(f"waits {ivl} ns for repairs, which is out of bounds")
        return ivl

    @property
    def bo_ivl(self) -> int:
        """Longest back-off, ns: the parameter, or the parent's announcement if longer."""
        session = self.core.sessions.get(self.tsi)
        return self.limits.nak_bo_ivl if session is None else max(self.limits.nak_bo_ivl, session.recovery.nak_bo_ivl)

    @property
    def is_at_limit(self) -> bool:
        """Whether the missing sqns exceed the limit on requests; then the oldest are requested first."""
        session = self.core.sessions.get(self.tsi)
        return session is not None and session.recovery.missing.sqns > self.limits.nak_max_outstanding

    def set(self, sqn: int, wait: _Wait, ask_by_ns: int) -> None:
        """Require a NAK or an NCF for a sqn by an instant."""
        # Two timers may lie between: the wait, then the back-off.
        wait.ask_by_ns = ask_by_ns + _TIE + 2 * self.node.context.timer_slack_ns
        heapq.heappush(self.due, (wait.ask_by_ns, sqn))


class NakTimingCheck(Checker):
    """NAKs neither too early nor too late, for every receiver, session and sqn."""

    def __init__(self) -> None:
        self._models: dict[int, dict[Tsi, ReceiverModel]] = {}
        self._parity: set[tuple[int, Tsi]] = set()  # (node, session) pairs whose SPMs offered parity
        # When the NAKs of a session that is not open yet were sent and last confirmed, by wire sqn. A late joiner waits
        # for its history or a state.
        self._early_naks: dict[tuple[int, Tsi], dict[int, tuple[int, int]]] = {}

    def started(self, node: SimulatedNode) -> None:
        """Forget the sessions of the former process."""
        self._models[node.index] = {}
        for key in [key for key in self._early_naks if key[0] == node.index]:
            del self._early_naks[key]

    def resumed(self, node: SimulatedNode) -> None:
        """Restart the waits: a stopped process could not send NAKs."""
        for model in self._models.get(node.index, {}).values():
            model.resumed_ns, model.slept_from_ns = self.world.now_ns, node.paused_ns
            self._restart_waits(model)

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        """Follow opened and closed sessions."""
        models = self._models[node.index]
        if isinstance(effect, Opened) and not effect.resumed and (node.index, effect.tsi) not in self._parity:
            model = models[effect.tsi] = ReceiverModel(node, effect.tsi, effect.first)
            session = model.core.sessions.get(effect.tsi)
            model.has_path = session is not None and session.state.spm is not None
            for sqn, (sent_ns, confirmed_ns) in self._early_naks.pop((node.index, effect.tsi), {}).items():
                self._wait_since(model, unwrap(sqn, model.end - 1), sent_ns, confirmed_ns)
        elif isinstance(effect, Closed) and effect.cause is not CloseCause.SILENT:
            models.pop(effect.tsi, None)

    # Received packets

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Record confirmations, postponements, and spans that may be new gaps."""
        if not node.is_receiver:
            return
        models = self._models[node.index]
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Spm) and item.options and find(item.options, ParityPrm) is not None:
                self._parity.add((node.index, item.tsi))
                models.pop(item.tsi, None)
            model = models.get(item.tsi)
            if model is None:
                if isinstance(item, Nak) and item.kind is PacketType.NCF:
                    early = self._early_naks.get((node.index, item.tsi), {})
                    early.update({sqn: (early[sqn][0], self.world.now_ns) for sqn in item.sqns if sqn in early})
                continue
            if isinstance(item, Data):
                first = model.unwrapped([item.wire_sqn])[0]
                self._extend(model, first, first + item.count)
            elif isinstance(item, Spm):
                self._on_spm(model)
                model.source_is_closing = model.source_is_closing or any(
                    find(item.options, kind) is not None for kind in (Fin, Rst)
                )
                lead = model.unwrapped([item.lead])[0]
                self._extend(model, lead + 1, lead + 1)
            elif isinstance(item, Nak):
                self._on_nak(model, item)

    def _on_spm(self, model: ReceiverModel) -> None:
        if not model.has_path:
            model.has_path = True
            self._restart_waits(model)

    def _restart_waits(self, model: ReceiverModel) -> None:
        """Count all waits from now: the receiver could not send NAKs before. No wait becomes shorter."""
        limits = model.limits
        for sqn, wait in model.waits.items():
            ask_by_ns = max(wait.not_before_ns, self.world.now_ns + limits.nak_rpt_ivl) + limits.nak_bo_ivl
            if wait.ask_by_ns < ask_by_ns:
                model.set(sqn, wait, ask_by_ns)

    def _extend(self, model: ReceiverModel, first: int, end: int) -> None:
        if first > model.end:
            model.new_spans.append((model.end, first))
        model.end = max(model.end, end)

    def _on_nak(self, model: ReceiverModel, nak: Nak) -> None:
        sqns = model.unwrapped(nak.sqns)
        for sqn in sqns:
            if not model.is_missing(sqn):
                continue
            if is_for_asker(nak) and (sqn not in model.waits or not model.waits[sqn].is_asked(self.world.now_ns)):
                continue
            wait = model.waits.setdefault(sqn, _Wait())
            if nak.kind is PacketType.NCF:
                self._on_ncf(model, sqn, wait)
            elif nak.kind is PacketType.NAK:
                self._on_foreign_nak(model, sqn, wait)
        if nak.kind is PacketType.NCF and max(sqns) <= model.end - 1 + model.limits.ncf_lead_sqns:
            if max(sqns) >= model.end:
                model.new_spans.append((model.end, max(sqns) + 1))
                model.confirmed_sqns += [sqn for sqn in sqns if sqn >= model.end and not is_for_asker(nak)]
            model.end = max(model.end, max(sqns) + 1)

    def _on_foreign_nak(self, model: ReceiverModel, sqn: int, wait: _Wait) -> None:
        """Handle another receiver's NAK. Both orders are valid while the end of a wait is still to be served."""
        now_ns, limits = self.world.now_ns, model.limits
        wait.is_confirmed = wait.is_confirmed and now_ns < wait.not_before_ns
        served_ns = model.slept_from_ns if model.resumed_ns == now_ns else now_ns - self.world.timer_slack_ns
        may_wait_for_data = served_ns <= wait.data_wait_end_ns
        data_ivl = model.data_ivl
        if wait.is_confirmed:
            wait.confirmed_ns = now_ns
            model.longest_data_ivl = max(model.longest_data_ivl, data_ivl)
            self._wait(model, sqn, wait, data_ivl, data_ivl)
        else:
            least = min(limits.nak_rpt_ivl, data_ivl) if may_wait_for_data else limits.nak_rpt_ivl
            self._wait(model, sqn, wait, least, limits.nak_rpt_ivl)
        if may_wait_for_data:
            wait.data_wait_end_ns = now_ns + data_ivl
            model.set(sqn, wait, now_ns + max(data_ivl, limits.nak_rpt_ivl) + limits.nak_bo_ivl)
            model.data_waits.append((sqn, data_ivl))

    def _on_ncf(self, model: ReceiverModel, sqn: int, wait: _Wait) -> None:
        wait.is_confirmed = True
        data_ivl = model.data_ivl
        self._wait(model, sqn, wait, data_ivl, data_ivl)
        wait.confirmed_ns = self.world.now_ns
        model.longest_data_ivl = max(model.longest_data_ivl, data_ivl)
        wait.data_wait_end_ns = wait.confirmed_ns + data_ivl
        model.data_waits.append((sqn, data_ivl))

    def _shorten_waits(self, model: ReceiverModel) -> None:
        """Shorten confirmed waits to the interval that the first repair showed."""
        ivl = model.data_ivl
        if ivl < model.longest_data_ivl:
            for wait in model.waits.values():
                if wait.is_confirmed:
                    wait.not_before_ns = min(wait.not_before_ns, max(self.world.now_ns, wait.confirmed_ns + ivl))
        model.longest_data_ivl = ivl

    def _apply_measured_ivl(self, model: ReceiverModel) -> None:
        """Accept the interval before and after a repair in the same train, which may change either use."""
        now_ns, ivl = self.world.now_ns, model.data_ivl
        for sqn, previous_ivl in model.data_waits:
            wait = model.waits.get(sqn)
            if wait is None or ivl == previous_ivl:
                continue
            wait.not_before_ns = min(wait.not_before_ns, now_ns + ivl)
            if ivl > previous_ivl:
                wait.data_wait_end_ns = max(wait.data_wait_end_ns, now_ns + ivl)
                model.set(sqn, wait, max(wait.ask_by_ns, now_ns + ivl + model.limits.nak_bo_ivl))
        model.data_waits.clear()
        if model.source_is_closing:
            for wait in model.waits.values():
                if wait.is_confirmed:
                    wait.not_before_ns = min(wait.not_before_ns, now_ns + ivl)

    def _wait(self, model: ReceiverModel, sqn: int, wait: _Wait, least: int, most: int) -> None:
        wait.not_before_ns = self.world.now_ns + least
        model.set(sqn, wait, self.world.now_ns + most + model.limits.nak_bo_ivl)

    # Sent packets

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Check that a NAK of the receiver is not too early."""
        if not node.is_receiver or send.is_data:
            return
        for item in train.parse_untrusted()[0]:
            if isinstance(item, Nak) and item.kind is PacketType.NAK and not (send.to is None and send.hops == 1):
                model = self._models[node.index].get(item.tsi)
                if model is not None:
                    self._on_own_nak(model, model.unwrapped(item.sqns))
                else:
                    early = self._early_naks.setdefault((node.index, item.tsi), {})
                    early.update(dict.fromkeys(item.sqns, (self.world.now_ns, -NEVER)))

    def _wait_since(self, model: ReceiverModel, sqn: int, sent_ns: int, confirmed_ns: int) -> None:
        """Continue the wait that began with a NAK and perhaps an NCF, before the session opened."""
        wait, ends_ns = _Wait(), sent_ns + model.limits.nak_rpt_ivl
        wait.not_before_ns = ends_ns
        if confirmed_ns > sent_ns:
            wait.is_confirmed, wait.confirmed_ns = True, confirmed_ns
            model.longest_data_ivl = max(model.longest_data_ivl, model.data_ivl)
            wait.data_wait_end_ns = ends_ns = confirmed_ns + model.longest_data_ivl
        model.waits[sqn] = wait
        model.late_ns = self.world.now_ns  # answers may have been late before, which this model did not see
        model.set(sqn, wait, max(ends_ns, self.world.now_ns) + model.limits.nak_bo_ivl)

    def _on_own_nak(self, model: ReceiverModel, sqns: list[int]) -> None:
        now_ns = self.world.now_ns
        for sqn in sqns:
            wait = model.waits.setdefault(sqn, _Wait())
            if now_ns < wait.not_before_ns:
                after = "an NCF" if wait.is_confirmed else "a NAK"
                model.node.fail(f"NAK for {sqn} comes {wait.not_before_ns - now_ns} ns too early after {after}")
            wait.is_confirmed, wait.data_wait_end_ns, wait.asked_ns = False, -NEVER, now_ns
            self._wait(model, sqn, wait, model.limits.nak_rpt_ivl, model.limits.nak_rpt_ivl)

    # Overdue NAKs

    def called(self, node: SimulatedNode) -> None:
        """Start the waits of new gaps; fail for an overdue NAK."""
        if not node.is_receiver:
            return
        for model in self._models[node.index].values():
            if model.new_spans:
                self._find_gaps(model)
            if not model.waits:
                continue  # nothing is missing, so no NAK can be overdue
            if model.data_waits or model.source_is_closing:
                self._apply_measured_ivl(model)
            self._shorten_waits(model)
            if model.is_at_limit:
                model.at_limit_ns = self.world.now_ns
            if model.has_long_waits:
                model.late_ns = self.world.now_ns
            if model.due and model.due[0][0] < self.world.now_ns:
                self._overdue(model)

    def _find_gaps(self, model: ReceiverModel) -> None:
        limits = model.limits
        settling_ivl = max(limits.reorder_ivl, limits.ab_hold_ivl if model.node.plan.lines else 0)
        until_ns = self.world.now_ns + settling_ivl + limits.nak_bo_ivl
        for first, end in model.new_spans:
            for sqn in range(first, end):
                if sqn in model.waits or not model.is_missing(sqn):
                    continue
                wait = model.waits[sqn] = _Wait()
                if sqn in model.confirmed_sqns:
                    self._on_ncf(model, sqn, wait)
                else:
                    model.set(sqn, wait, until_ns)
        model.new_spans.clear()
        model.confirmed_sqns.clear()

    def _overdue(self, model: ReceiverModel) -> None:
        now_ns, limits = self.world.now_ns, model.limits
        repeat_ivl = limits.nak_rpt_ivl + limits.nak_bo_ivl
        longest = limits.nak_max_ivl + model.bo_ivl
        while model.due and model.due[0][0] < now_ns:
            at_ns, sqn = heapq.heappop(model.due)
            wait = model.waits.get(sqn)
            if wait is None or wait.ask_by_ns != at_ns:
                continue
            if not model.is_missing(sqn):
                del model.waits[sqn]
            elif not model.has_path or now_ns - model.at_limit_ns <= repeat_ivl or now_ns - model.late_ns <= longest:
                model.set(sqn, wait, now_ns + repeat_ivl)
            else:
                model.node.fail(f"{sqn} is missing, a NAK was due {now_ns - at_ns} ns ago")
