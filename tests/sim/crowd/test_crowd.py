"""The model of a crowd against receivers with the production core."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from deploy.node.roles import build_core
from deploy.simulation.command import with_losses
from pgm.core.recovery.response_timeout import ResponseTimeout
from pgm.errors import UsageError
from pgm.impairments import Impairment, Injector
from pgm.sim.crowd.losses import CrowdLosses
from pgm.sim.crowd.timeouts import CrowdTimeouts
from pgm.sim.load import Load
from pgm.sim.parts.account import Report
from pgm.sim.runs.report import local_links, parts_of, run_parts, whole_tree
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all, plan_some
from tests.sim.crowd.subnets import subnets

MEMBERS = 60


def test_members_lose_the_packets_of_their_own_links() -> None:
    """A link of each member, which `Injector` serves, loses the same packets in any blocks."""
    seeds = [f"7:desk-{number}:floor:in:loss" for number in range(5)]
    injectors = [Injector(Impairment(loss=0.03), seed) for seed in seeds]
    losses = CrowdLosses(seeds, 0.03, 100)
    rng = random.Random(1)
    for _ in range(120):
        count = rng.randint(1, 64)
        rows, members = losses.take(count)
        expected = {(row, member) for member, one in enumerate(injectors) for row in one.draw_places(count)}
        assert set(zip(rows.tolist(), members.tolist(), strict=True)) == expected


def test_timeouts_are_those_of_the_core() -> None:
    rng, count = random.Random(2), 4
    cores = [ResponseTimeout(50_000, 400_000, 20_000) for _ in range(count)]
    crowd, all_members = CrowdTimeouts(count, 50_000, 400_000, 20_000), np.arange(count)
    for step in range(300):
        member = rng.randrange(count)
        chosen, core = np.array([member]), cores[member]
        kind = rng.choice(["answer", "answer", "timeout", "relax"])
        if kind == "answer":
            took, is_repeated = rng.randint(1000, 300_000), rng.random() < 0.3
            core.answered(took, is_repeated=is_repeated)
            crowd.answered(chosen, np.array([float(took)]), np.array([is_repeated]))
        elif kind == "timeout":
            core.timed_out(step * 30_000)
            crowd.timed_out(chosen, step * 30_000)
        else:
            core.relax()
            crowd.relax(chosen)
        waits = [core.ivl_ns for core in cores]
        assert np.allclose(crowd.ivl(all_members), waits, rtol=1e-3, atol=40)  # the core rounds to ns at each step


def _run(file: Path, real: int | None, seed: int = 1) -> Report:
    topology = load_checked(file)
    plans, rest = (plan_all(topology), []) if real is None else plan_some(topology, {}, real)
    assert all(one.plan.segments[0].impairment.loss == 0.02 for one in rest)
    plans = {name: with_losses(plan, None, 0.004) for name, plan in plans.items()}
    load = Load(messages=400, size=200, rate=4000)
    whole = whole_tree(plans, build_core, seed, load, rest=rest)
    parts = parts_of(whole, 2)
    return run_parts(whole, local_links(parts), shared=frozenset(parts[0].shared))


def test_crowd_asks_and_is_served_as_real_receivers_are(tmp_path: Path) -> None:
    """The losses come from the same streams; back-offs do not, so totals agree within their scatter."""
    file = tmp_path / "tree.toml"
    file.write_text(subnets(2, MEMBERS, loss="2%"))
    real, modelled = _run(file, None), _run(file, 1)
    assert real["ok"]
    assert modelled["ok"]
    assert [row["members"] for row in modelled["crowds"]] == [MEMBERS - 1] * 2
    assert modelled["totals"]["delivered"] == real["totals"]["delivered"] == 2 * MEMBERS * 400
    assert modelled["totals"]["repaired"] == pytest.approx(real["totals"]["repaired"], rel=0.05)
    assert modelled["totals"]["nak_sqns"] == pytest.approx(real["totals"]["nak_sqns"], rel=0.1)
    for key in ("nak_packets", "rdata", "ncfs"):
        one, other = (sum(row[key] for row in report["aggregators"]) for report in (real, modelled))
        assert other == pytest.approx(one, rel=0.1)


def test_receivers_that_no_model_describes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(
        subnets(1, 5, loss="2%").replace('profile = "lan"', 'profile = "lan"\nparameters = { nak_group_copy = true }')
    )
    with pytest.raises(UsageError, match="copies of NAKs to the group"):
        _run(file, 1)
