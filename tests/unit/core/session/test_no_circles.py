"""What holds views of a train must go when its session goes: objects in a circle wait for the collector, and chunks with them."""

from __future__ import annotations

import gc
import random
import weakref

import pytest

from aggregator.session import AggregatorSession
from pgm.core.counters import Counters
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.polling.poll_responder import NodeId
from pgm.core.receiver.session import ReceiverSession
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.window.receive_window import DeliveryBudget
from pgm.units import SECOND
from pgm.wire.options import Join, ParityPrm
from repairer.cache import RepairCache
from repairer.parity_session import ParitySession
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import PEER, SEGMENT, parameters, spm_packet

SETTINGS = parameters(poll_ivl=SECOND, poll_dlr_ivl=SECOND, nak_bo_tuning="polls", dup_nak_max=3)
RNG = random.Random(1)
NODE_ID = NodeId(RNG)
SETUP = ElementSetup(SEGMENT, (SEGMENT,))


def receiver():
    return ReceiverSession(
        TSI, DATA_PORT, ReceiverSetup(SEGMENT), DeliveryBudget(1), SETTINGS, RNG, NODE_ID, Counters()
    )


def repairer():
    cache, pacers = RepairCache(SETTINGS).open_session(), [Pacer(SETTINGS)]
    return ParitySession(TSI, DATA_PORT, SETUP, cache, pacers, SETTINGS, RNG, NODE_ID, Counters())


def aggregator():
    return AggregatorSession(spm_packet(1, 0, 0), SETUP, SETTINGS, RNG, NODE_ID, Counters())


def with_parity(made, now=SECOND):
    made.on_spm(spm_packet(1, 0, 0, ParityPrm(8, on_demand=True), Join(0)), PEER, now)
    return made


@pytest.mark.parametrize(
    "make", [receiver, repairer, aggregator, lambda: with_parity(receiver()), lambda: with_parity(repairer())]
)
def test_a_session_goes_at_once(make):
    gc.disable()
    try:
        made = make()
        alive = weakref.ref(made)
        del made
        assert alive() is None
    finally:
        gc.enable()
