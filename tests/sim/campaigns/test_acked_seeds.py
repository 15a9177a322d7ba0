"""Part of the campaign of acknowledged streams.

The seeds are former failures, and a few more.
"""

import pytest

from tests.sim.campaigns.acked_seeds import run


@pytest.mark.parametrize("seed", [15, 16, 17, 20, 22, 2000046, 3000059, 4000001])
def test_drawn_faults_let_nothing_go_too_early(seed):
    run(seed)
