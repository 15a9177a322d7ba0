"""Congestion control beside TCP on one line, and with one worse receiver."""

import pytest

from tests.sim.figures.fairness import congestion_of, run


@pytest.mark.rfc("SRC-16")
@pytest.mark.parametrize("flows", [1, 3])
def test_a_stream_is_fair_to_tcp(flows):
    """The stream is within a factor of two of TCP either way, and the line is used.

    This factor is the usual meaning of TCP-friendly.
    """
    outcome = run(flows, 30)
    assert 0.5 <= outcome.share(10, 30) <= 2
    used = sum(outcome.stream[100:]) + sum(sum(one[100:]) for one in outcome.tcp)
    assert outcome.world.core_of("source").counters.ackers_distrusted == 0
    assert used / 200 >= 0.85 * 1_250_000


def test_alone_it_takes_the_line():
    outcome = run(0, 15)
    assert sum(outcome.stream[50:]) / 100 >= 0.85 * 1_250_000


def test_the_receiver_with_the_worst_path_becomes_the_acker():
    """The source gets reports and no NAKs of the receiver with the worst path.

    The relay of its segment repairs its losses.
    """
    outcome = run(0, 20, worse=0.03)
    worst = outcome.world.nodes["receiver-2"].attachments[0].segment.address
    assert congestion_of(outcome.world).acker == worst
    assert outcome.world.core_of("source").counters.ackers_distrusted == 0
    # Over 40 ms with 3 % TCP would reach at most 1.2 / (RTT sqrt(p)) packets a second.
    assert sum(outcome.stream[100:]) / 100 <= 1.3 * 1.22 / (0.04 * 0.03**0.5) * 1400
