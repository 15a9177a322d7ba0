"""Repair latency of the receivers of a feed, by draws from the distributions that the formulas name.

A wait begins when the gap is found, as in telemetry. A round has a back-off until the first NAK that arrives, the way of the
NAK, the hold of the node that repairs, and the way of the repair. A lost repair costs the wait for RDATA and another round.
A packet that did not reach the sender of a link is first repaired on the link above.

The draws have a fixed seed, so equal trees have equal predictions.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from pgm.prediction.counts import Asker, FeedPace, Floats, LinkCounts, loss_at, missing_at, unheard
from pgm.prediction.tree import FeedLink, FeedTree, LinkMember
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND, SECOND

Flags = npt.NDArray[np.bool_]

DRAWS = 8192  # of a wait: 1 % of them are 80
_MOST_TRIES = 8  # rounds of one packet; each fails with the loss of the link
_ADAPTED = 1.5  # of the usual answer: the wait for RDATA follows mean and deviation of the answers (RFC 6298)
_TIMER_STEP_NS = MILLISECOND  # by which repairs leave early while data leave


@attrs.frozen(eq=False)
class DrawnWaits:
    """Drawn waits of one entry in ns. `weight` is the mean number of packets per packet of the feed that waited so."""

    name: str
    drawn: Floats
    weight: float


@attrs.define(eq=False)
class WaitModel:
    """Waits of one feed. `counts` are those of all links, in which the NAKs of each round are known."""

    tree: FeedTree
    counts: dict[str, LinkCounts]
    pace: FeedPace
    draws: int = DRAWS
    _senders: dict[str, Floats] = attrs.field(factory=dict)
    _unheard: dict[tuple[str, int], Floats] = attrs.field(factory=dict)  # by link and round

    def of_link(self, link: FeedLink) -> list[DrawnWaits]:
        """Return the waits of the receivers of a link."""
        found = []
        above = missing_at(self.tree, link)
        for asker in self.counts[link.name].askers if link.name in self.counts else ():
            member = asker.member
            if member.role is not Role.RECEIVER:
                continue
            rng = _generator(link, member)
            local = (1 - above) * member.loss
            if local:
                found.append(DrawnWaits(member.name, self._local(link, asker, rng), local * member.count))
            if above:
                first = self._of_sender(link)
                again = np.where(rng.random(self.draws) < member.loss, self._again(link, asker, rng), 0.0)
                found.append(DrawnWaits(member.name, first + again, above * member.count))
        return found

    def _local(self, link: FeedLink, asker: Asker, rng: np.random.Generator) -> Floats:
        """Return the waits of a node that alone, or with others of its link, lost a packet."""
        settle = np.full(self.draws, float(asker.member.parameters.reorder_ivl))
        return settle + self._rounds(link, asker, rng, 0)

    def _again(self, link: FeedLink, asker: Asker, rng: np.random.Generator) -> Floats:
        return self._data_wait(link, asker) + self._rounds(link, asker, rng, 1)

    def _rounds(self, link: FeedLink, asker: Asker, rng: np.random.Generator, number: int) -> Floats:
        way, copies = 2 * link.delay_ns, self.counts[link.name].copies

        def one_round(earlier: int) -> tuple[Floats, Flags]:
            asked = self._first_nak(link, asker, number + earlier, rng)
            answer, fails = self._answer(link, asker, rng)
            is_lost = rng.random(self.draws) < 1 - (1 - asker.member.loss**copies) * (1 - fails)
            return asked + way + np.where(is_lost, self._data_wait(link, asker), answer), is_lost

        return self._until_done(one_round)

    def _first_nak(self, link: FeedLink, asker: Asker, number: int, rng: np.random.Generator) -> Floats:
        """Draw the time from the start of a back-off to the first NAK that arrives, of this node or another."""
        counts = self.counts[link.name]
        loss = loss_at(link, asker.is_asked)
        own = asker.lacks_in(number, counts.copies)
        silent = self._unheard_in(link, number) / np.maximum(1 - own * (1 - loss) * asker.sent_by, 1e-12)
        silent = np.minimum.accumulate(np.minimum(1.0, silent) * (1 - (1 - loss) * asker.sent_by))
        repeat = asker.member.parameters.nak_rpt_ivl

        def one_back_off(_: int) -> tuple[Floats, Flags]:
            draw = rng.random(self.draws)
            at = np.interp(draw, 1 - silent, np.arange(len(silent)) * counts.step_ns)
            is_unheard = draw > 1 - silent[-1]
            return np.where(is_unheard, at + repeat, at), is_unheard

        return self._until_done(one_back_off)

    def _until_done(self, attempt: Callable[[int], tuple[Floats, Flags]]) -> Floats:
        """Return the sums of times until an attempt succeeds.

        `attempt` gets the number of earlier ones, and draws times and failures.
        """
        waited = np.zeros(self.draws)
        is_open = np.ones(self.draws, bool)
        for earlier in range(_MOST_TRIES):
            took, is_failed = attempt(earlier)
            waited += np.where(is_open, took, 0.0)
            is_open &= is_failed
            if not is_open.any():
                break
        return waited

    def _unheard_in(self, link: FeedLink, number: int) -> Floats:
        """Return the probability that no NAK of a round has arrived, by each step of the back-off time."""
        known = self._unheard.get((link.name, number))
        if known is None:
            counts = self.counts[link.name]
            lacks = [one.lacks_in(number, counts.copies) for one in counts.askers]
            known = self._unheard[link.name, number] = unheard(link, counts.askers, lacks)
        return known

    def _answer(self, link: FeedLink, asker: Asker, rng: np.random.Generator) -> tuple[Floats, float]:
        """Draw the time from the arrival of a NAK to the departure of the repair, and the chance that none is heard."""
        server = next((one for one in link.on_lan if one.name == asker.is_asked), None)
        fetch, fails = self._hold(link.sender_parameters.rdata_hold_ivl, rng), 0.0
        sender = self.tree.member_above(link) if link.upper else None
        if sender is not None and not sender.keeps:
            upper = self.tree.links[link.upper]
            fetch, fails = np.full(self.draws, float(self._round_trip(upper))), sender.loss
            is_echo = rng.random(self.draws) < self.counts[upper.name].echoes.get(sender.name, 0.0)
            again = rng.random(self.draws) * (self._data_wait(link, asker) + asker.member.parameters.nak_bo_ivl)
            fetch += np.where(is_echo, sender.parameters.nak_elim_ivl + again, 0.0)
        if server is None:
            return fetch, fails
        own = self._hold(server.parameters.rdata_hold_ivl, rng)
        lacks = rng.random(self.draws) < server.loss
        return np.where(lacks, 2 * link.delay_ns + fetch, own), server.loss * fails

    def _hold(self, hold_ns: int, rng: np.random.Generator) -> Floats:
        """Draw how long repairs are held, ns. Data that leave take repairs along that are due within a timer's step."""
        return np.maximum(hold_ns - _TIMER_STEP_NS, np.minimum(hold_ns, rng.random(self.draws) * self.pace.train_ns))

    def _round_trip(self, link: FeedLink) -> float:
        """Return the time from a NAK on a link to its repair, ns."""
        if link.upper and not self.tree.member_above(link).keeps:
            return 2 * link.delay_ns + self._round_trip(self.tree.links[link.upper])
        return 2 * link.delay_ns + link.sender_parameters.rdata_hold_ivl

    def _data_wait(self, link: FeedLink, asker: Asker) -> float:
        """Return the usual wait for RDATA after an NCF, ns."""
        parameters = asker.member.parameters
        least = min(parameters.nak_rdata_ivl, parameters.nak_rdata_min_ivl)
        return float(max(least, _ADAPTED * (self._round_trip(link) - 2 * link.delay_ns)))

    def _of_sender(self, link: FeedLink) -> Floats:
        """Return the waits for packets that did not reach the sender of a link."""
        if link.name not in self._senders:
            self._senders[link.name] = self._drawn_of_sender(link)
        return self._senders[link.name]

    def _drawn_of_sender(self, link: FeedLink) -> Floats:
        upper = self.tree.links[link.upper]
        sender = self.tree.member_above(link)
        rng = _generator(upper, sender)
        above = missing_at(self.tree, upper)
        missing = missing_at(self.tree, link)
        asker = self.counts[upper.name].askers[upper.members.index(sender)]
        own = self._relayed(upper, asker, rng) if sender.role is Role.AGGREGATOR else self._local(upper, asker, rng)
        if not above:
            return own
        further = np.where(rng.random(self.draws) < sender.loss, own, 0.0)
        return np.where(rng.random(self.draws) < above / missing, self._of_sender(upper) + further, own)

    def _relayed(self, upper: FeedLink, asker: Asker, rng: np.random.Generator) -> Floats:
        """Draw the waits of an aggregator for its own losses. The aggregator asks at once, and repeats unconfirmed NAKs.

        The nodes below ask for a lost repair. Their NAKs are eliminated for `nak_elim_ivl` after the NCF.
        """
        parameters = asker.member.parameters
        repeat = SECOND / parameters.ne_nak_rpt_rte

        def one_request(_: int) -> tuple[Floats, Flags]:
            answer, fails = self._answer(upper, asker, rng)
            tries = rng.geometric(max(1e-6, 1 - loss_at(upper, asker.is_asked)), self.draws) - 1
            is_lost = rng.random(self.draws) < 1 - (1 - asker.member.loss) * (1 - fails)
            again = parameters.nak_elim_ivl + rng.random(self.draws) * parameters.nak_bo_ivl
            took = tries * repeat + 2 * upper.delay_ns + np.where(is_lost, again, answer)
            return np.asarray(took, float), is_lost

        return parameters.reorder_ivl + self._until_done(one_request)


def _generator(link: FeedLink, member: LinkMember) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(f"{link.name}:{member.name}".encode()))


def quantile_ns(waits: list[DrawnWaits], share: float) -> float:
    """Return the wait, ns, that this share of the packets did not exceed; 0 if none waited."""
    if not waits:
        return 0.0
    drawn = np.concatenate([one.drawn for one in waits])
    weights = np.concatenate([np.full(len(one.drawn), one.weight / len(one.drawn)) for one in waits])
    order = np.argsort(drawn)
    passed = np.cumsum(weights[order])
    return float(drawn[order][np.searchsorted(passed, share * passed[-1])])


def mean_ns(waits: list[DrawnWaits]) -> float:
    """Return the mean wait, ns; 0 if no packet waited."""
    weight = sum(one.weight for one in waits)
    return sum(float(one.drawn.mean()) * one.weight for one in waits) / weight if weight else 0.0
