"""Polls: census of children on a segment, and search for repairers (RFC 14).

A POLL asks the nodes one PGM hop below to answer within POLL_BO_IVL, with probability 2^-B. B is the number of ones in
the poll's mask.

A **census** aims at about `poll_replies` answers for any number of children. With an unknown number the first round
draws very few children, and later rounds of the same POLL_SQN use fewer bits. Only nodes that received round 0 answer
later rounds, so nodes that join later cannot flood a round. If a flood comes nevertheless, a poll with another POLL_SQN
cancels the answers that are still pending. A **search** asks all repairers, and no other nodes.

Both kinds share one sequence of POLL_SQNs, because children identify polls by session, address and number.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable

import attrs

from pgm.core.effects import NOTHING, Effects, control
from pgm.core.segment import Segment
from pgm.core.session_context import SessionContext
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Poll, Polr, encode
from pgm.wire.options import NO_OPTIONS, Options, Redirect, find
from pgm.wire.sequence_numbers import MASK

_MOST_BITS = 32
_STEP_BITS = 4  # fewer bits after a round without answers: it expected hardly three, so the next expects fewer than 50
_ABORT_BITS = 8  # more bits after too many answers
_LATE = 4  # collect for 1/4 of POLL_BO_IVL longer, since answers from its end are still on their way


class PollType(enum.IntEnum):
    """POLL_S_TYPE (RFC 14.6)."""

    GENERAL = 0
    DLR = 1


@attrs.define
class _Round:
    """Poll that is under way."""

    kind: PollType
    sqn: int
    number: int
    bits: int
    ends_ns: int
    replies: int = 0


def _no_options() -> Options:
    return NO_OPTIONS


class Poller:
    """Polls of one session on one segment below. None is sent before `begin`."""

    def __init__(
        self,
        context: SessionContext,
        segment: Segment,
        *,
        searches: bool = False,
        options: Callable[[], Options] = _no_options,
    ) -> None:
        parameters = context.parameters
        self._tsi = context.tsi
        self._data_port = context.data_port
        self._segment = segment
        self._parameters = parameters
        self._rng = context.rng
        self._counters = context.counters
        self._ivls = {PollType.GENERAL: parameters.poll_ivl, PollType.DLR: parameters.poll_dlr_ivl if searches else 0}
        self._due_ns = {PollType.GENERAL: NEVER, PollType.DLR: NEVER}
        self._round: _Round | None = None
        self._sqn = 0  # never on the wire: NAK_BO_IVL_SQN 0 means that no poll was made
        self._estimates: deque[int] = deque(maxlen=parameters.poll_history)  # populations by the last censuses
        self.counted_sqn = 0  # POLL_SQN of the last complete census
        self._options = options  # further options of a POLL: OPT_NAK_BO_IVL

    @property
    def population(self) -> int | None:
        """Return the mean population of the last censuses. Return None before the first census is complete."""
        return -(-sum(self._estimates) // len(self._estimates)) if self._estimates else None

    @property
    def deadline_ns(self) -> int:
        """Return when `handle_deadline` must be called."""
        return min(self._due_ns.values()) if self._round is None else self._round.ends_ns

    def begin(self, now_ns: int) -> None:
        """Start to poll: the first poll of each kind at a random time in its interval, to keep sessions apart."""
        for kind, ivl in self._ivls.items():
            if ivl and self._due_ns[kind] == NEVER:
                self._due_ns[kind] = now_ns + self._rng.randint(0, ivl)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Start a poll, start its next round, or end it."""
        if now_ns < self.deadline_ns:
            return NOTHING
        last, self._round = self._round, None
        if last is None:
            return self._begin_poll(min(self._due_ns, key=lambda kind: self._due_ns[kind]), now_ns)
        if last.kind is PollType.GENERAL:
            return self._census(last, now_ns)
        return NOTHING

    def _begin_poll(self, kind: PollType, now_ns: int) -> Effects:
        self._due_ns[kind] = now_ns + self._ivls[kind]
        return self._ask(kind, self._next_sqn(), 0, 0 if kind is PollType.DLR else self._first_bits(), now_ns)

    def _next_sqn(self) -> int:
        self._sqn = self._sqn + 1 & MASK or 1
        return self._sqn

    def _first_bits(self) -> int:
        population = self.population
        return self._parameters.poll_first_bits if population is None else self._bits_for(population)

    def _bits_for(self, population: int) -> int:
        """Return the most bits with which `poll_replies` answers can be expected."""
        return max(0, (population // self._parameters.poll_replies).bit_length() - 1)

    def _census(self, last: _Round, now_ns: int) -> Effects:
        """Record the estimate M / P after enough answers, or start another round."""
        if last.replies >= self._parameters.poll_replies or not last.bits:
            self._estimates.append(last.replies << last.bits)
            self.counted_sqn = last.sqn
            return NOTHING
        bits = last.bits - _STEP_BITS
        if last.replies:
            bits = min(last.bits - 1, self._bits_for(last.replies << last.bits))
        return self._ask(last.kind, last.sqn, last.number + 1, max(0, bits), now_ns)

    def _ask(self, kind: PollType, sqn: int, number: int, bits: int, now_ns: int) -> Effects:
        bo_ivl = self._parameters.poll_bo_ivl
        self._round = _Round(kind, sqn, number, bits, now_ns + bo_ivl + bo_ivl // _LATE)
        self._counters.poll_packets += 1
        poll = Poll(
            tsi=self._tsi,
            data_port=self._data_port,
            poll_sqn=sqn,
            poll_round=number,
            sub_type=kind,
            path_nla=self._segment.address,
            bo_ivl_us=bo_ivl // MICROSECOND,
            rand=self._rng.getrandbits(_MOST_BITS),
            mask=(1 << bits) - 1,
            options=self._options(),
        )
        return (control(self._segment, encode(poll)),)

    def on_polr(self, polr: Polr, now_ns: int) -> tuple[Effects, Redirect | None]:
        """Count an answer. Return the POLL that cancels a flood, if any, and the repairer that answers a search."""
        current = self._round
        if current is None or (polr.poll_sqn, polr.poll_round) != (current.sqn, current.number):
            self._counters.polr_packets_foreign += 1
            return NOTHING, None
        self._counters.polr_packets_in += 1
        current.replies += 1
        if current.kind is PollType.DLR:
            return NOTHING, find(polr.options, Redirect)
        if current.replies <= self._parameters.poll_max_replies:
            return NOTHING, None
        self._counters.polls_aborted += 1
        bits = min(_MOST_BITS, max(current.bits + _ABORT_BITS, self._parameters.poll_first_bits))
        return self._ask(current.kind, self._next_sqn(), 0, bits, now_ns), None
