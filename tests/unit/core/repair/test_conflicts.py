"""Elements neither cache nor serve a packet of which two different copies came."""

from __future__ import annotations

import pytest

from pgm.core.effects import Notice
from pgm.core.repair.cache import RepairCache
from pgm.units import SECOND
from pgm.wire.formats import PacketType
from pgm.wire.train import Run, Train
from tests.reference import data_packet
from tests.rfc.bench import SOURCE, UP, A, Bench
from tests.unit.core.makers import MS, data_train, ncf_packet, payload_of, run_of

T = PacketType
KINDS = ("aggregator", "repairer")


def forged(sqn, payload=b"what a liar says", **changes):
    return Train.of(data_packet(sqn, payload[:12], **changes))


def bench_of(kind):
    return Bench(kind, relay_cache_ivl=10 * SECOND)


def served(bench, *kinds):
    """Sqn and payload of each single repair, and of each packet of other kinds that went down."""
    sent = [item for kind in kinds or (T.RDATA,) for _, _, item in bench.sent(kind)]
    return {(item.wire_sqn, item.run(0).alone()) for item in sent if item.count == 1}


def asked(bench):
    return [item.sqns for _, send, item in bench.sent(T.NAK) if send.segment == UP]


@pytest.mark.parametrize("kind", KINDS)
def test_attacker_20_ahead_fills_no_cache(kind):
    """The forged packet comes first, the true one later: a child gets no repair from the cache, but the true one."""
    bench = bench_of(kind).begin(20)
    bench.hear(forged(39), UP, SOURCE)
    bench.hear(data_train(range(20, 39)), UP, SOURCE, after=MS)
    [*_, notice] = [e for e in bench.hear(data_train([39]), UP, SOURCE, after=MS) if isinstance(e, Notice)]
    assert notice.code == "conflict"
    bench.nak(A, 39, after=MS)
    bench.wait(100 * MS)
    assert [39] in [list(sqns) for sqns in asked(bench)]
    assert served(bench) == set()
    bench.log.clear()
    bench.hear(ncf_packet(39, source_nla=SOURCE, group_nla=UP.group), UP, SOURCE)
    bench.hear(data_train([39], kind=T.RDATA), UP, SOURCE, after=MS)
    bench.wait(100 * MS)
    assert served(bench, T.RDATA, T.ODATA) == {(39, payload_of(39))}
    assert bench.core.counters.conflict_sqns == 1


@pytest.mark.parametrize("kind", KINDS)
def test_second_conflict_bars_a_sqn_from_the_cache(kind):
    bench = bench_of(kind).begin(20)
    for payload in (b"first forgery", b"second forgery", b"third forgery"):
        bench.hear(forged(10, payload), UP, SOURCE, after=MS)
        bench.hear(data_train([10], kind=T.RDATA), UP, SOURCE, after=MS)
    bench.log.clear()
    bench.wait(SECOND)
    bench.nak(A, 10)
    bench.wait(SECOND)
    assert served(bench) == set()
    assert bench.core.counters.conflict_sqns >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_conflict_after_a_nak_stops_the_repair(kind):
    """The repair is owed, and then its packet proves doubtful."""
    bench = bench_of(kind).begin(20)
    bench.nak(A, 10)
    bench.hear(forged(10), UP, SOURCE)
    bench.wait(100 * MS)
    assert (10, b"what a liar ") not in served(bench)


@pytest.mark.parametrize("kind", KINDS)
def test_conflicts_are_reported_ever_more_seldom(kind):
    bench = bench_of(kind).begin(100)
    notices = [
        effect for sqn in range(100) for effect in bench.hear(forged(sqn), UP, SOURCE) if isinstance(effect, Notice)
    ]
    assert bench.core.counters.conflict_sqns == 100
    assert 5 <= len(notices) <= 8


@pytest.mark.parametrize("kind", KINDS)
def test_same_copies_stay_in_the_cache(kind):
    bench = bench_of(kind).begin(20)
    bench.hear(data_train(range(20), kind=T.RDATA, trail=5), UP, SOURCE)
    bench.nak(A, 10)
    bench.wait(100 * MS)
    assert served(bench) == {(10, payload_of(10))}
    assert bench.core.counters.conflict_sqns == 0


def test_packet_in_conflict_does_not_survive_a_restart():
    """The octets of the cache file change, so the CRC of its record is wrong; a run that is not saved yet is cut."""
    cache = RepairCache(1 << 20, SECOND).open_session()
    cache.save()
    run = run_of(10, 5)
    run = Run(run.first, run.count, run.buffer.copy(), run.offset, run.stride, run.payload_at)
    before = run.rows.tobytes()
    cache.add(run, 0)
    cache.drop(12, 13)
    assert run.rows.tobytes() != before
    assert [(part.first, part.end) for part in cache.take_unsaved()] == [(10, 12), (13, 15)]
    assert cache.lacking([(10, 15)]) == [(12, 13)]
