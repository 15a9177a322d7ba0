"""What holds views of a train must go when its session goes: objects in a circle wait for the collector, and chunks with them."""

from __future__ import annotations

import gc
import weakref

import pytest

from aggregator.relay_cache import RelayCaches
from aggregator.session import AggregatorSession
from pgm.core.element.setup import ElementSetup
from pgm.core.pacing.pacer import Pacer
from pgm.core.receiver.session import ReceiverSession
from pgm.core.receiver.setup import ReceiverSetup
from pgm.core.repair.cache import RepairCache
from pgm.core.window.receive_window import DeliveryBudget
from pgm.units import SECOND
from pgm.wire.options import Join, ParityPrm
from repairer.session import RepairerSession
from tests.unit.core.makers import PEER, SEGMENT, parameters, session_context, spm_packet

SETTINGS = parameters(poll_ivl=SECOND, poll_dlr_ivl=SECOND, nak_bo_tuning="polls", dup_nak_max=3)
SETUP = ElementSetup(SEGMENT, (SEGMENT,))


def receiver():
    return ReceiverSession(session_context(SETTINGS), ReceiverSetup(SEGMENT), DeliveryBudget(1), begun_ns=SECOND)


def repairer():
    cache, pacers = RepairCache(SETTINGS.cache_bytes, SETTINGS.cache_secs).open_session(), [Pacer(SETTINGS)]
    return RepairerSession(session_context(SETTINGS), SETUP, cache, pacers)


def aggregator():
    context = session_context(SETTINGS)
    return AggregatorSession(context, SETUP, RelayCaches(SETUP, SETTINGS).open_session(context))


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
