"""Network elements: repairs go once, to the segments that asked (RFC 7.8)."""

from __future__ import annotations

import pytest

from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Data
from tests.rfc.bench import SOURCE, UP, A, B, Bench, C
from tests.unit.core.makers import MS, data_train, payload_of

T = PacketType


@pytest.mark.rfc("NE-30", "NE-31")
def test_a_repair_goes_to_the_segments_that_asked_and_ends_the_state():
    bench = Bench().begin()
    bench.nak(A, 5)
    bench.nak(C, 5)
    bench.ncf(5)
    bench.rdata(5)
    assert bench.where(T.RDATA) == [("a", (5,)), ("c", (5,))]
    assert all(send.to is None and send.is_data for _, send, _ in bench.sent(T.RDATA))
    bench.rdata(5)
    assert len(bench.sent(T.RDATA)) == 2
    assert bench.core.counters.rdata_unwanted == 1
    bench.nak(B, 5)  # as without an earlier request
    assert bench.where(T.NAK) == [("core", (5,)), ("core", (5,))]


@pytest.mark.rfc("NE-30")
def test_ne_repair_train_is_forwarded_per_sqn():
    bench = Bench().begin()
    bench.nak(A, 5, 6)
    bench.nak(B, 6, 7)
    bench.rdata(4, 5, 6, 7, 8)
    assert sorted(bench.where(T.RDATA)) == [("a", (5,)), ("a", (6,)), ("b", (6,)), ("b", (7,))]
    for _, _, item in bench.sent(T.RDATA):
        assert isinstance(item, Data)
        assert item.run(item.wire_sqn).payloads.tobytes() == payload_of(item.wire_sqn)
    assert bench.core.counters.rdata_unwanted == 2


@pytest.mark.rfc("NE-31")
def test_state_goes_nak_rdata_ivl_after_the_last_confirmation():
    bench = Bench(ne_nak_rdata_ivl=2 * SECOND, nak_elim_ivl=100 * MS).begin()
    bench.nak(A, 5)
    bench.ncf(5)
    bench.nak(A, 5, after=SECOND)
    bench.ncf(5)
    bench.wait(2 * SECOND - 1)
    bench.nak(B, 6)
    bench.ncf(6)
    [session] = bench.core.sessions
    assert session.elimination.repairs.sqns == 2
    bench.wait(1)
    assert session.elimination.repairs.sqns == 1
    bench.rdata(5)
    assert bench.sent(T.RDATA) == []


@pytest.mark.rfc("NE-32")
def test_ne_repair_without_state_is_discarded():
    bench = Bench().begin()
    assert bench.rdata(5, 6) == []
    assert bench.core.counters.rdata_unwanted == 2
    assert bench.core.counters.rdata_forwarded == 0


def test_ne_repair_of_the_relays_own_loss_goes_down_as_odata():
    """Nodes below never got the packet, so it is a first transmission there.

    Elements further down therefore forward it.
    """
    bench = Bench().begin(5)
    bench.hear(data_train([6]), UP, SOURCE)
    bench.wait(MS)
    assert bench.where(T.NAK) == [("core", (5,))]
    assert bench.where(T.NCF) == [("a", (5,)), ("b", (5,)), ("c", (5,))]
    bench.log.clear()
    bench.rdata(5)
    assert bench.where(T.ODATA) == [("a", (5,)), ("b", (5,)), ("c", (5,))]
    assert bench.sent(T.RDATA) == []
