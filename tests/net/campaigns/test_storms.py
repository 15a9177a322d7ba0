"""Small share of the campaign of storms: a flood of NAKs, after which nothing is lost."""

from __future__ import annotations

import attrs

from tests.net.campaigns.storms import PLANS, run
from tests.net.support.lab import needs_namespaces


@needs_namespaces
def test_a_flood_of_naks_loses_nothing() -> None:
    """The campaign measures times; this machine may be busy."""
    result = run(attrs.evolve(PLANS[3], for_s=1.0), after_s=2.0)
    assert result.lost == 0
