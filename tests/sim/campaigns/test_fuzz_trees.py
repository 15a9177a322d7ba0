"""Part of the campaign of mutated packets in trees."""

from __future__ import annotations

import pytest

from tests.sim.campaigns.fuzz_trees import run

# Former failures; unit tests hold the mend of each. A change of the generator gives these seeds other scenarios. Seed 24
# takes 7 s: two elements kept each other's session of a dead source open.
REMEMBERED = {42: "copies of a dead relay's SPMs kept its standby silent"}


@pytest.mark.parametrize("seed", [4, 32, *REMEMBERED])
def test_trees_keep_their_invariants_among_mutated_packets(seed):
    """Seed 32 has forged packets, the others have not."""
    run(seed)
