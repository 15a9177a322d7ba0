"""Hostile and damaged packets of every kind, in any order: no exception, bounded tables, bounded answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest

from aggregator.core import AggregatorCore
from pgm.core.effects import Effect, Send
from pgm.core.element.setup import ElementSetup
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.recovery.nak_packets import OF_HISTORY
from pgm.core.recovery.redundant_lines import LineSetup
from pgm.core.segment import Channel, Segment
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.fec import groups
from pgm.units import SECOND
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Polr, Spm, Spmr, encode
from pgm.wire.formats import Layout, PacketType
from pgm.wire.options import (
    Acker,
    Cr,
    Crqst,
    CurrTgsize,
    Epoch,
    Fin,
    Flow,
    Fragment,
    HeldHistory,
    Join,
    Members,
    NakBoIvl,
    NakBoRng,
    NakList,
    Option,
    ParityGrp,
    ParityPrm,
    PgmccData,
    PgmccFeedback,
    Redirect,
    Rst,
    StateOffer,
    Syn,
    UnknownOption,
)
from pgm.wire.parity import build_parity
from pgm.wire.train import Train
from repairer.core import RepairerCore
from tests.reference import DATA_PORT, TSI, data_packet, sealed
from tests.rfc.bench import BELOW, SOURCE, UP, A, B
from tests.unit.core.makers import MS, data_train, parameters, payload_of, run_of, spm_packet

T = PacketType
SIZE = 8  # packets of a transmission group
SENT = 5 * SIZE
STATES = 64  # of every table, so that a bound is reached soon
LIMITS: dict[str, Any] = {
    "repair_states": STATES,
    "rxw_gaps": STATES,
    "max_children": STATES,
    "max_sessions": 4,
    "fec_groups": STATES,
    "inbox_bytes": 1 << 20,
    "rxw_bytes": 1 << 20,
    "cache_bytes": 1 << 20,
    "rxw_sqns": 4096,
}
LINE = Segment(7, "b-line", "10.7.0.5", "239.7.0.1", upstream=True, downstream=False)
PEERS = (SOURCE, BELOW[A.index], "10.1.0.66", "10.7.0.1", "10.0.0.77")
EDGES = (0, 1, 7, 8, SENT - 1, SENT, SENT + 1, SENT + 900, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
OFFER = ParityPrm(SIZE, proactive=True, on_demand=True)
FLOW = Flow(window=64, every=16, ivl_us=50_000, expiry_us=3_000_000, stall_us=10_000_000)


class Drawn:
    """Packets drawn from a seed: of a kind each, well formed, and with numbers that are near, at edges, or anything."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def u32(self) -> int:
        rng = self.rng
        return rng.choice((rng.randrange(SENT + 8), rng.choice(EDGES), rng.randrange(1 << 32)))

    def sqn(self) -> int:
        return self.rng.randrange(SENT + 4) if self.rng.random() < 0.8 else self.u32()

    def nla(self) -> str:
        return self.rng.choice((*PEERS, UP.address, A.address, "0.0.0.0", "::", "2001:db8::7", "255.255.255.255"))

    def bit(self) -> bool:
        return self.rng.random() < 0.5

    def option(self, kind: PacketType) -> Option | None:
        rng, u32 = self.rng, self.u32
        made: tuple[Option, ...] = (
            Flow(u32(), u32(), u32(), u32(), u32()),
            FLOW,
            Members(u32(), self.nla(), self.bit(), rng.random() < 0.2, rng.random() < 0.2, self.bit()),
            Acker(self.nla()),
            Crqst(wants_rx_wp=self.bit()),
            self.held(),
            StateOffer(self.sqn(), self.bit()),
            Cr(u32(), 0, 0, rng.randrange(65_536), self.nla(), has_rx_wp=True),
            PgmccData(u32(), self.nla()),
            self._feedback(),
            ParityPrm(1 << rng.choice((0, 3, 3, 3, 7, 8, 31)), self.bit(), True),
            ParityGrp(rng.choice((1, 2, 31, 1 << 30, 0xFFFFFFFF))),
            CurrTgsize(rng.choice((1, 3, 7, 8, 9, 0xFFFFFFFF))),
            Join(u32()),
            Epoch(rng.choice((0, 0, u32())), u32(), u32()),
            NakBoIvl(u32(), u32()),
            NakBoRng(u32(), u32()),
            NakList(tuple(self.sqn() for _ in range(rng.choice((1, 5, 62))))),
            Fragment(self.sqn(), u32(), u32()),
            Redirect(self.nla()),
            Rst(self.bit(), rng.randrange(64)),
            Syn(),
            Fin(),
        )
        if rng.random() < 0.03:  # of a packet that it does not belong on, perhaps
            one = rng.choice(made)
            return UnknownOption(number=one.TYPE, value=Layout(type(one)).encode(one))
        fitting = [one for one in made if kind in one.CARRIERS and (rng.random() < 0.1 or type(one) not in (Rst, Fin))]
        return rng.choice(fitting) if fitting else None

    def held(self) -> HeldHistory:
        """A question about history, or an answer."""
        return HeldHistory(self.sqn(), self.u32(), self.bit(), self.bit(), self.bit(), self.bit(), self.bit())

    def _feedback(self) -> PgmccFeedback:
        reporter = self.nla()
        return PgmccFeedback(self.u32(), 2 if ":" in reporter else 1, self.rng.randrange(65_536), reporter)

    def options(self, kind: PacketType) -> tuple[Option, ...]:
        drawn = [self.option(kind) for _ in range(self.rng.choice((0, 1, 2, 3)))]
        found = {type(one): one for one in drawn if one is not None}
        return tuple(found.values())

    def control(self) -> Packet:
        kind = self.rng.choice((T.SPM, T.NAK, T.NAK, T.NNAK, T.NCF, T.ACK, T.ACK, T.POLL, T.POLR, T.SPMR))
        common: dict[str, Any] = {"tsi": TSI, "data_port": DATA_PORT, "options": self.options(kind)}
        if self.rng.random() < 0.02:
            common["tsi"] = self.rng.randbytes(8)
        if kind is T.SPM:
            trail = self.sqn()
            return Spm(spm_sqn=self.u32(), trail=trail, lead=max(trail, self.sqn()), path_nla=self.nla(), **common)
        if kind is T.ACK:
            return Ack(rx_max=self.sqn(), bitmap=self.u32(), **common)
        if kind is T.POLL:
            return Poll(
                poll_sqn=self.u32(), poll_round=self.rng.randrange(65_536), sub_type=self.rng.randrange(3),
                path_nla=self.nla(), bo_ivl_us=self.u32(), rand=self.u32(), mask=self.u32(), **common,
            )  # fmt: skip
        if kind is T.POLR:
            return Polr(poll_sqn=self.u32(), poll_round=self.rng.randrange(65_536), **common)
        if kind is T.SPMR:
            return Spmr(**common)
        group = self.rng.choice((UP.group, A.group, B.group))
        return Nak(kind=kind, sqn=self.sqn(), source_nla=SOURCE, group_nla=group, parity=self.bit(), **common)

    def data(self) -> bytes:
        kind, first = self.rng.choice((T.ODATA, T.RDATA)), self.sqn()
        size = self.rng.choice((0, 1, 2, 12, 12, 12, 14, 1400))
        trail = self.sqn() if self.rng.random() < 0.1 else 0
        parity = self.bit()
        payload = payload_of(first, size) if size else b""
        return data_packet(first, payload, trail=trail, kind=kind, options=self.options(kind), parity=parity)

    def true_parity(self) -> bytes:
        group, actual = SIZE * self.rng.randrange(5), self.rng.choice((SIZE, SIZE, 3))
        index = self.rng.randrange(24)
        made = groups.encode([run_of(group, actual)], group, SIZE, [index], actual)
        kind = self.rng.choice((T.ODATA, T.RDATA))
        return build_parity(kind, made[0], tsi=TSI, data_port=DATA_PORT, size=SIZE, trail=0)

    def packet(self) -> bytes:
        roll = self.rng.random()
        octets = encode(self.control()) if roll < 0.6 else self.data() if roll < 0.9 else self.true_parity()
        if self.rng.random() < 0.3:  # damage behind the header, with a checksum that holds
            damaged = bytearray(octets)
            for _ in range(self.rng.randrange(1, 4)):
                damaged[self.rng.randrange(4, len(damaged))] = self.rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            octets = sealed(bytes(damaged))
        return octets


def core_of(role: str, flow: str, rng: random.Random) -> Core:
    if role == "source":
        settings = parameters(**LIMITS | {"fec_group": SIZE, "fec_proactive": 1, "ihb_min": 50 * MS})
        segment = attrs.evolve(UP, address=SOURCE, downstream=True)
        core = SourceCore(SourceSetup(TSI, segment, DATA_PORT, flow=flow), settings, 1000 * SECOND, rng)
        core.submit([payload_of(sqn) for sqn in range(SENT)])
        return core
    settings = parameters(**LIMITS)
    lines = (LineSetup(LINE, ("10.7.0.1",)),) if rng.random() < 0.5 else ()
    if role == "receiver":
        late = attrs.evolve(settings, join_from="oldest")
        setup = ReceiverSetup(UP, (SOURCE,), keepers=PEERS, asks_below_trail=rng.random() < 0.5, lines=lines)
        return ReceiverCore(setup, late, rng)
    keepers = PEERS[:1]  # one, whose first answer counts
    setup = ElementSetup(
        UP, (A, B), parents=(SOURCE,), keepers=keepers, lines=lines, asks_below_trail=rng.random() < 0.5
    )
    return AggregatorCore(setup, settings) if role == "aggregator" else RepairerCore(setup, settings, rng)


def sizes_of(what: object, state: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, int]]:
    """The length of every dict, list, set, deque that is reached from an object of the project."""
    seen = set() if seen is None else seen
    if id(what) in seen:
        return
    seen.add(id(what))
    if isinstance(what, (dict, list, set, frozenset, tuple)) or type(what).__name__ == "deque":
        yield state, len(what)  # type: ignore[arg-type]
        for one in list(what.values()) if isinstance(what, dict) else list(what):  # type: ignore[call-overload]
            yield from sizes_of(one, state + "[]", seen)
    elif type(what).__module__.split(".")[0] in ("pgm", "aggregator", "repairer"):
        names = [name for cls in type(what).__mro__ for name in getattr(cls, "__slots__", ())]
        for name in {*names, *getattr(what, "__dict__", {})}:
            if not name.startswith("__"):
                yield from sizes_of(getattr(what, name, None), f"{state}.{name}", seen)


def serve(core: Core, now: int, until: int) -> list[Effect]:
    found: list[Effect] = []
    for _ in range(4000):
        if core.deadline_ns > until:
            return found
        now = max(now, core.deadline_ns)
        found += core.handle_deadline(now)
    raise AssertionError("deadlines without end")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("role", "flow"),
    [
        ("source", "rate"),
        ("source", "acked"),
        ("source", "pgmcc"),
        ("receiver", ""),
        ("aggregator", ""),
        ("repairer", ""),
    ],
)
def test_cores_with_hostile_packets_survive(role, flow, seed):
    rng = random.Random(f"{role} {flow} {seed}")
    drawn, core, now = Drawn(rng), core_of(role, flow, rng), 1000 * SECOND
    downs: Sequence[Segment] = (attrs.evolve(UP, address=SOURCE, downstream=True),) if role == "source" else (A, B)
    if role != "source":
        options = [OFFER, FLOW, Acker("0.0.0.0"), Crqst(wants_rx_wp=True)]
        core.receive(Train.of(encode(spm_packet(1, 0, -1, *rng.sample(options, 3)))), Channel(UP, True), SOURCE, now)
    for sqn in range(SENT):
        if role != "source" and rng.random() < 0.7:
            core.receive(data_train([sqn]), Channel(UP, True), SOURCE, now)
    serve(core, now, now + SECOND)
    now += SECOND
    for _ in range(500):
        segment = rng.choice((UP, UP, LINE, *downs)) if role != "source" else downs[0]
        packet = drawn.packet()
        effects = list(core.receive(Train.of(packet), Channel(segment, drawn.bit()), rng.choice(PEERS), now))
        octets = sum(len(one.octets) for one in effects if isinstance(one, Send))
        assert octets <= 4096, (octets, packet.hex())
        step = rng.choice((0, 0, 0, MS, 20 * MS, 300 * MS, 4 * SECOND))
        serve(core, now, now + step)
        now += step
    core.status(now)
    too_long = {state: size for state, size in sizes_of(core) if size > 8 * STATES}
    assert not too_long


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("role", ["receiver", "aggregator", "repairer"])
def test_cores_with_hostile_history_claims_survive(role, seed):
    """Questions and answers about history come between NAKs and data with gaps: an answer may name the very beginning of a gap."""
    rng = random.Random(f"history {role} {seed}")
    drawn, core, now = Drawn(rng), core_of(role, "", rng), 1000 * SECOND
    core.receive(Train.of(encode(spm_packet(1, 0, -1))), Channel(UP, True), SOURCE, now)
    for _ in range(200):
        at, peer, segment = rng.randrange(2 * SENT), SOURCE, UP
        if rng.random() < 0.3:
            packet = data_packet(at, payload_of(at), trail=0, kind=T.ODATA)
        else:
            answer = HeldHistory(at, drawn.u32(), answers=True)
            gone = attrs.evolve(answer, by_sqn=True, nothing=True)
            held = rng.choice((drawn.held(), answer, gone, gone))
            packet = encode(Spmr(tsi=TSI, data_port=DATA_PORT, options=(held,)))
            if role != "receiver" and drawn.bit():
                segment, peer = A, BELOW[A.index]
                if drawn.bit():
                    nak = {"tsi": TSI, "data_port": DATA_PORT, "source_nla": SOURCE, "group_nla": A.group}
                    packet = encode(Nak(kind=T.NAK, sqn=at, options=OF_HISTORY, **nak))
        core.receive(Train.of(packet), Channel(segment, segment is UP and drawn.bit()), peer, now)
        step = rng.choice((0, MS, 20 * MS, 300 * MS))
        serve(core, now, now + step)
        now += step
    core.status(now)
