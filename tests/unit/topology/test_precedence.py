"""Precedence of the levels of the file, and the reported reason of each value."""

from __future__ import annotations

import pytest

from pgm.parameters import PROFILES, ROWS, Parameters, ProfileInputs
from pgm.topology.plan import plan_node
from pgm.units import GIB, MIB, MILLISECOND, SECOND
from tests.unit.topology.trees import GOOD, changed, line_of, topology

TOP = 'name = "good"'
WINDOW = 'window = "10s"'
FLOOR = 'interface = "10.0.1.0/24"'
DESK = "count = 4"
NESTED = {"exchange": 3, "core-repairer": 2, "relay": 1, "floor-repairer": 0, "desk-1": 0}  # tiers of elements below


def value_and_reason(text: str, node: str, key: str) -> tuple[object, str]:
    plan = plan_node(topology(text=text), node)
    return getattr(plan.parameters, key), dict(plan.reasons).get(key, "default")


def levels() -> list[tuple[str, str, int]]:
    """Return the levels from weak to strong: anchor, line to insert, and the value in ms."""
    return [
        (TOP, 'rtt = "5ms"', 20),
        (TOP, 'parameters = { nak_bo_ivl = "31ms" }', 31),
        (WINDOW, 'parameters = { nak_bo_ivl = "32ms" }', 32),
        (FLOOR, 'parameters = { nak_bo_ivl = "33ms" }', 33),
        (DESK, 'parameters = { nak_bo_ivl = "34ms" }', 34),
    ]


@pytest.mark.parametrize("count", range(6))
def test_each_level_overrides_those_before_it(count: int):
    text = GOOD
    for anchor, line, _ in reversed(levels()[:count]):  # a later insertion at an anchor stands above the earlier ones
        text = changed((anchor, f"{anchor}\n{line}"), text=text)
    expected = 10 if count == 0 else levels()[count - 1][2]
    reasons = [
        "default",  # the default is computed by the profile
        "profile lan, rtt 5ms",
        "file line {}",
        "stream quotes line {}",
        "segment floor line {}",
        "node desk-* line {}",
    ]
    line = line_of(text, f'"{expected}ms"') if count > 1 else 0
    assert value_and_reason(text, "desk-1", "nak_bo_ivl") == (expected * MILLISECOND, reasons[count].format(line))


def test_every_value_that_is_not_the_default_has_a_reason():
    head = f'{TOP}\nprofile = "wan"\nrtt = "90ms"\nparameters = {{ gso = false, so_rcvbuf = "1MiB" }}'
    for node in ("exchange", "core-repairer", "relay", "desk-1"):
        plan = plan_node(topology((TOP, head)), node)
        told = dict(plan.reasons)
        assert list(told) == [key for key in ROWS if getattr(plan.parameters, key) != ROWS[key].default]


def test_profile_gives_what_it_computes():
    plan = plan_node(topology((TOP, f'{TOP}\nprofile = "wan"\nrtt = "90ms"\nrepair_budget = "60s"')), "desk-2")
    inputs = ProfileInputs(rtt=90 * MILLISECOND, repair_budget=60 * SECOND)
    assert plan.parameters == Parameters(**PROFILES["wan"](inputs) | {"txw_max_rte": 50_000_000})


def test_window_and_rate_are_the_sources():
    for written, key, value in (
        ('"7s"', "txw_secs", 7 * SECOND),
        ('"256MiB"', "txw_bytes", 256 * MIB),
        ("999", "txw_sqns", 999),
    ):
        text = changed(('"10s"', written))
        line = line_of(text, "window = ")
        assert value_and_reason(text, "exchange", key) == (value, f"stream quotes window, line {line}")
        assert value_and_reason(text, "relay", key) == (ROWS[key].default, "default")
    line = line_of(GOOD, "rate = ")
    assert value_and_reason(GOOD, "exchange", "txw_max_rte") == (50_000_000, f"stream quotes rate, line {line}")


def test_a_short_window_has_short_increments():
    """A default increment shrinks to fit a short window."""
    assert value_and_reason(changed(('"10s"', '"200ms"')), "exchange", "txw_adv_secs")[0] == 20 * MILLISECOND
    assert value_and_reason(changed(('"10s"', '"1s"')), "exchange", "txw_adv_secs") == (SECOND, "default")


def test_cache_is_the_repairers_and_its_parameters_are_stronger():
    assert value_and_reason(GOOD, "core-repairer", "cache_bytes") == (
        4 * GIB,
        f"node core-repairer cache, line {line_of(GOOD, 'cache')}",
    )
    text = changed(("cache = {", 'parameters = { cache_bytes = "8GiB" }\ncache = {'))
    assert value_and_reason(text, "core-repairer", "cache_bytes")[0] == 8 * GIB


TWO = """[streams.trades]
data_port = 7501
{}
[segments.core]"""


def two_streams(extra: str) -> str:
    both = 'streams = ["quotes", "trades"]'
    return changed(
        ("[segments.core]", TWO.format(extra)), ('streams = ["quotes"]\n[nodes.core', f"{both}\n[nodes.core")
    )


def test_elements_add_up_the_rates_of_what_they_carry():
    text = two_streams('rate = "80Mbit/s"')
    assert value_and_reason(text, "relay", "txw_max_rte") == (60_000_000, "rates of streams quotes, trades")
    only = changed(("repairers = [", 'streams = ["trades"]\nrepairers = ['), text=text)
    assert value_and_reason(only, "relay", "txw_max_rte")[0] == 10_000_000
    unsaid = two_streams("")
    assert value_and_reason(unsaid, "relay", "txw_max_rte")[0] == 50_000_000 + int(ROWS["txw_max_rte"].default)


def test_rate_may_also_stand_among_the_parameters_of_a_stream():
    text = two_streams('parameters = { txw_max_rte = "80Mbit/s" }')
    assert value_and_reason(text, "relay", "txw_max_rte")[0] == 60_000_000
    assert value_and_reason(text, "desk-1", "txw_max_rte")[0] == 50_000_000


def test_segment_and_node_override_the_sum_of_rates():
    text = changed((FLOOR, f'{FLOOR}\nparameters = {{ txw_max_rte = "8Mbit/s" }}'), text=two_streams(""))
    assert value_and_reason(text, "relay", "txw_max_rte")[0] == 1_000_000
    assert value_and_reason(text, "core-repairer", "txw_max_rte")[0] == 75_000_000


def test_source_of_two_streams_keeps_them_apart():
    plan = plan_node(topology(text=two_streams('rate = "80Mbit/s"\nwindow = "3s"')), "exchange")
    quotes, trades = plan.streams
    assert plan.parameters.txw_max_rte == 60_000_000
    assert (plan.parameters_of(quotes).txw_max_rte, plan.parameters_of(quotes).txw_secs) == (50_000_000, 10 * SECOND)
    assert (plan.parameters_of(trades).txw_max_rte, plan.parameters_of(trades).txw_secs) == (10_000_000, 3 * SECOND)


def test_source_of_one_stream_has_one_set():
    plan = plan_node(topology(), "exchange")
    assert plan.parameters_of(plan.streams[0]) is plan.parameters


def test_relay_asks_by_the_segment_above_and_answers_by_those_below():
    core, floor = 'interface = "10.0.0.0/24"', FLOOR
    both = 'parameters = {{ nak_elim_ivl = "{0}ms", ncf_ivl = "{0}ms" }}'
    text = changed((core, f"{core}\n{both.format(7)}"), (floor, f"{floor}\n{both.format(8)}"))
    assert value_and_reason(text, "relay", "nak_elim_ivl") == (
        7 * MILLISECOND,
        f"segment core line {line_of(text, '7ms')}",
    )
    assert value_and_reason(text, "relay", "ncf_ivl") == (8 * MILLISECOND, f"segment floor line {line_of(text, '8ms')}")
    assert value_and_reason(text, "floor-repairer", "nak_elim_ivl")[0] == 8 * MILLISECOND


def test_precedence_stall_wait_grows_with_tiers_below():
    """The node next to the cause therefore detects it first.

    The wait has no reason in streams without acknowledgement.
    """
    acked = changed((WINDOW, f'{WINDOW}\nflow = "acked"'))
    base, step = ROWS["ack_element_ivl"].default, ROWS["ack_expiry"].default
    waits = {node: value_and_reason(acked, node, "ack_element_ivl")[0] for node in NESTED}
    assert waits == {node: base + number * step for node, number in NESTED.items()}
    given = changed((TOP, f'{TOP}\nparameters = {{ ack_element_ivl = "20s", ack_expiry = "1s" }}'), text=acked)
    value, reason = value_and_reason(given, "exchange", "ack_element_ivl")
    assert value == 23 * SECOND
    assert "3 tiers of elements below" in reason
    assert value_and_reason(GOOD, "exchange", "ack_element_ivl") == (base, "default")
