"""Drawn scenarios with all options that are off by default: part of the campaign `--kind swarm`."""

from __future__ import annotations

import pytest

from tests.sim.campaigns.swarm_seeds import run_with_options

SEEDS = (*range(3), 268)  # 268: a full line of the source loses an NCF


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_arrives_with_everything_on(seed):
    run_with_options(seed)
