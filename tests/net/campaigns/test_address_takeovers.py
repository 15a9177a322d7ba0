"""A small share of the campaign `address_takeovers`: all drivers, with and without other implementations."""

from __future__ import annotations

import pytest

from tests.net.campaigns.address_takeovers import TAKEOVER_S, run, why_no_legacy

# A busy machine may give the next owner no processor for a while. The campaign on an idle one holds `TAKEOVER_S` itself.
BUSY = 10


def test_sources_of_processes_share_an_address_and_survive_its_owner():
    result = run(sources=3, receivers=2, kills=2, loss=0.02, rate=100)
    assert not result["problems"]
    assert result["kills"] == 2
    assert max(result["takeover_ms"]) < TAKEOVER_S * 1000 * BUSY


@pytest.mark.network
@pytest.mark.skipif(bool(why_no_legacy()), reason=why_no_legacy())
def test_sources_of_processes_serve_other_implementations():
    result = run(sources=2, receivers=1, kills=1, rate=100, has_legacy=True)
    assert result["other_receivers"] == ["OpenPGM", "ZeroMQ"]
    assert not result["problems"]
