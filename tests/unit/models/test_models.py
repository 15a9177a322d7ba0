"""The formulas give the published figures, and agree with each other at their edges."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from pgm.errors import UsageError
from pgm.models.back_off import exponential_naks, rate_of, uniform_naks
from pgm.models.latency import RepairPath, latency_quantiles, mean_latency
from pgm.models.parity import parity_packets_per_group, sends_with_parity
from pgm.models.pgmcc import window_rate
from pgm.models.sends import (
    naks_with_suppression,
    naks_without_suppression,
    repairs_per_packet,
    sends_per_packet,
    share_at_source,
)
from pgm.models.tree import LinkFigures, ModelLink, ModelNode, link_figures


@pytest.mark.parametrize(("nodes", "sends"), [(1, 1.010), (100, 1.644), (10**4, 2.642), (10**6, 3.642)])
def test_sends_per_packet_has_the_published_figures(nodes: int, sends: float) -> None:
    assert sends_per_packet(0.01, nodes) == pytest.approx(sends, abs=5e-4)
    assert naks_with_suppression(0.01, nodes) == pytest.approx(sends - 1, abs=5e-4)
    assert naks_without_suppression(0.01, nodes) == pytest.approx(nodes / 99)


def test_sends_per_packet_takes_losses_of_each_node() -> None:
    assert sends_per_packet([0.01] * 100) == pytest.approx(sends_per_packet(0.01, 100))
    assert sends_per_packet([0.02, 0.3], [7, 0]) == pytest.approx(sends_per_packet(0.02, 7))
    mixed = sends_per_packet([0.01, 0.2], [100, 1])
    assert sends_per_packet(0.01, 100) < mixed < sends_per_packet(0.2, 101)
    by_hand = sum(1 - (1 - 0.01**m) ** 100 * (1 - 0.2**m) for m in range(40))
    assert mixed == pytest.approx(by_hand)
    assert sends_per_packet(1.0) == naks_without_suppression(1.0) == math.inf
    assert sends_per_packet(0.0, 10**6) == 1.0
    with pytest.raises(UsageError, match="no share"):
        sends_per_packet(1.5)


@pytest.mark.parametrize(("group", "sends"), [(7, 1.558), (20, 1.256), (100, 1.090)])
def test_sends_with_parity_has_the_published_figures(group: int, sends: float) -> None:
    assert sends_with_parity(0.01, 10**6, group=group) == pytest.approx(sends, abs=5e-4)


def test_parity_of_groups_of_one_equals_repairs() -> None:
    assert parity_packets_per_group(0.05, 30, group=1) == pytest.approx(repairs_per_packet(0.05, 30))
    few, more = (parity_packets_per_group(0.05, 30, group=32, unasked=one) for one in (0, 2))
    assert few < more < few + 2
    assert parity_packets_per_group(0.0, 30, group=32, unasked=2) == 2.0


def test_back_off_has_the_published_naks() -> None:
    assert uniform_naks(10**4, 0.25) == pytest.approx(2501)
    assert exponential_naks(10**4, 0.25) == pytest.approx(17.2, abs=0.05)
    for naks in (uniform_naks, exponential_naks):
        assert naks(1, 0.25) == pytest.approx(1.0)
        assert naks(50, 1.0) == pytest.approx(50)
        assert naks(50, 0.0) == pytest.approx(1.0)
        assert naks(0, 0.25) == 0.0


def test_back_off_equals_the_mean_of_draws() -> None:
    rng, nodes, silence, group = random.Random(1), 200, 0.1, 1000
    rate = rate_of(group)
    found = []
    for _ in range(2000):
        draws = np.sort([math.log1p(rng.random() * math.expm1(rate)) / rate for _ in range(nodes)])
        found.append(int((draws < draws[0] + silence).sum()))
    assert np.mean(found) == pytest.approx(exponential_naks(nodes, silence, group), rel=0.05)


def subnets(*, keeps: bool) -> tuple[LinkFigures, ...]:
    tail = ModelLink("tail", (ModelNode(0.04, 1000),), keeps=keeps)
    return link_figures(ModelLink("core", (ModelNode(0.002, 1000, below=tail),)))


def test_tree_with_repairers_pays_each_link_alone() -> None:
    core, tail = subnets(keeps=True)
    assert core.sends == pytest.approx(1.87, abs=5e-3)
    assert tail.sends == pytest.approx(2.86, abs=5e-3)
    assert (tail.count, tail.nodes) == (1000, 1000)
    assert core.naks == pytest.approx(1000 * 0.002 / 0.998)
    assert core.requests == pytest.approx(core.sends - 1)


def test_tree_without_repairers_pays_all_at_the_source() -> None:
    core, tail = subnets(keeps=False)
    assert sends_per_packet(0.04, 10**6) == pytest.approx(5.02, abs=5e-3)  # without the losses of the uplinks
    assert core.sends == pytest.approx(5.08, abs=5e-3)
    assert core.requests == pytest.approx(core.sends - 1)
    assert tail.sends == pytest.approx(2.86, abs=5e-3)
    assert core.naks > 1000


def test_tree_of_lossless_uplinks_equals_one_link() -> None:
    tail = ModelLink("tail", (ModelNode(0.04, 10),), keeps=False)
    core, _ = link_figures(ModelLink("core", (ModelNode(0.0, 7, below=tail),)))
    assert core.sends == pytest.approx(sends_per_packet(0.04, 70))


def test_repairers_of_a_link_leave_their_common_losses() -> None:
    [lone] = link_figures(ModelLink("lan", (ModelNode(0.05, 8), ModelNode(0.05, is_repairer=True))))
    assert lone.requests / repairs_per_packet(0.05, 8) == pytest.approx(share_at_source(0.05, 8))
    assert lone.sends == pytest.approx(sends_per_packet(0.05, 9))
    [pair] = link_figures(ModelLink("lan", (ModelNode(0.05, 8), ModelNode(0.05, 2, is_repairer=True))))
    assert pair.requests == pytest.approx(0.0025 / 0.9975)


def test_tree_refuses_a_path_that_loses_nearly_all() -> None:
    with pytest.raises(UsageError, match="loses 99"):
        link_figures(ModelLink("lan", (ModelNode(0.999),)))


def test_rates_fall_with_round_trip_and_root_of_loss() -> None:
    draws = np.random.default_rng(1).exponential(size=(20, 100_000))
    squares = 2 * (draws * 4.0 ** -np.arange(20)[:, None]).sum(axis=0)  # of W, for p = 1
    assert window_rate(0.1, 0.01) == pytest.approx((10 / np.mean(squares**-0.5) - 0.5) / 0.1, rel=0.01)
    assert window_rate(0.2, 0.01) == pytest.approx(window_rate(0.1, 0.01) / 2)
    assert window_rate(0.1, 0.0) == math.inf


def test_latency_has_the_mean_and_the_shares_of_rounds() -> None:
    path = RepairPath(detection_s=0.001, back_off_s=0.01, round_trip_s=0.002, retry_s=0.1, loss=0.02, askers=3)
    shares = (np.arange(2000) + 0.5) / 2000
    assert np.mean(latency_quantiles(path, list(shares))) == pytest.approx(mean_latency(path), rel=0.01)
    median, late, latest = latency_quantiles(path, (0.5, 0.97, 0.99))
    assert 0.003 < median < late < 0.013 < 0.1 < latest < 0.13
    fixed = RepairPath(detection_s=0.001, back_off_s=0.0, round_trip_s=0.002)
    assert latency_quantiles(fixed, (0.01, 0.99)) == pytest.approx((0.003, 0.003))
