"""Means of links by formulas: they agree with the published figures, and follow the shape of the tree."""

from __future__ import annotations

from typing import Any

import pytest

from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.models.sends import sends_per_packet
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions, FeedPrediction, Offer, predict_feed
from pgm.prediction.tree import feeds_of
from pgm.prediction.waits import mean_ns, quantile_ns
from pgm.topology.load import loads
from pgm.units import MILLISECOND
from tests.sim.support.files import NO_CACHE, TreeFile, floors


def predicted(text: str, **conditions: Any) -> FeedPrediction:
    topology = loads(text)
    [feed] = feeds_of(topology)
    given = Conditions(delays=delays_of(topology, {}, ()), offer=Offer(size=1000), **conditions)
    return predict_feed(topology, feed, given)


def test_sends_of_equal_receivers_are_those_of_the_formula() -> None:
    found = predicted(floors(["3%"] * 3, [10] * 3, "1%").text)
    assert found.counts["floor-2"].sends == pytest.approx(sends_per_packet(0.03, 10), rel=1e-6)
    assert found.counts["core"].sends == pytest.approx(sends_per_packet(0.01, 3), rel=1e-6)


def test_sends_of_a_relay_without_cache_reach_the_source() -> None:
    keeping = predicted(floors(["3%"] * 3, [10] * 3, "1%").text)
    passing = predicted(floors(["3%"] * 3, [10] * 3, "1%", keeps=False).text)
    assert passing.counts["core"].sends > keeping.counts["core"].sends + 0.4
    assert passing.counts["floor-1"].sends == pytest.approx(keeping.counts["floor-1"].sends)
    assert passing.source_naks > 5 * keeping.source_naks


def test_naks_with_long_back_off_are_one_for_each_repair() -> None:
    tree = TreeFile()
    tree.segment("core", "2%")
    tree.parts.append('[segments.core.parameters]\nnak_bo_ivl = "2s"\n')
    tree.source("core")
    tree.receivers("core", 30, "source", first=50)
    counts = predicted(tree.text).counts["core"]
    # Nodes that miss the NCF are not suppressed.
    assert 1.0 < counts.naks / (counts.sends - 1) < 1.05


def test_a_repairer_takes_the_losses_of_its_segment() -> None:
    tree = TreeFile()
    tree.segment("core")
    tree.source("core")
    tree.segment("floor", "4%")
    relay = tree.relay("core", "floor", "0%", more=NO_CACHE)
    tree.receivers("floor", 10, tree.repairer("floor", relay), relay)
    counts = predicted(tree.text).counts
    assert counts["floor"].sends == pytest.approx(sends_per_packet(0.04, 11), rel=1e-6)
    assert counts["floor"].from_sender == pytest.approx(1 / (1 - 0.04), rel=1e-6)
    assert counts["core"].sends == pytest.approx(1.0417, rel=1e-2)


def test_measured_losses_replace_those_of_the_file() -> None:
    text = floors(["0%"], [4], "0%").text
    losses = {("floor-1", f"receiver-2-60-{number}"): Impairment(loss=0.1) for number in (1, 2)}
    found = predicted(text, losses=losses)
    # Nodes without a measured loss have the mean of those with one.
    assert found.counts["floor-1"].sends == pytest.approx(sends_per_packet(0.1, 4), rel=1e-6)


def test_waits_grow_with_the_round_trip() -> None:
    near, far = (predicted(floors(["2%"] * 2, [8] * 2, "1%", rtt=rtt).text).all_waits for rtt in ("1ms", "40ms"))
    assert quantile_ns(near, 0.5) < 8 * MILLISECOND < 60 * MILLISECOND < quantile_ns(far, 0.5)
    assert quantile_ns(near, 0.5) < mean_ns(near) < quantile_ns(near, 0.99)
    assert mean_ns(near) == mean_ns(predicted(floors(["2%"] * 2, [8] * 2, "1%").text).all_waits)


@pytest.mark.parametrize(("rtt", "repairs", "of_relay"), [("1ms", 1, 0.0), ("8ms", 2, 1.0)])
def test_a_repairer_that_assists_repairs_alone_or_too_late(rtt: str, repairs: int, of_relay: float) -> None:
    tree = TreeFile(rtt=rtt)
    tree.segment("core")
    tree.source("core")
    tree.segment("hall", "1%")
    relay = tree.relay("core", "hall", "0%", more='repairers = ["repairer-hall"]\n')
    tree.receivers("hall", 10, relay, tree.repairer("hall", relay))
    counts = predicted(tree.text).counts["hall"]
    once = sends_per_packet(0.01, 11) - 1
    assert counts.sends - 1 == pytest.approx(repairs * once, rel=0.02)
    assert counts.from_sender - 1 == pytest.approx(of_relay * once, abs=0.012)


def test_two_copies_of_many_rounds_are_shared_by_both_senders() -> None:
    tree = TreeFile(rtt="8ms")
    tree.segment("core")
    tree.source("core")
    tree.segment("hall", "2%")
    relay = tree.relay("core", "hall", "0%", more='repairers = ["repairer-hall"]\n')
    tree.receivers("hall", 10, relay, tree.repairer("hall", relay))
    [pattern] = [node.name for node in loads(tree.text).nodes.values() if node.is_pattern]
    counts = predicted(tree.text, counts={pattern: 1_000_000}).counts["hall"]
    assert counts.from_sender - 1 == pytest.approx((counts.sends - 1) / 2, rel=0.02)


def test_losses_beyond_all_sends_are_refused_by_name() -> None:
    with pytest.raises(UsageError) as error:
        predicted(floors(["100%"], [3], "0%").text)
    assert ("segment floor-1 loses 100%" in error.value.message, error.value.remedy[:4]) == (True, "give")


def test_relay_without_receivers_below_asks_for_nothing() -> None:
    text = floors(["3%"], [3], "1%", keeps=False).text
    [pattern] = [node.name for node in loads(text).nodes.values() if node.is_pattern]
    assert predicted(text, counts={pattern: 0}).counts["core"].sends == pytest.approx(1.0)
