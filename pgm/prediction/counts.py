"""Mean sends and NAKs of a packet on each link of a feed, by formulas for independent losses.

A node has a packet after m sends on its link with a probability `served[m]`: 1 - p^m for a receiver that loses the share p, and
for a node that keeps packets. A relay that keeps nothing needs further sends for the losses below it, so its probability takes
in all nodes that depend on it. The sums over these probabilities are those of `pgm.models.tree`.

NAKs: a node that lacks the packet draws a back-off and sends its NAK, unless the NCF for an earlier NAK arrives before. The
mean number is an integral over the back-off of each node; for equal nodes it is the formula of Nonnenmacher and Biersack (1999)
for uniform timers. NAKs and NCFs get lost as data do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import numpy as np
import numpy.typing as npt

from pgm.errors import UsageError
from pgm.models.back_off import rate_of
from pgm.models.tree import ModelLink, ModelNode, supplied
from pgm.parameters import Parameters
from pgm.prediction.tree import FeedLink, FeedTree, LinkMember
from pgm.topology.node_plan import Role
from pgm.units import MILLISECOND, SECOND

Floats = npt.NDArray[np.float64]

ROUNDS = 48  # sends of a packet that are considered; 30 % loss leaves 10^-25 of the packets
_STEPS = 256  # of the time within a back-off
_MOST_UNSERVED = 1e-3  # nodes of an entry that lack a packet after all sends: the means are then too small
_LEAST = 1e-9  # probability of a round that counts
_MOST_IN_TRAIN = 64  # packets
_MOST_ROUNDS = 12  # of NAKs: later ones are too rare to count


@attrs.frozen
class FeedPace:
    """Pace of a feed: packets a second, which leave in trains."""

    per_s: float
    train: float  # packets
    train_ns: float  # between trains

    @classmethod
    def of(cls, per_s: float, burst_ns: int) -> FeedPace:
        """Return the pace of an application that sends evenly, with trains of at most `burst_ns`."""
        train = max(1.0, min(_MOST_IN_TRAIN, per_s * burst_ns / SECOND))
        return cls(per_s, train, train * SECOND / per_s)


@attrs.frozen(eq=False)
class Asker:
    """Member of a link as the sender of NAKs.

    `lacks[m]` is the probability that one of its nodes needs another send after m sends. `sent_by` is the probability that the
    NAK of a node that lacks the packet has left by each step of the back-off time, unless suppressed.
    """

    member: LinkMember
    lacks: Floats
    sent_by: Floats
    is_asked: str  # node that gets the NAK

    def lacks_in(self, number: int, copies: int) -> float:
        """Return the probability that a node lacks the packet in a round, from 0, with `copies` repairs in each."""
        return float(self.lacks[min(ROUNDS, 1 + number * copies)])


@attrs.frozen(eq=False)
class LinkCounts:
    """Means of one link, per packet of the feed. `from_sender` is the part of `sends` that the sender of the link sends."""

    sends: float
    from_sender: float
    naks: float
    naks_to: Mapping[str, float]  # by the node that gets them
    naks_of: Mapping[str, float]  # by the member that sends them
    askers: tuple[Asker, ...]
    copies: int  # repairs of each loss
    echoes: Mapping[str, float]  # by relay that keeps nothing: share of its requests that are taken for echoes
    step_ns: float  # of the back-off time


def _model_of(tree: FeedTree, link: FeedLink) -> ModelLink:
    """Return a link, and all below, as the formulas of `pgm.models` see them."""
    keeps = not link.upper or tree.member_above(link).keeps
    return ModelLink(link.name, tuple(_node(tree, member) for member in link.members), keeps)


def _node(tree: FeedTree, member: LinkMember) -> ModelNode:
    below = [_model_of(tree, tree.links[lower]) for lower in member.lower if lower in tree.links]
    if len(below) > 1:  # a link without losses stands for the relay, with a node for each link below
        both = tuple(ModelNode(0.0, below=one) for one in below)
        below = [ModelLink(f"below {member.name}", both, member.keeps)]
    return ModelNode(member.loss, member.count, member.is_on_lan, below[0] if below else None)


def missing_at(tree: FeedTree, link: FeedLink) -> float:
    """Return the share of packets that do not reach the sender of a link on their first way."""
    if not link.upper:
        return 0.0
    above = missing_at(tree, tree.links[link.upper])
    return 1 - (1 - above) * (1 - tree.member_above(link).loss)


def count(tree: FeedTree, pace: FeedPace) -> dict[str, LinkCounts]:
    """Return the means of each link, for a feed of this pace. Links without nodes are left out.

    Raises `UsageError` if a node loses so much that `ROUNDS` sends do not supply it.
    """
    found: dict[str, LinkCounts] = {}
    for link in tree.links.values():  # from the source down
        _require_end(link)
        if link.members:
            upper = found.get(link.upper)
            found[link.name] = _count(
                tree, link, pace, 0.0 if upper is None else upper.echoes.get(link.sender.name, 0.0)
            )
    return found


def _count(tree: FeedTree, link: FeedLink, pace: FeedPace, echo: float) -> LinkCounts:
    """Return the means of a link. `echo` is the share of its requests that its sender cannot pass on at once."""
    times = np.linspace(0.0, float(max(_longest_ns(tree, member) for member in link.members)), _STEPS)
    askers = tuple(_asker(tree, link, member, times, pace) for member in link.members)
    is_assisted = _is_assisted(link, askers)
    copies = _copies(link, is_assisted=is_assisted)
    needs = [(asker.lacks, asker.member.count) for asker in askers]
    asking_above = [
        (asker.lacks, asker.member.count)
        for asker in askers
        if asker.is_asked == link.sender.name and not asker.member.is_on_lan and (copies > 1 or not is_assisted)
    ]
    if link.on_lan:
        together = float(np.prod([member.loss**member.count for member in link.on_lan]))
        asking_above.append((np.power(together, np.arange(ROUNDS + 1), dtype=np.float64), 1))
    of = dict.fromkeys((member.name for member in link.members), 0.0)
    for shares, chance in _rounds(tree, link, askers, copies):
        for asker, naks in zip(askers, _naks(link, askers, shares, times[1]), strict=True):
            of[asker.member.name] += naks * chance
    if echo:
        repeats = 1 + echo * _repeats(tree, link)
        of = {name: naks * repeats for name, naks in of.items()}
    echoes = _echoes(link, askers, times[1])
    extra = 0.0
    for asker in askers:
        late = asker.lacks_in(0, copies) * echoes.get(asker.member.name, 0.0)
        extra += late
        of[asker.member.name] += late
    to: dict[str, float] = {}
    for name, asked in {asker.member.name: asker.is_asked for asker in askers}.items():
        to[asked] = to.get(asked, 0.0) + of[name] * (1 - loss_at(link, asked))
    return LinkCounts(
        sends=_mean_sends(needs, copies) + extra,
        from_sender=1 + (_mean_sends(asking_above, copies) - 1) / copies + extra,
        naks=sum(of.values()),
        naks_to=to,
        naks_of=of,
        askers=askers,
        copies=copies,
        echoes=echoes,
        step_ns=float(times[1]),
    )


def _require_end(link: FeedLink) -> None:
    """Check that the sends which are considered supply all nodes of a link. Raises `UsageError`."""
    for member in link.members:
        if member.loss**ROUNDS * member.count > _MOST_UNSERVED:
            raise UsageError(
                f"{member.name} on segment {link.name} loses {member.loss:.0%} of all packets: {ROUNDS} sends are not enough",
                remedy="give smaller losses, or leave the node out",
            )


def _repeats(tree: FeedTree, link: FeedLink) -> float:
    """Return how often nodes of a link repeat a NAK while its sender passes none on: for `nak_elim_ivl`."""
    waits = [
        min(member.parameters.nak_rdata_ivl, member.parameters.nak_rdata_min_ivl) + member.parameters.nak_bo_ivl / 2
        for member in link.members
        if _backs_off(member)
    ]
    return tree.member_above(link).parameters.nak_elim_ivl / min(waits) if waits else 0.0


def _is_assisted(link: FeedLink, askers: tuple[Asker, ...]) -> bool:
    """Return whether on-LAN repairers repair losses that nodes request of the sender, when they hear its NCF."""
    are_asking = any(asker.is_asked == link.sender.name and not asker.member.is_on_lan for asker in askers)
    return are_asking and any(member.parameters.assist_on_ncf for member in link.on_lan)


def _copies(link: FeedLink, *, is_assisted: bool) -> int:
    """Return how many nodes repair each loss: two if the repair of an assisting repairer comes too late to stop the other.

    The repairer hears the NCF one way after it left, and the repair takes the same way back.
    """
    if not is_assisted:
        return 1
    named = sum(1 for member in link.on_lan if member.name in link.sender.repairers)
    hold_ns = link.sender_parameters.rdata_hold_ivl * (1 + named)
    return 2 if 2 * link.delay_ns > hold_ns else 1


def _echoes(link: FeedLink, askers: tuple[Asker, ...], step_ns: float) -> dict[str, float]:
    """Return the share of requests of each relay that keeps nothing that come after the repair for another node of the link.

    The relay has not passed that repair down, and the sender ignores the request for `rdata_ignore_ivl`. The relay then waits
    for `nak_elim_ivl` before it passes on another request.
    """
    shift = round((2 * link.delay_ns + link.sender_parameters.rdata_hold_ivl) / step_ns)
    found = {}
    for asker in askers:
        if asker.member.keeps or not asker.member.is_relay:
            continue
        none: Floats = np.ones(_STEPS)
        for other in askers:
            if other is not asker:
                none *= (1 - other.lacks_in(0, 1) * _later(other.sent_by, shift, 0.0)) ** other.member.count
        found[asker.member.name] = float((np.diff(asker.sent_by, prepend=0.0) * (1 - none)).sum())
    return found


def _later(values: Floats, shift: int, before: float) -> Floats:
    """Return values by step of the back-off time `shift` steps later, and `before` until then."""
    late = min(shift, _STEPS)
    return np.concatenate([np.full(late, before), values[: _STEPS - late]])


def _backs_off(member: LinkMember) -> bool:
    return member.role in (Role.RECEIVER, Role.REPAIRER)


def _asker(tree: FeedTree, link: FeedLink, member: LinkMember, times: Floats, pace: FeedPace) -> Asker:
    lacks = 1.0 - supplied(_node(tree, member), ROUNDS + 1)
    asked = member.parent or link.sender.name
    own = _back_off_over(member, times, pace) if _backs_off(member) else np.ones(len(times))
    if not member.is_relay or not lacks[1]:
        return Asker(member, lacks, own, asked)
    if member.role is Role.REPAIRER:  # all nodes below lack what it lacks, and their first NAK ends its back-off
        return Asker(member, lacks, 1 - (1 - own) * _none_below(tree, member, times, pace, is_above=True), asked)
    if member.keeps:
        return Asker(member, lacks, own, asked)
    # A relay that keeps nothing passes the first NAK from below on.
    none = _none_below(tree, member, times, pace, is_above=False)
    some = 1 - none[-1]
    share = member.loss / lacks[1]
    return Asker(member, lacks, share * own + (1 - share) * ((1 - none) / some if some else own), asked)


def _longest_ns(tree: FeedTree, member: LinkMember) -> int:
    """Return the longest time from the start of back-offs until a node that lacks a packet has sent its NAK, ns."""
    if _backs_off(member):
        return member.parameters.nak_bo_ivl
    below = [tree.links[lower] for lower in member.lower if lower in tree.links and not member.keeps]
    longest = [link.delay_ns + _longest_ns(tree, one) for link in below for one in link.members]
    return max(longest, default=MILLISECOND)


def _none_below(tree: FeedTree, relay: LinkMember, times: Floats, pace: FeedPace, *, is_above: bool) -> Floats:
    """Return the probability that no NAK of a node below has reached a relay by each time.

    With `is_above` the relay lacks the packet, and thus all nodes below.
    """
    none: Floats = np.ones(len(times))
    for link in (tree.links[lower] for lower in relay.lower if lower in tree.links):
        asked_at = times - link.delay_ns
        for one in link.members:
            lacks = 1.0 if is_above else 1 - float(supplied(_node(tree, one), 2)[1])
            left = _back_off_over(one, asked_at, pace) if _backs_off(one) else (asked_at >= 0).astype(float)
            none *= (1 - lacks * left) ** one.count
    return none


def _back_off_over(member: LinkMember, times: Floats, pace: FeedPace) -> Floats:
    """Return the probability that the back-off of a gap is over at each time, in ns.

    A gap that is found during a back-off shares its end, so a node with many gaps waits for a shorter time on average. The
    rest of a running back-off has the density (1 - F) / mean.
    """
    longest_ns = member.parameters.nak_bo_ivl
    at = np.clip(times / longest_ns, 0.0, 1.0)
    over, left, mean = _drawn(member.parameters, at)
    found = (1 - (1 - min(1.0, member.gaps)) ** pace.train) / pace.train_ns  # trains that end a gap, by time
    fresh = 1 / (1 + found * longest_ns * mean)
    return np.asarray(fresh * over + (1 - fresh) * (1 - left / mean))


def _drawn(parameters: Parameters, at: Floats) -> tuple[Floats, Floats, float]:
    """Return F of one draw at shares of the back-off, the integral of 1 - F from there on, and the mean."""
    if parameters.nak_bo != "exponential":
        return at, np.asarray((1 - at) ** 2 / 2), 0.5
    rate = rate_of(parameters.nak_bo_group)
    whole = math.expm1(rate)

    def left(share: Floats) -> Floats:
        return np.asarray((math.exp(rate) * (1 - share) - (math.exp(rate) - np.exp(rate * share)) / rate) / whole)

    return np.asarray(np.expm1(rate * at) / whole), left(at), float(left(np.zeros(1))[0])


def _mean_sends(needs: list[tuple[Floats, int]], copies: int) -> float:
    """Return the mean number of sends until no node needs another, if each loss is repaired `copies` times."""
    product: Floats = np.ones(ROUNDS + 1)
    for lacks, number in needs:
        product *= (1 - lacks) ** number
    needed = 1 - product
    return 1 + copies * float(needed[1::copies].sum())


def _rounds(tree: FeedTree, link: FeedLink, askers: tuple[Asker, ...], copies: int) -> list[tuple[list[float], float]]:
    """Return the rounds of NAKs: the share of nodes of each member that lack the packet, and the share of packets.

    A packet that did not reach the sender is missing everywhere below. An aggregator sends an NCF for it at once, so only
    nodes that miss the NCF send a NAK.
    """
    rounds: list[tuple[list[float], float]] = []
    for number in range(_MOST_ROUNDS):
        shares = [asker.lacks_in(number, copies) for asker in askers]
        if max(shares, default=0.0) < _LEAST:
            break
        rounds.append((shares, 1.0))
    above = missing_at(tree, link)
    if above:
        is_told = link.sender.role is Role.AGGREGATOR
        rounds.append(([asker.member.loss if is_told else 1.0 for asker in askers], above))
    return rounds


def loss_at(link: FeedLink, name: str) -> float:
    """Return the share of NAKs that a node of the link loses."""
    if name == link.sender.name:
        return link.sender_loss
    return link.named[name].loss


def _naks(link: FeedLink, askers: tuple[Asker, ...], lacks: list[float], step_ns: float) -> list[float]:
    """Return the mean NAKs of each member in one round, in which a node lacks the packet with the probability `lacks`."""
    silent = unheard(link, askers, lacks)
    shift = round(2 * link.delay_ns / step_ns)  # until an NCF for a NAK can be heard
    before = _later(silent, shift, 1.0)
    nobody = float(np.prod([(1 - lack) ** asker.member.count for asker, lack in zip(askers, lacks, strict=True)]))
    repeated = 1.0 if nobody >= 1 else max(0.0, float(silent[-1]) - nobody) / (1 - nobody)
    found = []
    for asker, lack in zip(askers, lacks, strict=True):
        heard = 1 - loss_at(link, asker.is_asked)
        own_before = 1 - lack * heard * _later(asker.sent_by, shift, 0.0)
        others = before / np.maximum(own_before, 1e-12)  # this node does not suppress itself
        leaves = np.diff(asker.sent_by, prepend=0.0)
        loss = asker.member.loss
        own = float((leaves * (loss + (1 - loss) * np.minimum(1.0, others))).sum())
        found.append(asker.member.count * lack * own / max(1e-6, 1 - repeated))
    return found


def unheard(link: FeedLink, askers: tuple[Asker, ...], lacks: list[float]) -> Floats:
    """Return the probability that no NAK has reached its node by each step of the back-off time."""
    none: Floats = np.ones(_STEPS)
    for asker, lack in zip(askers, lacks, strict=True):
        heard = 1 - loss_at(link, asker.is_asked)
        none *= (1 - lack * heard * asker.sent_by) ** asker.member.count
    return none
