"""Part of the campaign of forgeries, and a check that the campaign would find an accepted one."""

from __future__ import annotations

import pytest

from pgm.sim.invariant_broken import InvariantBroken
from pgm.trust import control_macs, proofs
from tests.sim.campaigns.forged_formats import run


@pytest.mark.parametrize("seed", range(4))
def test_forgeries_are_never_accepted(seed: int) -> None:
    run(seed)


def test_campaign_finds_a_signature_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs.Ed25519PublicKey, "from_public_bytes", lambda _: _Careless())
    with pytest.raises(InvariantBroken, match=r"a forged proof was taken|forged key records were taken"):
        run(1)


def test_campaign_finds_a_code_that_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_macs.hmac, "compare_digest", lambda *_: True)
    with pytest.raises(InvariantBroken, match="a forged code was taken"):
        run(1)


class _Careless:
    def verify(self, signature: bytes, octets: bytes) -> None:
        """Accept every signature."""
