"""Answering polls: the child's side (RFC 14.5).

Polls are known by POLL_PATH and POLL_SQN. What is written down of each path, whether its poll was drawn or not: the last
POLL_SQN and whether its round 0 was heard, since only then later rounds are answered.
"""

from __future__ import annotations

import random
from collections import OrderedDict

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, control
from pgm.core.polling.poller import PollType
from pgm.core.segment import Segment
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Poll, Polr, encode
from pgm.wire.formats import Nla
from pgm.wire.options import NO_OPTIONS, Redirect
from pgm.wire.sequence_numbers import is_newer

_MOST_PATHS = 16  # parents whose polls are remembered: more than any node has
_ID_BITS = 32


class NodeId:
    """RAND_NODE_ID: drawn once, for all sessions of a node, when it is first needed (POLL-07)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._value: int | None = None

    @property
    def value(self) -> int:
        """The same number for as long as the node lives."""
        if self._value is None:
            self._value = self._rng.getrandbits(_ID_BITS)
        return self._value


@attrs.define
class _Heard:
    """What was heard of one path: its last poll, and the first and last whose round 0 was heard."""

    sqn: int
    number: int
    began_first: int | None = None
    began_last: int | None = None
    reply_ns: int = NEVER
    reply: Poll | None = None


class PollResponder:
    """The answers of one session at one node. `dlr_nla` is the address that a repairer offers to searches."""

    def __init__(self, node_id: NodeId, rng: random.Random, counters: Counters, dlr_nla: Nla | None = None) -> None:
        self._node_id = node_id
        self._rng = rng
        self._counters = counters
        self._dlr_nla = dlr_nla
        self._states: OrderedDict[Nla, _Heard] = OrderedDict()
        self.searched_by: set[Nla] = set()  # parents whose search for repairers was answered
        self.deadline_ns = NEVER  # when the next answer is due

    def has_heard_begin(self, state: Nla, sqn: int) -> bool:
        """Whether round 0 of a poll with this POLL_SQN, or of one before it, was heard from this path (RFC 15.2.2)."""
        heard = self._states.get(state)
        if heard is None:
            return False
        begun = (heard.began_first, heard.began_last)
        return any(one is not None and not is_newer(one, sqn) for one in begun)

    def on_poll(self, poll: Poll, now_ns: int) -> bool:
        """Take a POLL; returns whether it will be answered."""
        self._counters.poll_packets_in += 1
        will_answer = self._take(poll, now_ns)
        self._note_due()
        return will_answer

    def _note_due(self) -> None:
        self.deadline_ns = min([one.reply_ns for one in self._states.values()], default=NEVER)

    def _take(self, poll: Poll, now_ns: int) -> bool:
        heard = self._states.get(poll.path_nla)
        if heard is None:
            heard = self._states[poll.path_nla] = _Heard(poll.poll_sqn, -1)
            if len(self._states) > _MOST_PATHS:
                self.searched_by.discard(self._states.popitem(last=False)[0])
        self._states.move_to_end(poll.path_nla)
        if heard.sqn != poll.poll_sqn:  # this also takes back what is pending (POLL-12)
            heard.sqn, heard.number, heard.reply_ns, heard.reply = poll.poll_sqn, -1, NEVER, None
        if poll.poll_round <= heard.number:
            return False  # a round is answered once, however often it comes
        heard.number = poll.poll_round
        if poll.poll_round == 0:
            heard.began_last = poll.poll_sqn
            heard.began_first = poll.poll_sqn if heard.began_first is None else heard.began_first
        elif heard.began_last != poll.poll_sqn:
            return False
        if not self._is_for_us(poll):
            return False
        heard.reply = poll
        heard.reply_ns = now_ns + self._rng.randint(0, poll.bo_ivl_us) * MICROSECOND
        return True

    def _is_for_us(self, poll: Poll) -> bool:
        """Whether we are drawn, and of the kind that is asked."""
        if (self._node_id.value ^ poll.rand) & poll.mask:
            return False
        return poll.sub_type == PollType.GENERAL or (poll.sub_type == PollType.DLR and self._dlr_nla is not None)

    def handle_deadline(self, segment: Segment, now_ns: int) -> list[Effect]:
        """POLRs that are due."""
        due: list[Effect] = []
        for state, heard in self._states.items():
            poll = heard.reply
            if heard.reply_ns > now_ns or poll is None:
                continue
            heard.reply_ns, heard.reply = NEVER, None
            is_search = poll.sub_type == PollType.DLR and self._dlr_nla is not None
            options = (Redirect(dlr_nla=self._dlr_nla or ""),) if is_search else NO_OPTIONS
            if is_search:
                self.searched_by.add(state)
            polr = Polr(
                tsi=poll.tsi,
                data_port=poll.data_port,
                poll_sqn=poll.poll_sqn,
                poll_round=poll.poll_round,
                options=options,
            )
            self._counters.polr_packets += 1
            due.append(control(segment, encode(polr), to=state))
        self._note_due()
        return due
