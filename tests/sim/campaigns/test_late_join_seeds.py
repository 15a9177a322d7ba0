"""Part of the campaign of late joiners on drawn trees."""

import pytest

from tests.sim.campaigns.late_join_seeds import run


@pytest.mark.parametrize("seed", [1, 4, 7, 2000010, 7000044, 7000241, 7005038])
def test_late_joiners_account_for_everything_without_the_source(seed):
    run(seed)
