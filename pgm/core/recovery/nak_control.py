"""Rules of parents and sources for a child's NAKs: back-off, silence, polls.

Receivers and repairers share this module. NAKs are off in three cases:

- before the first SPM (RFC 6.2);
- after OPT_NBR_UNREACH, by which a parent says that its packets do not reach its children, until a regular SPM
  (RFC 15.3.2);
- while the advertised interval comes from a census that began before this node was there (RFC 15.2.2).
"""

from __future__ import annotations

from pgm.core.polling.back_off import LearntBackOff
from pgm.core.polling.poll_responder import PollResponder
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.session_context import SessionContext
from pgm.parameters import Parameters
from pgm.wire.control_packets import Nak, Poll, Spm
from pgm.wire.formats import Nla
from pgm.wire.options import ForAsker, NakBoIvl, NakBoRng, NbrUnreach, Options, PathNla, find


def unreachable_neighbour(ncf: Nak) -> Nla | None:
    """Return the parent that an NCF with OPT_NBR_UNREACH is about (empty without OPT_PATH_NLA), or None."""
    if not ncf.options or find(ncf.options, NbrUnreach) is None:
        return None
    path = find(ncf.options, PathNla)
    return "" if path is None else path.path_nla


def is_for_asker(ncf: Nak) -> bool:
    """Return whether an NCF promises a repair to the asker alone (OPT_PGM_ASKER)."""
    return bool(ncf.options) and find(ncf.options, ForAsker) is not None


class NakControl:
    """Control of one child's NAKs in one session by its parents and the source."""

    def __init__(
        self,
        context: SessionContext,
        state: SessionState,
        parents: Parents,
        recovery: Recovery,
        segment: Segment,
        dlr_nla: Nla | None = None,
    ) -> None:
        self._state = state
        self._parents = parents
        self._recovery = recovery
        self._counters = context.counters
        self._back_off = LearntBackOff(context.parameters)
        self.answers = PollResponder(context, segment, dlr_nla)
        self._is_unreachable = False
        self._waits_for_census = False  # no NAK until a census begins

    def change(self, parameters: Parameters) -> None:
        """Take the back-off of other parameters, unless a parent or source advertises one."""
        self._back_off.change(parameters)
        self._recovery.nak_bo_ivl = self._back_off.ivl_ns

    @property
    def is_parent_unreachable(self) -> bool:
        """Return whether OPT_NBR_UNREACH came from the parent, and no regular SPM since."""
        return self._is_unreachable

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """Take a regular SPM: the path is known, and packets of the parent arrive here."""
        self._is_unreachable = False
        back_off_range = find(spm.options, NakBoRng)
        if back_off_range is not None:
            self._back_off.on_range(back_off_range)
        if find(spm.options, NakBoIvl) is None:
            self._waits_for_census = False  # parents advertise no interval: no census will begin
        self._learn(spm.options, spm.path_nla, now_ns)
        self._set_may_ask(now_ns)

    def on_unreachable(self, now_ns: int) -> None:
        """Take an SPM with OPT_NBR_UNREACH from the parent."""
        self._counters.neighbour_unreachable += 1
        self._is_unreachable = True
        self._set_may_ask(now_ns)

    def on_ncf(self, ncf: Nak, peer: Nla, now_ns: int) -> bool:
        """Take the options of an NCF. Return False if the NCF must be ignored altogether (IMP-23, RCV-52)."""
        if not ncf.says_more:
            return True
        neighbour = unreachable_neighbour(ncf)
        if neighbour is not None:
            if neighbour not in (self._state.path_nla, self._parents.current):
                self._counters.strangers_unreachable += 1
                return False
            self.on_unreachable(now_ns)
            return True
        self._learn(ncf.options, peer, now_ns)
        self._set_may_ask(now_ns)
        return True

    def on_poll(self, poll: Poll, peer: Nla, now_ns: int) -> None:
        """Take a POLL. Answer only on the sender's own or a parent's path: others flood a third node (SEC-03)."""
        if poll.path_nla != peer and not self._parents.is_parent(poll.path_nla):
            self._counters.foreign_packets += 1
            return
        self.answers.on_poll(poll, now_ns)
        self._learn(poll.options, poll.path_nla, now_ns)
        self._set_may_ask(now_ns)

    def _learn(self, options: Options, path_nla: Nla, now_ns: int) -> None:
        interval = find(options, NakBoIvl) if options else None
        if interval is None:
            return
        if interval.ivl_sqn == 0 or self.answers.has_heard_begin(path_nla, interval.ivl_sqn):
            self._waits_for_census = False
            self._back_off.on_interval(interval)
            self._recovery.nak_bo_ivl = self._back_off.ivl_ns
        elif path_nla == self._state.path_nla or self._parents.is_parent(path_nla):
            self._waits_for_census = True

    def _set_may_ask(self, now_ns: int) -> None:
        if self._state.spm is None or self._is_unreachable or self._waits_for_census:
            self._recovery.may_ask = False
        else:
            self._recovery.allow_asking(now_ns)
