"""A valid stream among mutated packets, fed to the four cores: a campaign by seed.

python -m tests.sim.campaigns.run_seeds --kind fuzz-cores --packets 10000000 --jobs 2

A seed is a stream with drawn options, and `PACKETS` packets for source, receiver, aggregator and repairer together. Some
packets of the stream are lost, repeated or late. Many other packets are mutations of the stream's packets. No core may
raise. Every sqn that leaves the receiver's window must be delivered or reported in order and once. Every table must keep
its bound.
"""

from __future__ import annotations

import bisect
import collections
import random
from typing import NoReturn

import attrs
import numpy as np

from aggregator.core import AggregatorCore
from pgm.core.effects import CloseCause, Closed, Deliver, Effect, Effects, Lost, Notice, Opened, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel, Segment
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.parameters import Parameters
from pgm.sim.checks.invariants import MemoryBounds
from pgm.sim.invariant_broken import InvariantBroken
from pgm.units import KIB, MILLISECOND, SECOND
from pgm.wire.formats import SQN_AT, TYPE_AT, PacketType, Tsi, tsi_text
from pgm.wire.sequence_numbers import HALF, SPACE
from pgm.wire.train import Train
from repairer.core import RepairerCore
from tests.reference import DATA_PORT, TSI
from tests.sim.support.mutations import ATTACKER, Edges, Mutator

PACKETS = 2000  # of a seed
MS = MILLISECOND
SOURCE = "10.0.0.1"
UP = Segment(0, "core", "10.0.0.5", "239.0.0.1", upstream=True, downstream=False)
LAN = attrs.evolve(UP, downstream=True)
AT_SOURCE = attrs.evolve(UP, address=SOURCE, downstream=True)
BELOW = (
    Segment(1, "a", "10.1.0.1", "239.1.0.1", upstream=False, downstream=True),
    Segment(2, "b", "10.2.0.1", "239.2.0.1", upstream=False, downstream=True),
)
PEERS = (SOURCE, SOURCE, SOURCE, "10.0.0.5", "10.1.0.9", "10.2.0.9", ATTACKER)
_SHORT, _MIDDLING, _LONG = (0, 0, 1000, 100_000, MS), (50 * MS, SECOND), (4 * SECOND, 15 * SECOND)  # between packets
_OFTEN = 20_000  # deadlines that may be due before time goes on
_KEPT = 400  # packets of which mutations are made


class Node:
    """A core, with the interface that `MemoryBounds` needs."""

    def __init__(self, name: str, core: Core, limits: Parameters, channels: tuple[Channel, ...], world: World) -> None:
        self.name = name
        self.core = core
        self.parameters = limits
        self.channels = channels
        self._world = world

    def fail(self, what: str) -> NoReturn:
        """Fail the seed with the name of this node."""
        self._world.fail(self.name, what)


@attrs.define
class Account:
    """Deliveries and losses of one session: each sqn once.

    The sqns are in order unless the session is `loose`.
    """

    next_sqn: int
    loose: bool
    first: int
    is_over: bool = False
    is_silent: bool = False
    said: list[tuple[int, int]] = attrs.field(factory=list)  # spans of a loose one, in order: a jump may be long
    told: int = 0
    passed_over: int = 0  # sqns of which nothing was said

    def tell(self, first: int, count: int) -> str:
        """Record a delivery or a loss; return the problem, or an empty text."""
        self.told += count
        if self.is_over or count <= 0:
            return "the session is over, or nothing is told"
        if self.loose:
            return self._tell_loosely(first, first + count)
        if first < self.next_sqn:
            return f"the session stands at {self.next_sqn}"
        self.pass_over(first)
        self.next_sqn = first + count
        return ""

    def _tell_loosely(self, first: int, end: int) -> str:
        at = bisect.bisect_left(self.said, (first, end))
        before, behind = self.said[at - 1 : at] if at else [], self.said[at : at + 1]
        if first < self.first or (before and before[0][1] > first) or (behind and behind[0][0] < end):
            return "some of it was told before"
        if before and before[0][1] == first:
            at, first = at - 1, before[0][0]
            del self.said[at]
        self.said.insert(at, (first, end))
        return ""

    def pass_over(self, sqn: int) -> None:
        """Record that the stream continues at a later sqn."""
        self.passed_over += sqn - self.next_sqn
        self.next_sqn = sqn


class World:
    """The cores of a seed, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 1000 * SECOND
        self.fed = 0
        self._rng = rng = random.Random(seed)
        self._bounds = MemoryBounds()
        self._accounts: dict[Tsi, Account] = {}
        self._opens: collections.Counter[Tsi] = collections.Counter()
        self._passed_over = 0  # in sessions that are gone
        self._queued = 0  # octets that the application has not taken
        self._later: list[tuple[Node, bytes, int, Channel, str]] = []  # what was overtaken
        self._recent: collections.deque[bytes] = collections.deque(maxlen=_KEPT)
        limits = self.limits = self._draw_limits()
        first = rng.choice((0, 1000, HALF - 200, SPACE - 100))
        up, downs = (UP, BELOW) if rng.random() < 0.7 else (LAN, (LAN,))
        element = ElementSetup(up, downs, parents=(SOURCE,))
        order: dict[str, frozenset[int]] = {}
        if rng.random() < 0.2:
            kinds = ("unordered_ports", "unreliable_ports")[: rng.choice((1, 2))]
            order = dict.fromkeys(kinds, frozenset({DATA_PORT}))
        self._is_loose = bool(order)
        flow = rng.choice(("rate", "rate", "rate", "acked", "pgmcc"))
        if limits.fec_group and flow == "acked":
            flow = "rate"
        at_source = SourceSetup(TSI, AT_SOURCE, DATA_PORT, first, self.now, flow)
        self.source = SourceCore(at_source, limits, self.now, random.Random(seed))
        self.receiver = ReceiverCore(ReceiverSetup(UP, parents=(SOURCE,), **order), limits, random.Random(seed))
        from_above, below = (
            (Channel(element.up, True), Channel(element.up, False)),
            [Channel(one, False) for one in element.downs],
        )
        channels = (*from_above, *below, *(Channel(one, True) for one in element.downs))
        self._aggregator = Node(
            "aggregator", AggregatorCore(element, limits, random.Random(seed)), limits, channels, self
        )
        self._repairer = Node("repairer", RepairerCore(element, limits, random.Random(seed)), limits, channels, self)
        at_receiver = (Channel(UP, True), Channel(UP, False))
        self._at_source = Node(
            "source", self.source, limits, (Channel(AT_SOURCE, False), Channel(AT_SOURCE, True)), self
        )
        self._at_receiver = Node("receiver", self.receiver, limits, at_receiver, self)
        self._nodes = (self._at_source, self._at_receiver, self._aggregator, self._repairer)
        groups = (UP.group, *(one.group for one in BELOW))
        sources = (SOURCE, SOURCE, *(one.address for one in BELOW))
        edges = Edges(first, first - 1, 1, limits.rxw_sqns, limits.ncf_lead_sqns, sources, groups)
        self._mutator = Mutator(rng, edges)
        # A stream without parity passes no sqn over, unless the first SPM that is heard is a forged one.
        self._hears_truth_first = rng.random() < 0.9

    def _draw_limits(self) -> Parameters:
        rng = self._rng
        group = rng.choice((0, 0, 4, 8))
        return Parameters(
            fec_group=group,
            fec_proactive=rng.choice((0, 1)) if group else 0,
            fec_close_ivl=rng.choice((MS, 20 * MS)),
            fec_groups=rng.choice((4, 16, 512)),
            rxw_gaps=rng.choice((16, 64, 8192)),
            rxw_sqns=rng.choice((64, 1024, 1 << 20)),
            rxw_bytes=rng.choice((64 * KIB, 256 * KIB, 1024 * KIB)),
            inbox_bytes=rng.choice((64 * KIB, 1024 * KIB)),
            max_sessions=rng.choice((2, 8, 8, 64)),
            repair_states=rng.choice((16, 64, 16_384)),
            cache_bytes=rng.choice((256 * KIB, 1024 * KIB)),
            txw_sqns=rng.choice((0, 64)),
            poll_ivl=rng.choice((0, 200 * MS)),
            session_expiry=rng.choice((12, 120)) * SECOND,
        )

    def fail(self, name: str, what: str) -> NoReturn:
        """Raise `InvariantBroken` with the command that repeats the seed."""
        repeat = f"python -m tests.sim.campaigns.run_seeds --kind fuzz-cores --first {self.seed} --seeds 1 --verbose"
        raise InvariantBroken(self.seed, self.now, name, f"packet {self.fed}: {what}", repeat)

    # What happens

    def run(self) -> str:
        """Feed all packets, and settle the account."""
        if self._hears_truth_first:
            self._source_goes_on(is_lossless=True)
        while self.fed < PACKETS:
            self._step()
        for node in self._nodes:
            node.core.status(self.now)
        self._settle()
        told = sum(account.told for account in self._accounts.values())
        return f"{self.fed} packets, {told} sqns told, {self.receiver.counters.skipped_sqns} skipped"

    def _step(self) -> None:
        rng = self._rng
        what = rng.random()
        if what < 0.2:
            self._source_goes_on()
        elif what < 0.24 and self._later:
            self._feed(*self._later.pop(rng.randrange(len(self._later))))
        elif what < 0.27:
            self._application_takes()
        else:
            self._feed_forged()
        self.now += rng.choice(_LONG if rng.random() < 0.001 else _MIDDLING if rng.random() < 0.02 else _SHORT)
        for node in self._nodes:
            self._serve(node)

    def _source_goes_on(self, *, is_lossless: bool = False) -> None:
        rng, source = self._rng, self.source
        if source.room_octets > 0 and not is_lossless:
            size = rng.choice((12, 12, 40))
            source.submit([rng.randbytes(size) for _ in range(rng.choice((1, 1, 2, 5, 12)))])
        if is_lossless:
            self._serve(self._at_source, loss=0.0)
        self.now += rng.choice((MS, 5 * MS))
        self._serve(self._at_source)

    def _feed_forged(self) -> None:
        rng, recent = self._rng, self._recent
        how = rng.random()
        octets = rng.choice(recent) if recent and how < 0.45 else self._mutator.valid()
        if how < 0.02:
            octets = rng.randbytes(rng.choice((1, 15, 16, 24, 60)))
        elif how > 0.08:
            octets = self._mutator.mutated(octets)
        if not octets:
            return
        stride = len(octets)
        if rng.random() < 0.1:
            octets += b"".join(one for one in list(recent)[-8:] if len(one) == stride)
        node = rng.choice(self._nodes) if rng.random() < 0.6 else self._at_receiver
        self._feed(node, octets, stride, rng.choice(node.channels), rng.choice(PEERS))

    def _application_takes(self) -> None:
        rng = self._rng
        if rng.random() < 0.03:
            self._take(self._at_receiver, self.receiver.resync(TSI))
        octets = self._queued if rng.random() < 0.8 else rng.randint(0, self._queued)
        self._queued -= octets
        self._take(self._at_receiver, self.receiver.grant(octets))

    def _feed(self, node: Node, octets: bytes, stride: int, channel: Channel, peer: str) -> None:
        self.fed += -(-len(octets) // stride)
        if node is self._at_receiver and stride == len(octets) and self._rng.random() < 0.2:
            passed = self.receiver.single.begin(octets, peer, self.now)
            if passed is not None:
                self._told(passed[0], passed[1], 1)
                self._queued_octets(len(octets))
                return
        self._take(node, node.core.receive(Train.of(octets, stride), channel, peer, self.now))
        if self.fed % 16 == 0:
            self._bounds.called(node)  # type: ignore[arg-type]
            for session in self._repairer.core.sessions if node is self._repairer else ():
                if len(session.upstream.recovery.missing) > self.limits.rxw_gaps:
                    node.fail(f"{len(session.upstream.recovery.missing)} is over rxw_gaps, {self.limits.rxw_gaps}")

    def _queued_octets(self, octets: int) -> None:
        self.receiver.single.commit()
        self.receiver.charge(octets)
        self._queued += octets

    def _serve(self, node: Node, loss: float = 0.12) -> None:
        core = node.core
        for _ in range(_OFTEN):
            if core.deadline_ns > self.now:
                return
            self._take(node, core.handle_deadline(self.now), loss)
        node.fail("deadlines without end")

    # What comes of it

    def _take(self, node: Node, effects: Effects, loss: float = 0.12) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._pass_on(node, effect, loss)
            elif not isinstance(effect, Notice):
                self._tell(effect)

    def _pass_on(self, node: Node, send: Send, loss: float) -> None:
        """Pass the packets of a node to the nodes that would receive them."""
        rng = self._rng
        octets = send.octets.tobytes() if isinstance(send.octets, np.ndarray) else bytes(send.octets)
        rows = [octets[at : at + send.stride] for at in range(0, len(octets), send.stride)]
        self._recent.extend(rows[:8])
        if node is self._at_source:
            self._note_edges(rows)
        kind = octets[TYPE_AT] & 0x0F
        if kind in (PacketType.NAK, PacketType.NNAK, PacketType.SPMR, PacketType.POLR, PacketType.ACK):
            if node is not self._at_source and rng.random() > loss:
                to = self._at_source if node is not self._at_receiver else rng.choice(self._nodes)
                self._later.append((to, octets, send.stride, rng.choice(to.channels), "10.0.0.5"))
        elif node is self._at_source:
            for to in (self._at_receiver, self._aggregator, self._repairer):
                heard = rows if not loss else [row for row in rows if rng.random() > loss]
                joined = b"".join(heard)
                if not joined:
                    continue
                if loss and rng.random() < 0.15:
                    self._later.append((to, joined, send.stride, to.channels[0], SOURCE))
                else:
                    self._feed(to, joined, send.stride, to.channels[0], SOURCE)
        elif rng.random() < 0.2:
            self._later.append((self._at_receiver, octets, send.stride, Channel(UP, True), "10.0.0.5"))
        if len(self._later) > _KEPT:
            del self._later[0]

    def _note_edges(self, rows: list[bytes]) -> None:
        edges = self._mutator.edges
        edges.trail, edges.lead = self.source.window.trail, self.source.window.lead
        for row in rows:
            if row[TYPE_AT] & 0x0F == PacketType.SPM:
                edges.spm_sqn = int.from_bytes(row[SQN_AT : SQN_AT + 4], "big")

    def _tell(self, effect: Effect) -> None:
        if isinstance(effect, Opened):
            self._opened(effect)
        elif isinstance(effect, Deliver):
            self._queued += effect.run.octets
            self._told(effect.tsi, effect.run.first, effect.run.count)
        elif isinstance(effect, Lost):
            self._told(effect.tsi, effect.first, effect.count)
        elif isinstance(effect, Closed):
            self._closed(effect)

    def _opened(self, opened: Opened) -> None:
        before = self._accounts.get(opened.tsi)
        if opened.resumed:
            if before is None or not before.is_silent or (not before.loose and before.next_sqn > opened.first):
                self.fail("receiver", f"{opened} resumes {before}")
            before.is_silent = False
            return
        if before is not None:
            self._passed_over += before.passed_over
        loose = self._is_loose and opened.data_port == DATA_PORT
        self._opens[opened.tsi] += 1
        self._accounts[opened.tsi] = Account(opened.first, loose, opened.first)

    def _told(self, tsi: Tsi, first: int, count: int) -> None:
        account = self._accounts.get(tsi)
        wrong = "it was not opened" if account is None else account.tell(first, count)
        if wrong:
            self.fail("receiver", f"{tsi_text(tsi)} sqns {first} to {first + count - 1} told, and {wrong}: {account}")

    def _closed(self, closed: Closed) -> None:
        account = self._accounts.get(closed.tsi)
        if account is None or account.is_over or account.next_sqn > closed.next_sqn:
            self.fail("receiver", f"{closed}, and the account is {account}")
        self._reach(closed.tsi, account, closed.next_sqn)
        account.is_silent = closed.cause is CloseCause.SILENT
        account.is_over = not account.is_silent

    def _reach(self, tsi: Tsi, account: Account, sqn: int) -> None:
        """Check that every sqn before this one was reported, or skipped as never sent."""
        if account.loose:
            below = sum(min(end, sqn) - first for first, end in account.said if first < sqn)
            account.passed_over = sqn - account.first - below
        else:
            account.pass_over(sqn)
        if account.passed_over < 0:
            self.fail("receiver", f"{tsi_text(tsi)} stands at {sqn}, and the account is {account}")

    def _settle(self) -> None:
        """Check that every sqn below the next one was delivered, lost or skipped.

        Only a stream with parity may skip sqns.
        """
        for session in self.receiver.sessions:
            account = self._accounts.get(session.state.tsi)
            if account is None or account.is_over or not (session.delivery.is_running or session.is_over):
                continue
            if not account.loose and account.next_sqn > session.window.next_sqn:
                self.fail("receiver", f"{session.status(self.now)}, and the account is {account}")
            self._reach(session.state.tsi, account, session.window.next_sqn)
            assert account.loose != session.window.is_ordered
        passed_over = self._passed_over + sum(one.passed_over for one in self._accounts.values())
        skipped = self.receiver.counters.skipped_sqns
        if passed_over > skipped:
            self.fail("receiver", f"{passed_over} sqns were neither delivered nor reported, {skipped} skipped")
        mine = self._accounts.get(TSI)
        is_plain = self._hears_truth_first and not self.limits.fec_group and self._opens[TSI] == 1
        if (
            is_plain and mine is not None and mine.passed_over
        ):  # one that was forgotten may begin anew with a forged SPM
            self.fail(
                "receiver", f"{mine.passed_over} sqns of a stream without parity were neither delivered nor reported"
            )


def run(seed: int) -> str:
    """Run one seed. Raises `InvariantBroken`."""
    return World(seed).run()
