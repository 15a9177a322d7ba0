"""What those above tell a child about asking: how long to back off, when to be silent, and to say that it is there.

Shared by receivers and repairers. Asking is off until the first SPM (RFC 6.2), after a parent has said by OPT_NBR_UNREACH
that it cannot be heard, until a regular SPM comes (RFC 15.3.2), and while the advertised interval was derived from a census
that we were not there for (RFC 15.2.2).
"""

from __future__ import annotations

import random

from pgm.core.counters import Counters
from pgm.core.polling.back_off import LearntBackOff
from pgm.core.polling.poll_responder import NodeId, PollResponder
from pgm.core.recovery.parents import Parents
from pgm.core.recovery.recovery import Recovery
from pgm.core.session.state import SessionState
from pgm.parameters import Parameters
from pgm.wire.control_packets import Nak, Poll, Spm
from pgm.wire.formats import Nla
from pgm.wire.options import NakBoIvl, NakBoRng, NbrUnreach, Options, PathNla, find


def unreachable_neighbour(ncf: Nak) -> Nla | None:
    """Who says by an NCF that it cannot be heard; nobody, as a rule. Without OPT_PATH_NLA nobody that we know."""
    if not ncf.options or find(ncf.options, NbrUnreach) is None:
        return None
    told = find(ncf.options, PathNla)
    return "" if told is None else told.path_nla


class NakControl:
    """The guidance of one session at one child."""

    def __init__(
        self,
        state: SessionState,
        parents: Parents,
        recovery: Recovery,
        parameters: Parameters,
        rng: random.Random,
        node_id: NodeId,
        counters: Counters,
        dlr_nla: Nla | None = None,
    ) -> None:
        self._state = state
        self._parents = parents
        self._recovery = recovery
        self._counters = counters
        self._back_off = LearntBackOff(parameters)
        self.answers = PollResponder(node_id, rng, counters, dlr_nla)
        self._is_unreachable = False
        self._waits_for_census = False  # one must begin before we may ask

    @property
    def is_parent_unreachable(self) -> bool:
        """Whether the parent has said so, and no regular SPM has come since."""
        return self._is_unreachable

    def on_spm(self, spm: Spm, now_ns: int) -> None:
        """A regular SPM was taken: the path is known and the parent can be heard."""
        self._is_unreachable = False
        told = find(spm.options, NakBoRng)
        if told is not None:
            self._back_off.on_range(told)
        if find(spm.options, NakBoIvl) is None:
            self._waits_for_census = False  # nobody above advertises any more: no census will come to wait for
        self._learn(spm.options, spm.path_nla, now_ns)
        self._settle(now_ns)

    def on_unreachable(self, now_ns: int) -> None:
        """An SPM with OPT_NBR_UNREACH came from the parent."""
        self._counters.neighbour_unreachable += 1
        self._is_unreachable = True
        self._settle(now_ns)

    def on_ncf(self, ncf: Nak, peer: Nla, now_ns: int) -> bool:
        """Take what an NCF says besides its sqns; False for one that is to be ignored altogether (IMP-23, RCV-52)."""
        if not ncf.says_more:
            return True
        about = unreachable_neighbour(ncf)
        if about is not None:
            if about not in (self._state.path_nla, self._parents.current):
                self._counters.strangers_unreachable += 1
                return False
            self.on_unreachable(now_ns)
            return True
        self._learn(ncf.options, peer, now_ns)
        self._settle(now_ns)
        return True

    def on_poll(self, poll: Poll, peer: Nla, now_ns: int) -> None:
        """A POLL: answer a parent, or whoever asks to be answered itself; never lead others' answers to a third (SEC-03)."""
        if poll.path_nla != peer and not self._parents.is_parent(poll.path_nla):
            self._counters.foreign_packets += 1
            return
        self.answers.on_poll(poll, now_ns)
        self._learn(poll.options, poll.path_nla, now_ns)
        self._settle(now_ns)

    def _learn(self, options: Options, state: Nla, now_ns: int) -> None:
        told = find(options, NakBoIvl) if options else None
        if told is None:
            return
        if told.ivl_sqn == 0 or self.answers.has_heard_begin(state, told.ivl_sqn):
            self._waits_for_census = False
            self._back_off.on_interval(told)
            self._recovery.nak_bo_ivl = self._back_off.ivl_ns
        elif state == self._state.path_nla or self._parents.is_parent(state):
            self._waits_for_census = True

    def _settle(self, now_ns: int) -> None:
        """Ask, or stop asking."""
        if self._state.spm is None or self._is_unreachable or self._waits_for_census:
            self._recovery.may_ask = False
        else:
            self._recovery.allow_asking(now_ns)
