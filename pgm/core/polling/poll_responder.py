"""Answers to polls: the child's side (RFC 14.5).

POLL_PATH and POLL_SQN identify a poll. For each path the last POLL_SQN is recorded, also if this node was not drawn. The
record says whether round 0 of that poll came, because only then later rounds are answered.
"""

from __future__ import annotations

from collections import OrderedDict

import attrs

from pgm.core.effects import Effect, control
from pgm.core.polling.poller import PollType
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Poll, Polr, encode
from pgm.wire.formats import Nla
from pgm.wire.options import NO_OPTIONS, Redirect
from pgm.wire.sequence_numbers import is_newer

_MOST_PATHS = 16  # parents with remembered polls: more than any node has


@attrs.define
class _PathPolls:
    """Polls of one path: the last one, and the first and last with a round 0."""

    sqn: int
    number: int
    began: tuple[int, ...] = ()  # the first and the last POLL_SQN with a round 0
    reply_ns: int = NEVER
    reply: Poll | None = None


class PollResponder:
    """Answers of one session at one node to polls. `dlr_nla` is the address that a repairer offers to searches."""

    def __init__(self, context: SessionContext, segment: Segment, dlr_nla: Nla | None = None) -> None:
        self._segment = segment
        self._node_id = context.node_id
        self._rng = context.rng
        self._counters = context.counters
        self._dlr_nla = dlr_nla
        self._paths: OrderedDict[Nla, _PathPolls] = OrderedDict()
        self.searched_by: set[Nla] = set()  # parents that got an answer to their search for repairers
        self.deadline_ns = NEVER  # when the next answer is due

    def has_heard_begin(self, path_nla: Nla, sqn: int) -> bool:
        """Return whether round 0 of poll `sqn`, or of an earlier one, came from the given path (RFC 15.2.2)."""
        path = self._paths.get(path_nla)
        return path is not None and any(not is_newer(begin, sqn) for begin in path.began)

    def on_poll(self, poll: Poll, now_ns: int) -> bool:
        """Take a POLL. Return whether it will be answered."""
        self._counters.poll_packets_in += 1
        will_answer = self._take(poll, now_ns)
        self._note_due()
        return will_answer

    def _note_due(self) -> None:
        self.deadline_ns = min([path.reply_ns for path in self._paths.values()], default=NEVER)

    def _take(self, poll: Poll, now_ns: int) -> bool:
        path = self._paths.get(poll.path_nla)
        if path is None:
            path = self._paths[poll.path_nla] = _PathPolls(poll.poll_sqn, -1)
            if len(self._paths) > _MOST_PATHS:
                self.searched_by.discard(self._paths.popitem(last=False)[0])
        self._paths.move_to_end(poll.path_nla)
        if path.sqn != poll.poll_sqn:  # this also cancels a pending answer (POLL-12)
            path.sqn, path.number, path.reply_ns, path.reply = poll.poll_sqn, -1, NEVER, None
        if poll.poll_round <= path.number:
            return False  # a copy of a round: one answer is enough
        path.number = poll.poll_round
        if poll.poll_round == 0:
            path.began = (*path.began[:1], poll.poll_sqn)
        elif poll.poll_sqn not in path.began[-1:]:
            return False
        if not self._is_for_us(poll):
            return False
        path.reply = poll
        path.reply_ns = now_ns + self._rng.randint(0, poll.bo_ivl_us) * MICROSECOND
        return True

    def _is_for_us(self, poll: Poll) -> bool:
        """Return whether the poll draws this node, and asks for nodes of its kind."""
        if (self._node_id.draw() ^ poll.rand) & poll.mask:
            return False
        return poll.sub_type == PollType.GENERAL or (poll.sub_type == PollType.DLR and self._dlr_nla is not None)

    def handle_deadline(self, now_ns: int) -> list[Effect]:
        """Return the POLRs that are due."""
        due: list[Effect] = []
        for path_nla, path in self._paths.items():
            poll = path.reply
            if path.reply_ns > now_ns or poll is None:
                continue
            path.reply_ns, path.reply = NEVER, None
            is_search = poll.sub_type == PollType.DLR and self._dlr_nla is not None
            options = (Redirect(dlr_nla=self._dlr_nla or ""),) if is_search else NO_OPTIONS
            if is_search:
                self.searched_by.add(path_nla)
            polr = Polr(
                tsi=poll.tsi,
                data_port=poll.data_port,
                poll_sqn=poll.poll_sqn,
                poll_round=poll.poll_round,
                options=options,
            )
            self._counters.polr_packets += 1
            due.append(control(self._segment, encode(polr), to=path_nla))
        self._note_due()
        return due
