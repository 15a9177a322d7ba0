"""Claims that a stream is far ahead of what was received.

One packet is easy to forge, and a lead far ahead makes every receiver request packets that were never sent. A lead beyond
the bound of `_bound` is therefore a claim. A claim moves nothing until enough witnesses agree, and until the source
would have contradicted a false claim by its data or SPMs. The packets of a claim are dropped meanwhile. They are
missing if the claim proves true.
"""

from __future__ import annotations

import attrs

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.session_context import SessionContext
from pgm.units import MILLISECOND, NEVER, SECOND
from pgm.wire.formats import Nla, tsi_text
from pgm.wire.sequence_numbers import is_newer

_MOST_CLAIMS = 4
# The rate is measured between marks. Four of them reach back before a stop of the process: what its sockets held is
# read at once, and makes one mark.
_MOST_MARKS = 4
_MARK_IVL = 100 * MILLISECOND
_DECAY = 8  # the measured rate falls by this part a mark at most
_EXPECTED = 8  # a live source would have sent so many packets before its silence counts


@attrs.define
class _Claim:
    """Sqns far ahead, and the packets that agree on them."""

    first: int
    newest: int
    begun_ns: int
    seen_ns: int
    lead: int  # the believed lead when the claim was made
    packets: int = 0  # of data
    spms: int = 0
    spm_sqn: int | None = None


@attrs.define
class _Mark:
    """Believed lead at a time."""

    lead: int
    at_ns: int


class LeadClaims:
    """Claims of one session, and the bound beyond which a lead is a claim."""

    def __init__(self, context: SessionContext) -> None:
        self._tsi = context.tsi
        self._parameters = context.parameters
        self._counters = context.counters
        self._claims: list[_Claim] = []
        self._marks: list[_Mark] = []  # oldest first
        self._rate = 0  # sqns/s: the highest of late, in slow decay
        self._claimed_at_ns = -NEVER  # the last claim
        self._is_told = True

    def believes_data(self, first: int, end: int, lead: int, heard_at_ns: int, now_ns: int) -> bool:
        """Return whether data ahead of `lead` is believed. The source was last heard at `heard_at_ns`."""
        if self._is_plausible(first, lead, now_ns):
            return True
        claim = self._claim_of(first, end - 1, lead, now_ns)
        if end - 1 > claim.newest or not claim.packets:
            claim.packets += end - first if not claim.packets else end - max(first, claim.newest + 1)
            claim.newest = max(claim.newest, end - 1)
        if first > lead + self._parameters.rxw_sqns or not self._is_proved(claim, lead, heard_at_ns, now_ns):
            self._counters.jumps_rejected += end - first
            return False
        self._follow()
        return True

    def believes_spm(self, claimed: int, spm_sqn: int, lead: int, heard_at_ns: int, now_ns: int) -> bool:
        """Return whether the lead of an SPM is believed."""
        if self._is_plausible(claimed, lead, now_ns):
            return True
        claim = self._claim_of(claimed, claimed, lead, now_ns)
        if claim.spm_sqn is None or is_newer(spm_sqn, claim.spm_sqn):
            claim.spms += 1
            claim.spm_sqn = spm_sqn
            claim.newest = max(claim.newest, claimed)
        if claimed > lead + self._parameters.rxw_sqns:
            # The session restarts there, and everything before is lost: only silence and both kinds of packets prove it.
            is_proved = claim.packets > 0 and self._is_alone(claim, heard_at_ns, now_ns)
        elif claim.packets:
            is_proved = self._is_proved(claim, lead, heard_at_ns, now_ns)
        else:
            is_proved = self._is_alone(claim, heard_at_ns, now_ns)
        if not is_proved:
            self._counters.jumps_rejected += 1
            return False
        self._follow()
        return True

    def on_true_spm(self, lead: int, now_ns: int) -> None:
        """Note that a believed SPM has shown `lead`: the source contradicts all claims."""
        if self._claims:
            self._counters.jumps_refuted += len(self._claims)
            self._claims.clear()
        if not self._marks:
            self._marks.append(_Mark(lead, now_ns))
        elif now_ns - self._marks[-1].at_ns >= _MARK_IVL:
            self._rate = max(self._rate_since(self._marks[-1], lead, now_ns), self._rate - self._rate // _DECAY)
            self._marks = [*self._marks[1 - _MOST_MARKS :], _Mark(lead, now_ns)]

    def report(self, peer: Nla, now_ns: int) -> Effects:
        """Return a notice about a refused packet of `peer`, once an episode. Silence of claims ends an episode."""
        if self._is_told:
            return NOTHING
        self._is_told = True
        claim = max(self._claims, key=lambda claim: claim.seen_ns)
        text = f"{peer} claims sqn {claim.newest}, {claim.newest - claim.lead} ahead of the newest that is proved"
        return (Notice("jump-unproved", f"session {tsi_text(self._tsi)}: {text}"),)

    def _is_plausible(self, sqn: int, lead: int, now_ns: int) -> bool:
        return sqn <= min(self._bound(lead, now_ns), lead + self._parameters.rxw_sqns)

    def _bound(self, lead: int, now_ns: int) -> int:
        """Return the newest plausible sqn: a burst ahead of the lead, or of the highest lead that the rate allows."""
        factor, rate = self._parameters.jump_rate_factor, self._recent_rate(lead, now_ns)
        rate = max(rate, self._rate)
        reached = [mark.lead + factor * rate * (now_ns - mark.at_ns) // SECOND for mark in self._marks]
        return max([lead, *reached]) + self._parameters.jump_burst_sqns

    def _recent_rate(self, lead: int, now_ns: int) -> int:
        return self._rate_since(self._marks[0], lead, now_ns) if self._marks else 0

    def _rate_since(self, mark: _Mark, lead: int, now_ns: int) -> int:
        return (lead - mark.lead) * SECOND // max(now_ns - mark.at_ns, MILLISECOND)

    def _claim_of(self, first: int, newest: int, lead: int, now_ns: int) -> _Claim:
        """Return the claim that these sqns agree with, or a new one in place of the weakest."""
        if now_ns - self._claimed_at_ns >= self._parameters.peer_expiry:
            self._claims.clear()
            self._is_told = False
        self._claimed_at_ns = now_ns
        parameters = self._parameters
        for claim in self._claims:
            passed = parameters.jump_rate_factor * self._rate * (now_ns - claim.seen_ns) // SECOND
            reach = min(parameters.jump_burst_sqns + passed, parameters.rxw_sqns)
            if claim.first - reach <= newest and first <= claim.newest + reach:
                claim.seen_ns = now_ns
                claim.first = min(claim.first, first)
                return claim
        if len(self._claims) == _MOST_CLAIMS:
            self._claims.remove(min(self._claims, key=lambda claim: (claim.packets + claim.spms, claim.seen_ns)))
        claim = _Claim(first, newest, now_ns, now_ns, lead)
        self._claims.append(claim)
        return claim

    def _is_proved(self, claim: _Claim, lead: int, heard_at_ns: int, now_ns: int) -> bool:
        """Return whether a claim with data is true: enough witnesses, more data than from the source's old position.

        The witnesses must last as long as the source would take to contradict them, by its rate of late. Many packets
        need not wait so long.
        """
        parameters = self._parameters
        if claim.packets + claim.spms < parameters.jump_confirmations or claim.packets <= lead - claim.lead:
            return False
        lasts_ns, least_ns = now_ns - claim.begun_ns, parameters.jump_ivl
        if lasts_ns >= least_ns and claim.packets >= parameters.jump_packets:
            return True
        rate = self._recent_rate(lead, now_ns)
        speaks_ns = (
            min(_EXPECTED * SECOND // rate, parameters.jump_silence_ivl) if rate else parameters.jump_silence_ivl
        )
        return max(lasts_ns, now_ns - heard_at_ns) >= max(least_ns, speaks_ns)

    def _is_alone(self, claim: _Claim, heard_at_ns: int, now_ns: int) -> bool:
        """Return whether enough SPMs agree on a claim, and a live source would have contradicted them."""
        is_silent = now_ns - heard_at_ns >= self._parameters.jump_silence_ivl
        return is_silent and claim.spms >= self._parameters.jump_confirmations

    def _follow(self) -> None:
        self._claims.clear()
        self._counters.jumps_followed += 1
