"""Polls: how a parent counts its children on a segment, and looks for repairers among them (RFC 14).

A POLL asks the nodes one PGM hop below to answer with probability 2^-B, B bits of a mask of ones, within POLL_BO_IVL. A
**census** wants about `poll_replies` answers, however many children there are: where their number is unknown it begins
with hardly anybody and asks again, in rounds of the same POLL_SQN, with fewer bits. Only who was there in round 0
answers later rounds, so nobody who comes meanwhile turns a round into a flood; and should there be one all the same,
another POLL_SQN takes back the answers that are still to come. A **search** asks repairers alone, and all of them.

The numbers of both count together, since children know polls by session, address and number.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effects, control
from pgm.core.segment import Segment
from pgm.parameters import Parameters
from pgm.units import MICROSECOND, NEVER
from pgm.wire.control_packets import Poll, Polr, encode
from pgm.wire.formats import Tsi
from pgm.wire.options import NO_OPTIONS, Options, Redirect, find
from pgm.wire.sequence_numbers import MASK

_MOST_BITS = 32
_STEP_BITS = 4  # fewer after a round without answers: it had hardly three to expect, so the next has fewer than fifty
_ABORT_BITS = 8  # more after too many answers
_LATE = 4  # answers drawn at the end of POLL_BO_IVL are still on their way: collect for a quarter of it longer


class PollType(enum.IntEnum):
    """POLL_S_TYPE (RFC 14.6)."""

    GENERAL = 0
    DLR = 1


@attrs.define
class _Round:
    """The poll that is under way."""

    kind: PollType
    sqn: int
    number: int
    bits: int
    ends_ns: int
    replies: int = 0


class Poller:
    """The polls of one session on one segment below. Idle until `begin`."""

    def __init__(
        self,
        tsi: Tsi,
        data_port: int,
        segment: Segment,
        parameters: Parameters,
        rng: random.Random,
        counters: Counters,
        *,
        searches: bool = False,
        options: Callable[[], Options] = lambda: NO_OPTIONS,
    ) -> None:
        self._tsi = tsi
        self._data_port = data_port
        self._segment = segment
        self._parameters = parameters
        self._rng = rng
        self._counters = counters
        self._ivls = {PollType.GENERAL: parameters.poll_ivl, PollType.DLR: parameters.poll_dlr_ivl if searches else 0}
        self._due_ns = {PollType.GENERAL: NEVER, PollType.DLR: NEVER}
        self._round: _Round | None = None
        self._sqn = 0  # never on the wire: NAK_BO_IVL_SQN 0 means that no poll was made
        self._found: deque[int] = deque(maxlen=parameters.poll_history)
        self.counted_sqn = 0  # POLL_SQN of the last complete census
        self._options = options  # what a POLL may carry besides: OPT_NAK_BO_IVL

    @property
    def population(self) -> int | None:
        """How many children there are, by the last censuses; None before the first is complete."""
        return -(-sum(self._found) // len(self._found)) if self._found else None

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        return min(self._due_ns.values()) if self._round is None else self._round.ends_ns

    def begin(self, now_ns: int) -> None:
        """Poll from now on, each kind first at a random time within its interval: not all sessions at once."""
        for kind, ivl in self._ivls.items():
            if ivl and self._due_ns[kind] == NEVER:
                self._due_ns[kind] = now_ns + self._rng.randint(0, ivl)

    def handle_deadline(self, now_ns: int) -> Effects:
        """Begin a poll, go on to its next round, or end it."""
        if now_ns < self.deadline_ns:
            return NOTHING
        over, self._round = self._round, None
        if over is None:
            return self._begin_poll(min(self._due_ns, key=lambda kind: self._due_ns[kind]), now_ns)
        if over.kind is PollType.GENERAL:
            return self._census(over, now_ns)
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
        """The most bits with which `poll_replies` may be expected."""
        return max(0, (population // self._parameters.poll_replies).bit_length() - 1)

    def _census(self, over: _Round, now_ns: int) -> Effects:
        """Enough answers make an estimate of M / P; fewer make another round."""
        if over.replies >= self._parameters.poll_replies or not over.bits:
            self._found.append(over.replies << over.bits)
            self.counted_sqn = over.sqn
            return NOTHING
        bits = over.bits - _STEP_BITS
        if over.replies:
            bits = min(over.bits - 1, self._bits_for(over.replies << over.bits))
        return self._ask(over.kind, over.sqn, over.number + 1, max(0, bits), now_ns)

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
        """Count an answer. Returns the POLL that takes a flood of them back, and the repairer that a search has found."""
        asked = self._round
        if asked is None or (polr.poll_sqn, polr.poll_round) != (asked.sqn, asked.number):
            self._counters.polr_packets_foreign += 1
            return NOTHING, None
        self._counters.polr_packets_in += 1
        asked.replies += 1
        if asked.kind is PollType.DLR:
            return NOTHING, find(polr.options, Redirect)
        if asked.replies <= self._parameters.poll_max_replies:
            return NOTHING, None
        self._counters.polls_aborted += 1
        bits = min(_MOST_BITS, max(asked.bits + _ABORT_BITS, self._parameters.poll_first_bits))
        return self._ask(asked.kind, self._next_sqn(), 0, bits, now_ns), None
