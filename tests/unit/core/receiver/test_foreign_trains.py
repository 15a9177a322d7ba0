"""Packets that are not for a node are counted one by one, also where a train of them came as one item."""

from __future__ import annotations

import random

import pytest

from aggregator.core import AggregatorCore
from pgm.core.element.setup import ElementSetup
from pgm.core.interface import Core
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.segment import Channel, Segment
from pgm.core.source.setup import SourceSetup
from pgm.core.source.source import SourceCore
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from repairer.core import RepairerCore
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import GROUP, PEER, SOURCE, data_train, nak_packet, parameters, train_of

UP = Segment(0, "up", "10.0.0.2", GROUP, upstream=True, downstream=False)
DOWN = Segment(1, "down", "10.0.1.1", GROUP, upstream=False, downstream=True)
SETUP = ElementSetup(UP, (DOWN,), parents=(SOURCE,))
OTHER = b"another!"
COUNT = 3


def core_of(role: str) -> Core:
    settings, rng = parameters(), random.Random(1)
    if role == "source":
        return SourceCore(SourceSetup(TSI, DOWN, DATA_PORT), settings, SECOND)
    if role == "receiver":
        return ReceiverCore(ReceiverSetup(UP, (SOURCE,), data_ports=frozenset((DATA_PORT,))), settings, rng)
    return AggregatorCore(SETUP, settings) if role == "aggregator" else RepairerCore(SETUP, settings, rng)


@pytest.mark.parametrize("role", ["source", "receiver", "aggregator", "repairer"])
@pytest.mark.parametrize("kind", [PacketType.NAK, PacketType.NCF])
def test_of_a_session_that_is_not_known(role: str, kind: PacketType) -> None:
    core = core_of(role)
    naks = [nak_packet(first, first + 2, tsi=OTHER, kind=kind) for first in range(0, 4 * COUNT, 4)]
    core.receive(train_of(*naks), Channel(UP if role == "receiver" else DOWN, False), PEER, SECOND)
    assert core.counters.foreign_packets == COUNT


def test_of_a_stream_that_is_not_taken() -> None:
    core = core_of("receiver")
    naks = [nak_packet(first, first + 2, data_port=DATA_PORT + 1) for first in range(0, 4 * COUNT, 4)]
    core.receive(train_of(*naks), Channel(UP, False), PEER, SECOND)
    assert core.counters.foreign_packets == COUNT


@pytest.mark.parametrize("role", ["source", "aggregator", "repairer"])
def test_data_from_below(role: str) -> None:
    core = core_of(role)
    core.receive(data_train(range(COUNT)), Channel(DOWN, True), PEER, SECOND)
    assert core.counters.foreign_packets == COUNT
