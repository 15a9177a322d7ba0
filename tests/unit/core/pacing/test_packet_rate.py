"""The rate in packets a second, beside the one in octets: data, repairs and SPMs together."""

import pytest

from pgm.core.effects import Send
from pgm.units import SECOND
from tests.unit.core.makers import MS, payload_of
from tests.unit.core.source.sources import QUIET, START, all_effects, nak, receive, run, source

PPS = 1000
BURST = 10 * MS


def departures(log):
    """(time, packets) of everything that left but NCFs, which are never paced."""
    sends = [(now, one) for now, effects in log for one in effects if isinstance(one, Send)]
    return [(now, len(one.octets) // one.stride) for now, one in sends if one.is_data]


def assert_within(sent, rate, burst_ns):
    for index, (begun, _) in enumerate(sent):
        total = 0
        for now, packets in sent[index:]:
            total += packets
            assert total <= rate * burst_ns // SECOND + rate * (now - begun) / SECOND + 1


def test_small_packets_are_limited_by_their_number():
    core = source(**QUIET, txw_max_pps=PPS, txw_burst_ivl=BURST)
    core.submit([payload_of(sqn) for sqn in range(3000)])
    sent = departures(run(core, START + 2 * SECOND))
    assert_within(sent, PPS, BURST)
    total = sum(packets for _, packets in sent)
    assert 0.98 * 2 * PPS <= total <= 1.02 * 2 * PPS + 10
    assert max(packets for _, packets in sent) > 1  # trains, not a call for each packet


def test_without_a_limit_of_their_own_packets_go_by_octets():
    core = source(**QUIET)
    core.submit([payload_of(sqn) for sqn in range(3000)])
    assert sum(packets for _, packets in departures(run(core, START + SECOND))) == 3000


@pytest.mark.parametrize("pps", [1, 7])
def test_a_packet_always_leaves_in_the_end(pps):
    core = source(**QUIET, txw_max_pps=pps, txw_secs=3600 * SECOND)
    core.submit([payload_of(sqn) for sqn in range(5)])
    run(core, START + 10 * SECOND)
    assert not core.window.has_unsent


def test_repairs_count_against_it():
    """A thousand packets wait while as many are asked for again: both together keep to the limit, repairs to a quarter."""
    core = source(**QUIET, txw_max_pps=PPS, txw_burst_ivl=BURST, rdata_hold_ivl=MS)
    core.submit([payload_of(sqn) for sqn in range(1000)])
    first = run(core, START + SECOND + 50 * MS)
    assert core.window.lead == 999
    core.submit([payload_of(sqn) for sqn in range(1000)])
    for begun in range(0, 500, 50):
        receive(core, nak(*range(begun, begun + 50)), START + SECOND + 50 * MS)
    log = run_from(core, START + SECOND + 50 * MS, START + 2 * SECOND + 100 * MS)
    sent = departures(log)
    assert_within([*departures(first), *sent], PPS, BURST)
    assert core.counters.rdata_packets == 500
    assert all_effects(log)


def run_from(core, begun, until):
    log, now = [], begun
    while (now := max(now, core.deadline_ns)) <= until:
        log.append((now, core.handle_deadline(now)))
    return log
