"""States for joiners: their messages, the window that begins behind them, and packets of no honest node."""

from __future__ import annotations

import random

import attrs
import pytest

from pgm.core.effects import (
    Deliver,
    Effect,
    Lost,
    NoSnapshot,
    NoSnapshotCause,
    Notice,
    Opened,
    Send,
    Snapshot,
    SnapshotWanted,
)
from pgm.core.late_join.states import StateKind, StateMessage, most_octets, state_port, state_tsi
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.receiver.snapshots import companion_receiver
from pgm.core.segment import Channel, Segment
from pgm.core.source.companions import CompanionSource
from pgm.core.source.setup import SourceSetup
from pgm.core.source.snapshots import state_companion
from pgm.units import KIB, NEVER, SECOND
from pgm.wire.control_packets import Spmr, encode
from pgm.wire.formats import PacketType
from pgm.wire.options import Join, StateOffer
from pgm.wire.sequence_numbers import wrap
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI, data_packet
from tests.rfc.bench import SOURCE, UP
from tests.unit.core.makers import MS, parameters, payload_of, spm_packet
from tests.unit.core.test_hostile import PEERS, SENT, Drawn, sizes_of

STATES_TSI, STATES_PORT = state_tsi(TSI), state_port(DATA_PORT)
TOP: Segment = attrs.evolve(UP, address=SOURCE, downstream=True)
START = 1000 * SECOND


def request(sqn: int) -> Train:
    return Train.of(encode(Spmr(tsi=TSI, data_port=DATA_PORT, options=(StateOffer(wrap(sqn)),))))


def message(position: int, payload: bytes = b"state", kind: StateKind = StateKind.WHOLE) -> bytes:
    return StateMessage(kind, position, len(payload), memoryview(payload)).encode()


class OfferingSource:
    """Source that has sent `count` messages."""

    def __init__(self, count: int = 10, **changes: object) -> None:
        settings = parameters(**{"snapshot_bytes": 10 * KIB, "txw_secs": 5 * SECOND, **changes})
        setup = SourceSetup(TSI, TOP, DATA_PORT)
        self.core = CompanionSource(setup, settings, START, [state_companion(None, None)])
        self.now = START
        self.core.submit([payload_of(sqn) for sqn in range(count)])
        self.run(MS)

    def run(self, for_ns: int) -> list[Effect]:
        found: list[Effect] = []
        until = self.now + for_ns
        while (at := self.core.deadline_ns) <= until:
            self.now = max(self.now, at)
            found += self.core.handle_deadline(self.now)
        self.now = until
        return found

    def ask(self, sqn: int) -> list[Effect]:
        return [*self.core.receive(request(sqn), Channel(TOP, False), PEERS[1], self.now), *self.run(MS)]


def wanted(effects: list[Effect]) -> int:
    return sum(isinstance(effect, SnapshotWanted) for effect in effects)


def packets_of_states(effects: list[Effect]) -> int:
    sends = [effect for effect in effects if isinstance(effect, Send) and effect.is_data]
    items = [item for send in sends for item in Train.of(bytes(send.octets), send.stride).parse_untrusted()[0]]
    return sum(item.count for item in items if item.tsi == STATES_TSI)


def test_message_of_a_state_comes_back_and_others_are_refused() -> None:
    whole = StateMessage.decode_untrusted(memoryview(message(5_000_000_000, b"abc")))
    assert whole is not None
    assert (whole.kind, whole.position, bytes(whole.payload)) == (StateKind.WHOLE, wrap(5_000_000_000), b"abc")
    refused = (
        b"",
        b"short",
        message(1, b"abc")[:-1],
        message(1, b"abc") + b"d",
        message(1, b"", StateKind.TOO_LARGE)[:15],
    )
    assert [StateMessage.decode_untrusted(memoryview(octets)) for octets in refused] == [None] * len(refused)


def test_names_of_states_lead_back_to_their_stream() -> None:
    assert (state_tsi(STATES_TSI), state_port(STATES_PORT)) == (TSI, DATA_PORT)
    assert STATES_TSI[:6] == TSI[:6]
    assert STATES_TSI != TSI


def test_source_gives_one_state_an_interval() -> None:
    source = OfferingSource()
    assert wanted(source.ask(10)) == 1
    assert wanted(source.ask(10)) == 0, "the application has not answered yet"
    source.core.put_state(b"x" * 4000, source.now)
    assert packets_of_states(source.run(200 * MS)) == 3
    answered = source.ask(10)
    assert wanted(answered) == 0, "the last state covers this joiner"
    assert answered
    source.core.submit([payload_of(10)])
    source.run(250 * MS)
    assert wanted(source.ask(11)) == 0, "the interval is not over"
    assert wanted(source.run(SECOND)) == 1


def test_state_leaves_the_window_and_a_later_joiner_gets_a_new_one() -> None:
    source = OfferingSource()
    source.ask(10)
    source.core.put_state(b"x" * 4000, source.now)
    source.run(10 * SECOND)
    assert wanted(source.ask(10)) == 1


def test_states_take_the_share_of_late_joiners() -> None:
    source = OfferingSource(snapshot_bytes=400 * KIB, txw_max_rte=1_000_000, join_share=0.1)
    source.ask(10)
    source.core.put_state(bytes(300_000), source.now)
    octets = packets_of_states(source.run(2 * SECOND)) * 1500
    assert 0.8 * 200_000 < octets < 1.2 * 200_000


def test_state_above_the_bound_costs_one_packet_and_a_notice() -> None:
    source = OfferingSource()
    source.ask(10)
    effects = list(source.core.put_state(bytes(11 * KIB), source.now))
    assert [effect.code for effect in effects if isinstance(effect, Notice)] == ["snapshot-too-large"]
    assert packets_of_states(source.run(SECOND)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_source_with_hostile_packets_survives(seed: int) -> None:
    rng = random.Random(f"states of a source {seed}")
    source, drawn = OfferingSource(SENT), Drawn(rng)
    for _ in range(300):
        packet = drawn.packet()
        if rng.random() < 0.4:
            packet = encode(attrs.evolve(drawn.control(), tsi=STATES_TSI, data_port=STATES_PORT))
        effects = [*source.core.receive(Train.of(packet), Channel(TOP, drawn.bit()), rng.choice(PEERS), source.now)]
        effects += source.run(rng.choice((0, MS, 300 * MS, 4 * SECOND)))
        if wanted(effects):
            source.core.put_state(rng.randbytes(rng.choice((0, 10, 5000, 20_000))), source.now)
    assert source.core.deadline_ns < NEVER


class Joiner:
    """Receiver that wants a state, and has heard the stream up to sqn `lead`."""

    def __init__(self, lead: int = 99, **changes: object) -> None:
        setup = ReceiverSetup(UP, (SOURCE,), data_ports=frozenset({DATA_PORT}), state_ports=frozenset({STATES_PORT}))
        settings = parameters(**{"join_from": "snapshot", "snapshot_bytes": 10 * KIB, **changes})
        self.core = companion_receiver(setup, settings, random.Random(1))
        self.now = START
        self.found: list[Effect] = []
        self.hear(encode(spm_packet(1, 0, lead, StateOffer())))

    def hear(self, packet: bytes, peer: str = SOURCE) -> None:
        self.found += self.core.receive(Train.of(packet), Channel(UP, True), peer, self.now)

    def announce(self, position: int, lead: int = -1, spm_sqn: int = 1, trail: int = 0) -> None:
        spm = spm_packet(spm_sqn, trail, lead, Join(trail), StateOffer(wrap(position)))
        self.hear(encode(attrs.evolve(spm, tsi=STATES_TSI, data_port=STATES_PORT)))

    def state(self, sqn: int, content: bytes) -> None:
        self.hear(data_packet(sqn, content, tsi=STATES_TSI, data_port=STATES_PORT))

    def data(self, *sqns: int) -> None:
        for sqn in sqns:
            self.hear(data_packet(sqn, payload_of(sqn)))

    def run(self, for_ns: int) -> None:
        until = self.now + for_ns
        while (at := self.core.deadline_ns) <= until:
            self.now = max(self.now, at)
            self.found += self.core.handle_deadline(self.now)
        self.now = until

    @property
    def told(self) -> list[tuple[str, int]]:
        """Return what the application gets: kind and first sqn."""
        rows = []
        for effect in self.found:
            if isinstance(effect, Deliver):
                rows += [("data", sqn) for sqn in range(effect.run.first, effect.run.end)]
            elif isinstance(effect, (Opened, Lost)):
                rows.append((type(effect).__name__, effect.first))
            elif isinstance(effect, Snapshot):
                rows.append(("Snapshot", effect.position))
        return rows


@pytest.mark.parametrize("held", [(), (100, 101, 102, 103), (100, 102, 103), (103,), (100, 104, 106)])
def test_stream_goes_on_exactly_behind_the_state(held: tuple[int, ...]) -> None:
    joiner = Joiner()
    joiner.data(*held)
    joiner.announce(103)
    joiner.state(0, message(103))
    joiner.data(*(sqn for sqn in range(100, 110) if sqn not in held))
    assert joiner.told == [("Opened", 103), ("Snapshot", 103), *(("data", sqn) for sqn in range(103, 110))]


def test_state_that_leaves_a_gap_is_ignored() -> None:
    joiner = Joiner()
    joiner.announce(99)
    joiner.state(0, message(99))
    assert joiner.told == []
    joiner.announce(100, 0, 2, trail=1)
    joiner.state(1, message(100))
    assert joiner.told == [("Opened", 100), ("Snapshot", 100)]


def test_states_lost_in_a_row_are_reported() -> None:
    joiner = Joiner(nak_ncf_retries=1, nak_data_retries=1)
    for number in range(4):
        joiner.announce(100 + number, number, 10 * number + 1)
        for beat in range(2, 10):
            joiner.run(200 * MS)
            joiner.announce(100 + number, number, 10 * number + beat)
    [missing] = [effect for effect in joiner.found if isinstance(effect, NoSnapshot)]
    assert (missing.first, missing.cause) == (100, NoSnapshotCause.LOST)


def test_state_far_beyond_the_stream_is_ignored() -> None:
    joiner = Joiner()
    joiner.announce(100)
    joiner.state(0, message(1 << 30))
    assert joiner.told == []


@pytest.mark.parametrize("seed", range(4))
def test_joiner_with_hostile_packets_survives(seed: int) -> None:
    rng = random.Random(f"states of a joiner {seed}")
    drawn, joiner = Drawn(rng), Joiner(SENT)
    for _ in range(300):
        packet = drawn.packet()
        if rng.random() < 0.3:
            packet = encode(attrs.evolve(drawn.control(), tsi=STATES_TSI, data_port=STATES_PORT))
        elif rng.random() < 0.3:
            content = rng.choice((rng.randbytes(rng.randrange(40)), message(drawn.u32(), rng.randbytes(9))))
            kind = rng.choice((PacketType.ODATA, PacketType.RDATA))
            packet = data_packet(drawn.sqn(), content, tsi=STATES_TSI, data_port=STATES_PORT, kind=kind)
        joiner.hear(packet, rng.choice(PEERS))
        joiner.run(rng.choice((0, MS, 300 * MS, 4 * SECOND)))
    snapshots = [effect for effect in joiner.found if isinstance(effect, Snapshot)]
    assert all(len(one.payload) <= most_octets(joiner.core.parameters) for one in snapshots)
    assert max(size for _, size in sizes_of(joiner.core)) < 5000
