"""A cut tree has the result of the whole tree, bit for bit."""

from pathlib import Path

import pytest

from pgm.errors import UsageError
from pgm.sim.faults import Fault
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.parts.cut import cut_at_relays
from pgm.units import SECOND
from tests.sim.parts.compare import lossy_plans, run_cut

FOLDER = Path(__file__).parents[3] / "deploy" / "topologies"


@pytest.mark.parametrize("name", ["two-subnets", "standby-relay", "unicast-leg"])
def test_cut_tree_has_the_result_of_the_whole_tree(name: str) -> None:
    plans = lossy_plans(FOLDER / f"{name}.toml", {}, 0.02, 0.01)
    whole, parts = run_cut(plans, 1, Load(150))
    assert parts == 1
    assert whole["ok"]
    assert whole["source"]["nak_sqns"] > 0  # something crosses the cut upwards too
    halves, parts = run_cut(plans, 3, Load(150))
    assert parts > 1
    assert halves == whole


def test_cut_tree_with_faults_has_the_result_of_the_whole_tree() -> None:
    plans = lossy_plans(FOLDER / "two-subnets.toml", {}, 0.01, 0.01)
    relay = next(name for name, plan in plans.items() if plan.role.value == "aggregator")
    at_ns = SECOND + 20_000_013
    faults = [
        Fault("pause", relay, at_ns, 40_000_000),
        Fault("partition", relay, at_ns + 50_000_000, 30_000_000),
        Fault("crash_and_restart", relay, at_ns + 90_000_000, 30_000_000),
    ]
    conditions = NetworkConditions(faults=faults)
    whole, _ = run_cut(plans, 1, Load(300), conditions)
    assert run_cut(plans, 3, Load(300), conditions) == (whole, 3)


def test_cut_keeps_what_one_relay_serves_together() -> None:
    counts = {f"host-{number}-*": 2 for number in range(1, 21)}
    plans = lossy_plans(FOLDER / "campus-1000.toml", counts, 0.01, 0.0)
    cut = cut_at_relays(plans, 4)
    assert [len(names) for names in cut.parts] == [22, 20, 20, 20]  # the first has the source and a repairer, too
    assert cut.shared == {"core"}
    assert "server" in cut.parts[0]
    together = {name: number for number, names in enumerate(cut.parts) for name in names}
    assert all(together[f"relay-{n}"] == together[f"host-{n}-2"] for n in range(1, 21))


def test_cut_without_a_delay_is_refused() -> None:
    plans = lossy_plans(FOLDER / "two-subnets.toml", {}, 0.0, 0.0)
    with pytest.raises(UsageError, match="cannot be cut"):
        run_cut(plans, 2, Load(1), NetworkConditions(delay=0))
