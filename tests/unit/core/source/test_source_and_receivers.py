"""A source and two receivers back to back over a network that loses, repeats and reorders, in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgm.core.effects import CloseCause, Closed, Deliver, Effect, Lost, Opened, Send
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel, Segment
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import GROUP, MS, parameters

START = 1000 * SECOND


@attrs.define
class Listener:
    """What one receiver's application got."""

    messages: list[bytes] = attrs.field(factory=list)
    lost: list[Lost] = attrs.field(factory=list)
    closed: CloseCause | None = None
    opened: list[Opened] = attrs.field(factory=list)
    reassembler: Reassembler = attrs.field(factory=lambda: Reassembler(TSI, 1 << 20))


class Lan:
    """One segment: every send reaches everybody else, each with its own luck."""

    def __init__(self, settings: Parameters, first: int, seed: int, loss: float) -> None:
        self.rng = random.Random(seed)
        self.loss = loss
        self.now = START
        self._events: list[tuple[int, int, int, Train, bool, str]] = []
        self._ties = itertools.count()
        self.segments = [
            Segment(0, "lan", f"10.0.0.{1 + index}", GROUP, upstream=True, downstream=True) for index in range(3)
        ]
        self.source = SourceCore(SourceSetup(TSI, self.segments[0], DATA_PORT, first, 1), settings, START)
        self.receivers = [
            ReceiverCore(ReceiverSetup(segment), settings, random.Random(f"{seed}{segment.address}"))
            for segment in self.segments[1:]
        ]
        self.cores = [self.source, *self.receivers]
        self.listeners = [Listener() for _ in self.receivers]

    def _perform(self, index: int, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(index, effect)
            else:
                self._tell(index - 1, effect)

    def _send(self, index: int, send: Send) -> None:
        octets = send.octets if isinstance(send.octets, bytes) else send.octets.tobytes()
        for other, segment in enumerate(self.segments):
            if other == index or (send.to is not None and send.to != segment.address):
                continue
            for at in range(0, len(octets), send.stride):
                copies = 0 if self.rng.random() < self.loss else 2 if self.rng.random() < 0.02 else 1
                for _ in range(copies):
                    delay = MS // 5 + (self.rng.randrange(3 * MS) if self.rng.random() < 0.05 else 0)
                    packet = Train.of(octets[at : at + send.stride])
                    arrival = (self.now + delay, next(self._ties), other, packet, send.to is None)
                    heapq.heappush(self._events, (*arrival, self.segments[index].address))

    def _tell(self, index: int, effect: Effect) -> None:
        listener = self.listeners[index]
        if isinstance(effect, Deliver):
            for found in listener.reassembler.add(effect.run):
                if isinstance(found, WholeMessages):
                    listener.messages += [row.tobytes() for row in found.payloads]
                elif isinstance(found, LargeMessage):
                    listener.messages.append(found.payload)
                else:
                    listener.lost.append(found)
            self._perform(index + 1, list(self.receivers[index].grant(effect.run.octets)))
        elif isinstance(effect, Lost):
            listener.lost += listener.reassembler.add_lost(effect)
        elif isinstance(effect, Closed):
            listener.closed = effect.cause
        elif isinstance(effect, Opened):
            listener.opened.append(effect)

    def run(self, until: int) -> None:
        """Everything that happens up to an instant."""
        while True:
            deadlines = [max(self.now, core.deadline_ns) for core in self.cores]
            arrival = self._events[0][0] if self._events else NEVER
            following = min(arrival, *deadlines)
            if following > until:
                self.now = until
                return
            self.now = following
            if arrival == following:
                _, _, index, packet, is_group, peer = heapq.heappop(self._events)
                channel = Channel(self.segments[index], is_group)
                self._perform(index, list(self.cores[index].receive(packet, channel, peer, self.now)))
            else:
                index = deadlines.index(following)
                self._perform(index, list(self.cores[index].handle_deadline(self.now)))


SETTINGS = parameters(
    max_tpdu=200,
    txw_max_rte=1_000_000,
    txw_secs=10 * SECOND,
    rdata_share=0.5,
    fin_quiet_ivl=SECOND,
    nak_ncf_retries=200,
    nak_data_retries=200,
)


@pytest.mark.rfc("RCV-06", "RCV-07", "RCV-09", "SRC-42", "SRC-47")
@given(
    seed=st.integers(0, 1 << 30),
    loss=st.sampled_from([0.0, 0.02, 0.2]),
    first=st.sampled_from([0, (1 << 32) - 30, 3 << 32]),
    sizes=st.lists(st.integers(0, 900), min_size=4, max_size=40),
)
@settings(max_examples=settings.default.max_examples // 2)
def test_every_message_arrives_whole_and_in_order(seed, loss, first, sizes):
    """Everything together, losses both ways, across the wrap."""
    lan = Lan(SETTINGS, first, seed, loss)
    messages = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    lan.run(START + 10 * MS)
    for number, message in enumerate(messages):
        lan.source.submit([message])
        if number % 3 == 0:
            lan.run(lan.now + 4 * MS)
    lan.source.close()
    # As a process would: until nobody asks any more, and not before all of it has been heard of.
    while not lan.source.is_finished(lan.now):
        lan.run(lan.now + 100 * MS)
    for listener, receiver in zip(lan.listeners, lan.receivers, strict=True):
        assert listener.lost == []
        assert listener.messages == messages
        assert listener.closed is CloseCause.FIN
        assert [opened.first % (1 << 32) for opened in listener.opened] == [first % (1 << 32)]
        counters = receiver.counters
        assert counters.late_sqns + counters.repaired_sqns == counters.missing_sqns
        assert counters.delivered_packets == counters.received_packets == lan.source.counters.odata_packets


@pytest.mark.rfc("RCV-34", "SRC-43")
def test_one_nak_serves_both_receivers():
    """What both lost is asked for about once and repaired once."""
    lan = Lan(SETTINGS, 0, 1, 0.0)
    lan.run(START + 10 * MS)
    lan.source.submit([b"before"])
    lan.run(START + 50 * MS)
    lan.loss = 1.0
    lan.source.submit([bytes(100)] * 20)
    lan.run(START + 60 * MS)
    lan.loss = 0.0
    lan.source.submit([b"behind"])
    lan.run(START + 400 * MS)
    assert [len(listener.messages) for listener in lan.listeners] == [22, 22]
    assert lan.source.counters.rdata_packets == 20
    assert sum(receiver.counters.nak_packets for receiver in lan.receivers) <= 2


@pytest.mark.parametrize("outage", [1, 6])
def test_an_outage_loses_nothing_that_the_window_still_has(outage):
    """Covers design section 1: shorter than TXW_SECS, longer than all retries."""
    settings = attrs.evolve(SETTINGS, nak_ncf_retries=5, nak_data_retries=5, stall_ivl=500 * MS, peer_expiry=3 * SECOND)
    lan = Lan(settings, 0, 1, 0.0)
    lan.run(START + 10 * MS)
    for number in range(20):
        lan.source.submit([bytes([number])])
        lan.run(lan.now + 10 * MS)
        if number == 4:
            lan.loss = 1.0
        if number == 14:
            lan.run(lan.now + outage * SECOND)
            lan.loss = 0.0
    lan.run(lan.now + 3 * SECOND)
    for listener in lan.listeners:
        assert listener.lost == []
        assert listener.messages == [bytes([number]) for number in range(20)]


@pytest.mark.rfc("RCV-01", "RCV-02", "SRC-31")
def test_a_late_joiner_gets_what_follows():
    lan = Lan(SETTINGS, 0, 1, 0.0)
    late = lan.receivers.pop()
    lan.cores.pop()
    segment = lan.segments.pop()
    for number in range(100):
        lan.source.submit([bytes([number])])
        lan.run(lan.now + 30 * MS)
    lan.cores.append(late)
    lan.receivers.append(late)
    lan.segments.append(segment)
    for number in range(100, 150):
        lan.source.submit([bytes([number])])
        lan.run(lan.now + 30 * MS)
    early, joined = lan.listeners
    assert early.messages == [bytes([number]) for number in range(150)]
    assert 0 < len(joined.messages) <= 50
    assert joined.messages == early.messages[-len(joined.messages) :]
    assert late.counters.nak_packets == 0
