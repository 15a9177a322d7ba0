"""Relays that keep what they passed down, and repair losses below themselves."""

from __future__ import annotations

import pytest

from pgm.core.element.setup import ElementSetup
from pgm.core.in_place import Neighbours
from pgm.units import MIB, SECOND
from pgm.wire.formats import PacketType
from tests.rfc.bench import EXACT, LAN, SOURCE, UP, A, B, Bench
from tests.unit.core.makers import MS, data_train, parameters

T = PacketType
LOCAL = "10.1.0.7"  # a repairer of segment A


def relay(**changes: object) -> Bench:
    """Return a relay that has passed down sqns 0 to 19, and keeps packets for a second."""
    return Bench(**{"relay_cache_ivl": SECOND, **changes}).begin()


def test_relay_cache_repairs_packets_without_request_above() -> None:
    node = relay()
    node.nak(A, 5, 6, 9)
    node.wait(MS)
    assert node.where(T.NCF) == [("a", (5, 6, 9))]
    assert node.where(T.RDATA) == [("a", (5, 6)), ("a", (9,))]
    assert node.sent(T.NAK) == []


def test_relay_cache_asks_above_for_what_never_came() -> None:
    """The NAK that goes up names the other packets alone, and their repair goes to the segment that asked."""
    node = relay(reorder_ivl=10 * SECOND)
    node.hear(data_train([22]), UP, SOURCE)
    node.log.clear()
    node.nak(A, 5, 20, 22)
    node.wait(MS)
    assert node.where(T.NCF) == [("a", (5, 20, 22))]
    assert node.where(T.RDATA) == [("a", (5,)), ("a", (22,))]
    assert node.where(T.NAK) == [("core", (20,))]


def test_relay_cache_keeps_repairs_too() -> None:
    """A packet that the relay recovered for one segment repairs the next loss of the packet."""
    node = relay()
    node.hear(data_train([21]), UP, SOURCE)
    node.rdata(20)
    node.log.clear()
    node.nak(B, 20)
    node.wait(MS)
    assert node.where(T.RDATA) == [("b", (20,))]
    assert node.sent(T.NAK) == []


@pytest.mark.parametrize("changes", [{"relay_cache_ivl": 0}, {}], ids=["off", "too old"])
def test_relay_cache_without_the_packet_forwards_the_nak(changes: dict[str, object]) -> None:
    node = relay(**changes)
    node.wait(2 * SECOND)
    node.hear(data_train([20]), UP, SOURCE)
    node.log.clear()
    node.nak(A, 5)
    node.wait(MS)
    assert (node.where(T.NAK), node.sent(T.RDATA)) == ([("core", (5,))], [])


def test_relay_cache_is_bounded_in_octets() -> None:
    node = relay(relay_cache_bytes=MIB)
    for first in range(20, 4000, 20):
        node.hear(data_train(range(first, first + 20), size=1400), UP, SOURCE)
    [session] = node.core.status(node.now)
    assert 0 < session.held_octets <= MIB


def test_relay_cache_on_lan_is_empty() -> None:
    """Data reaches all nodes of the segment without the aggregator, which then leaves repairs to others."""
    node = Bench(setup=ElementSetup(LAN, (LAN,), parents=(SOURCE,)), relay_cache_ivl=SECOND).begin()
    node.nak(LAN, 5, peer="10.0.0.9")
    node.wait(MS)
    assert (node.where(T.NAK), node.sent(T.RDATA)) == ([("lan", (5,))], [])


def test_relay_cache_leaves_a_repair_to_the_repairer_that_sent_it() -> None:
    setup = ElementSetup(UP, (A, B), parents=(SOURCE,), repairers=((LOCAL,), ()))
    node = Bench(setup=setup, relay_cache_ivl=SECOND, rdata_hold_ivl=10 * MS, rdata_ignore_ivl=SECOND).begin()
    node.nak(A, 5)
    node.hear(data_train([5], kind=T.RDATA), A, LOCAL, after=MS)
    node.wait(SECOND // 2)
    assert node.sent(T.RDATA) == []
    assert node.sent(T.NAK) == []


def test_relay_cache_repairs_take_what_forwarded_repairs_leave() -> None:
    """Repairs from above are forwarded at once, and charged to the segment's share."""
    node = relay(txw_max_rte=40_000, rdata_share=0.25)
    node.wait(2 * SECOND)
    node.hear(data_train(range(20, 40)), UP, SOURCE)
    node.nak(A, *range(20))
    node.log.clear()
    node.hear(data_train(range(20), kind=T.RDATA, size=1400), UP, SOURCE)
    began = node.now
    node.nak(A, 25)
    node.nak(B, 26)
    node.wait(5 * SECOND)
    assert node.where(T.RDATA)[0] == ("a", tuple(range(20)))
    later = {(send.segment.name, item.wire_sqn): at - began for at, send, item in node.sent(T.RDATA)[1:]}
    assert later["b", 26] < 10 * MS
    assert later["a", 25] > 2 * SECOND  # 28 kB at 10 kB/s


def test_relay_cache_repairs_at_the_rate_of_a_changed_file() -> None:
    """28 kB at 10 kB/s, the rate of the start, take seconds."""
    node = relay(txw_max_rte=40_000, rdata_share=0.25)
    node.hear(data_train(range(20, 40), size=1400), UP, SOURCE)
    faster = EXACT | {"relay_cache_ivl": SECOND, "txw_max_rte": 4_000_000, "rdata_share": 0.5}
    node.core.change(Neighbours(), parameters(**faster), node.now)
    node.log.clear()
    node.nak(A, *range(20, 40))
    node.wait(50 * MS)
    assert sum(len(sqns) for _, sqns in node.where(T.RDATA)) == 20


def test_relay_cache_waits_for_the_repairers_of_a_changed_file() -> None:
    setup = ElementSetup(UP, (A, B), parents=(SOURCE,), repairers=((LOCAL,), ()))
    node = Bench(setup=setup, relay_cache_ivl=SECOND, rdata_hold_ivl=10 * MS).begin()
    now = Neighbours(parents=(SOURCE,), repairers=((LOCAL, "10.1.0.8"), ()))
    node.core.change(now, parameters(**EXACT | {"relay_cache_ivl": SECOND, "rdata_hold_ivl": 20 * MS}), node.now)
    began = node.now
    node.nak(A, 5)
    node.wait(SECOND // 2)
    assert [at - began for at, _, _ in node.sent(T.RDATA)] == [60 * MS]


def test_relay_cache_counts_what_it_lacked_and_refuses_a_jump() -> None:
    """RDATA far ahead of the window is no packet of the session: it is neither kept nor forwarded."""
    node = relay(rxw_sqns=1000)
    node.rdata(5000)
    assert node.core.counters.jumps_rejected == 1
    node.hear(data_train([22]), UP, SOURCE)
    node.nak(A, 5, 20, 21)
    assert node.core.counters.cache_misses == 2


def test_relay_cache_asks_above_for_what_the_relay_has_lost() -> None:
    """No repairer below can have a packet that was never sent down, and a dead one would hold up the request."""
    setup = ElementSetup(UP, (A, B), parents=(SOURCE,), repairers=((LOCAL,), ()))
    node = Bench(setup=setup, relay_cache_ivl=SECOND).begin()
    node.hear(data_train([22]), UP, SOURCE)
    node.wait(SECOND // 2)
    node.ncf(20, 21)
    node.nak(A, 20, after=5 * SECOND)
    assert node.where(T.NAK)[-1] == ("core", (20,))
