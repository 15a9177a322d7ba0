"""Cores of a tree by their states, and what each does next.

A state of a core is a number: the digest of its canonical form. The core itself is kept as octets, as on a tape. A core
is deterministic, so what it does in a state with an input is computed once, by the production core, and remembered. The
states of the whole tree are far more than those of its cores, and cost a look into a table each.
"""

from __future__ import annotations

import functools
import itertools
import random
import zlib
from collections.abc import Iterator
from typing import Any

import attrs

from deploy.node.roles import build_core
from pgm.core.counters import Counters
from pgm.core.effects import Closed, Deliver, Effect, LossCause, Lost, Opened, Send
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.core.source.source import SourceCore
from pgm.net.core_factory import segments_of
from pgm.sim.world import tsi_of
from pgm.tape.state import load, save
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import NEVER
from pgm.wire.control_packets import Nak, Spm
from pgm.wire.formats import Nla, PacketType
from pgm.wire.train import Data, Train
from tests.explore.canonical import EPOCH_NS, digest_of, number_of
from tests.explore.setups import HORIZON_NS

WAKE = 0  # input of a core: its deadline has come
_MOST_CALLS = 50  # at one instant
_MOST_DRAWS = 3  # random choices of one call that are tried both ways; later ones are the least value
_PAYLOAD_OCTETS = 4
COMPARED = 8  # one in so many states is computed from two of its cores


class UnsoundState(Exception):
    """Two cores with one canonical form act differently: the form leaves out what matters."""


@attrs.frozen(slots=False)
class Packet:
    """One packet on its way to one node."""

    to: int  # index of the node
    segment: str
    is_group: bool
    peer: Nla
    octets: bytes

    @property
    def number(self) -> int:
        """Number that identifies the packet in every process."""
        return number_of((self.to, self.segment, self.is_group, self.peer, self.octets))

    @property
    def item(self) -> Any:
        """Return the parsed packet."""
        items, rejects = Train.of(self.octets).parse_untrusted()
        assert not rejects, rejects
        [item] = items
        return item

    @functools.cached_property
    def sqn(self) -> int:
        """Sqn of a data packet; -1 for others."""
        item = self.item
        return item.wire_sqn if isinstance(item, Data) else -1

    @property
    def text(self) -> str:
        """Type and numbers of the packet, which name it among those in flight to a node."""
        item = self.item
        if isinstance(item, Spm):
            return f"SPM {item.spm_sqn} {_signed(item.trail)}-{_signed(item.lead)}"
        sqns = item.sqns if isinstance(item, Nak) else (getattr(item, "wire_sqn", 0),)
        return " ".join([item.type.name, *map(str, sqns)])


@attrs.frozen
class Outcome:
    """What a core did: its next state, the packets it sent, and what its application got."""

    core: int
    packets: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()  # of sqns delivered or reported as lost, in order
    lost: tuple[tuple[int, int, bool], ...] = ()  # spans reported as lost, and whether as gone from the source's window
    naks: tuple[int, ...] = ()  # sqns of NAKs that left, once for each packet
    has_spm: bool = False
    broken: str = ""  # a property that the core itself has broken


class Draws(random.Random):
    """Random numbers as the search chooses them: for each draw the least or the greatest."""

    def __init__(self, node_id: int, script: tuple[bool, ...] = ()) -> None:
        super().__init__(0)
        self._node_id = node_id
        self._script = script
        self.count = 0

    def randint(self, a: int, b: int) -> int:
        """Return one of both ends."""
        if a == b:
            return a
        self.count += 1
        return b if self.count <= len(self._script) and self._script[self.count - 1] else a

    def getrandbits(self, k: int, /) -> int:
        """Return the node's own number, for ids."""
        return self._node_id


@attrs.frozen
class Kept:
    """A core in a state: its octets, the instant of its last call, and how long its next timer still runs."""

    octets: bytes
    now_ns: int
    wait_ns: int
    trail: int  # of the transmit window; -1 at nodes other than the source


@attrs.frozen
class _Instant:
    """A core after a call."""

    core: Core
    draws: Draws
    now_ns: int


@attrs.define
class _Node:
    plan: NodePlan
    index: int
    channels: dict[tuple[str, bool], Channel]
    segments: tuple[str, ...]


class Nodes:
    """Cores of all nodes of a tree."""

    def __init__(self, plans: dict[str, NodePlan]) -> None:
        self.names = tuple(plans)
        self.states: dict[int, Kept] = {}
        self.packets: dict[int, Packet] = {}
        self.calls = 0  # of production cores
        self.compared = 0  # outcomes that were computed from two cores of one state
        self._others: dict[int, Kept] = {}  # further cores of some states, which must act alike
        self._outcomes: dict[tuple[int, int], tuple[Outcome, ...]] = {}
        self._nodes: list[_Node] = []
        self._addresses: dict[tuple[str, Nla], int] = {}
        self._members: dict[str, list[int]] = {}
        for index, plan in enumerate(plans.values()):
            segments = segments_of(plan)
            channels = {(one.name, is_group): Channel(one, is_group) for one in segments for is_group in (False, True)}
            self._nodes.append(_Node(plan, index, channels, tuple(one.name for one in segments)))
            for one in segments:
                self._addresses[one.name, one.address] = index
                self._members.setdefault(one.name, []).append(index)

    def newest(self, known: int) -> dict[int, Kept]:
        """Return the states behind the first `known`."""
        return dict(itertools.islice(self.states.items(), known, None))

    def newest_packets(self, known: int) -> dict[int, Packet]:
        """Return the packets behind the first `known`."""
        return dict(itertools.islice(self.packets.items(), known, None))

    def begin(self, index: int) -> Outcome:
        """Return the first state of a node."""
        plan, draws = self._nodes[index].plan, Draws(index + 1)
        core = build_core(plan, draws, tsi_of(plan.name, 0), EPOCH_NS)
        return self._outcome(index, _Instant(core, draws, EPOCH_NS), [])

    def outcomes(self, index: int, core: int, what: int) -> tuple[Outcome, ...]:
        """Return all that a core may do in a state with an input: WAKE, the number of a packet, or minus a message's."""
        known = self._outcomes.get((core, what))
        if known is None:
            known = self._outcomes[core, what] = self._compute(index, core, what)
        return known

    def _compute(self, index: int, core: int, what: int) -> tuple[Outcome, ...]:
        found = tuple(self._each(index, core, what, self.states[core]))
        other = self._others.get(core)
        if other is not None:
            self.compared += 1
            again = tuple(self._each(index, core, what, other))
            if found != again:
                raise UnsoundState(
                    f"two cores of {self.names[index]} in state {core} act differently: {found}, {again}"
                )
        return found

    def _each(self, index: int, core: int, what: int, kept: Kept) -> Iterator[Outcome]:
        scripts: list[tuple[bool, ...]] = [()]
        seen = set()
        while scripts:
            script = scripts.pop()
            draws = Draws(index + 1, script)
            outcome = self._call(index, (core, what), kept, draws)
            for length in range(len(script), min(draws.count, _MOST_DRAWS)):
                scripts.append((*script, *(False,) * (length - len(script)), True))
            if outcome not in seen:
                seen.add(outcome)
                yield outcome

    def _call(self, index: int, case: tuple[int, int], kept: Kept, draws: Draws) -> Outcome:
        """Give an input to a production core, and return the outcome. `case` has the core's state and the input."""
        state, what = case
        self.calls += 1
        now_ns = kept.now_ns
        core: Core = load(zlib.decompress(kept.octets), {"counters": Counters(), "rng": draws}).value
        effects: list[Effect] = []
        try:
            if what == WAKE:
                now_ns = max(now_ns, core.deadline_ns)
                effects += core.handle_deadline(now_ns)
            elif what < 0:
                assert isinstance(core, SourceCore)
                core.submit([payload_of(-1 - what)])
            else:
                packet = self.packets[what]
                channel = self._nodes[index].channels[packet.segment, packet.is_group]
                effects += core.receive(Train.of(packet.octets), channel, packet.peer, now_ns)
            self._settle(core, effects, now_ns)
        except Exception as error:  # nothing that a peer sends makes a core raise
            return Outcome(state, broken=f"{self.names[index]} raises {error!r}")
        return self._outcome(index, _Instant(core, draws, now_ns), effects)

    @staticmethod
    def _settle(core: Core, effects: list[Effect], now_ns: int) -> None:
        """Take deliveries at once, and serve all deadlines of this instant, as drivers do."""
        granted = 0
        for _ in range(_MOST_CALLS):
            if isinstance(core, ReceiverCore):
                octets = sum(effect.run.octets for effect in effects if isinstance(effect, Deliver))
                if octets > granted:
                    effects += core.grant(octets - granted)
                    granted = octets
            if core.deadline_ns > now_ns:
                return
            effects += core.handle_deadline(now_ns)
        raise RuntimeError(f"sets its deadline without end: {_MOST_CALLS} calls at one instant")

    def _outcome(self, index: int, instant: _Instant, effects: list[Effect]) -> Outcome:
        packets: list[Packet] = []
        spans: list[tuple[int, int]] = []
        lost: list[tuple[int, int, bool]] = []
        broken = ""
        for effect in effects:
            if isinstance(effect, Send):
                packets += self._packets_of(index, effect)
            elif isinstance(effect, Deliver):
                spans.append((effect.run.first, effect.run.end))
                broken = broken or self._wrong_payload(index, effect)
            elif isinstance(effect, Lost):
                spans.append((effect.first, effect.first + effect.count))
                lost.append((*spans[-1], effect.cause is LossCause.WINDOW))
            elif isinstance(effect, (Opened, Closed)):
                at = effect.first if isinstance(effect, Opened) else effect.next_sqn
                spans.append((at, at))
        is_spm = False
        naks: list[int] = []
        for packet in packets:
            self.packets.setdefault(packet.number, packet)
            item = packet.item
            is_spm |= item.type is PacketType.SPM
            if item.type is PacketType.NAK:
                naks += item.sqns
        plan = self._nodes[index].plan
        return Outcome(
            self._keep(index, instant),
            tuple(packet.number for packet in packets),
            tuple(spans),
            tuple(lost),
            tuple(naks),
            is_spm and plan.role is Role.SOURCE,
            broken,
        )

    def _wrong_payload(self, index: int, delivery: Deliver) -> str:
        for sqn, row in zip(range(delivery.run.first, delivery.run.end), delivery.run.payloads, strict=True):
            if row.tobytes() != payload_of(sqn):
                return f"{self.names[index]} delivers {row.tobytes()!r} as sqn {sqn}"
        return ""

    def _packets_of(self, index: int, send: Send) -> Iterator[Packet]:
        """Yield each packet of a send for each node that it reaches."""
        segment = send.segment
        if send.to is None:
            targets = [member for member in self._members[segment.name] if member != index]
        else:
            target = self._addresses.get((segment.name, send.to), index)
            targets = [] if target == index else [target]
        for octets in Train.of(send.octets, send.stride).packets():
            for target in targets:
                yield Packet(target, segment.name, send.to is None, segment.address, octets)

    def _keep(self, index: int, instant: _Instant) -> int:
        """Keep the octets of a core. Return the number of its state, which no other node shares.

        The form of a core leaves out its addresses. A core of another node would send in the name of that node.
        """
        core = instant.core
        state = digest_of((index, core), instant.now_ns)
        is_compared = state % COMPARED == 0 and state not in self._others
        if state in self.states and not is_compared:
            return state
        wait_ns = core.deadline_ns - instant.now_ns if core.deadline_ns != NEVER else NEVER
        octets = zlib.compress(b"".join(save(core, {id(core.counters): "counters", id(instant.draws): "rng"})), 1)
        kept = Kept(octets, instant.now_ns, wait_ns, core.window.trail if isinstance(core, SourceCore) else -1)
        if state not in self.states:
            self.states[state] = kept
        elif kept != (known := self.states[state]):
            if kept.wait_ns != known.wait_ns and min(kept.wait_ns, known.wait_ns) <= HORIZON_NS:
                raise UnsoundState(f"two cores of state {state} wait for {kept.wait_ns} and {known.wait_ns} ns")
            self._others[state] = kept
        return state


def payload_of(sqn: int) -> bytes:
    """Return the message of a sqn: each message is one packet."""
    return sqn.to_bytes(_PAYLOAD_OCTETS, "big")


def _signed(sqn: int) -> int:
    return sqn - (1 << 32) if sqn >> 31 else sqn
