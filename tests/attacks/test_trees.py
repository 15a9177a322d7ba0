"""Part of the campaign of attacked trees, and checks that the campaign sends every forgery and finds an accepted one."""

from __future__ import annotations

import attrs
import pytest

from pgm.core.receiver.proved import StreamJudge
from pgm.core.session.signed_streams import SignedStreams
from pgm.sim.invariant_broken import InvariantBroken
from tests.attacks.forgeries import FORGERIES
from tests.attacks.simulated import Sender
from tests.attacks.trees import Attack, run_attack

# Kinds of packets that issue and threat model name.
KINDS = {
    "ODATA", "RDATA", "SPM", "NCF", "NAK", "SPMR", "FIN", "RST", "POLL", "POLR", "ack", "report", "history", "proof",
    "key records", "state", "session", "replay", "cut", "mixed", "mutated", "junk",
}  # fmt: skip
FEW = 1200
PLAIN = Attack(
    seed=1,
    segments=("core", "floor"),
    sender=Sender.OWN,
    is_flat=False,
    is_acked=False,
    order="ordered",
    has_states=False,
    sources=2,
    hostility="",
    loss=0.01,
    size=200,
    rate=100,
    attack_rate=2000,
)


def test_table_has_every_kind_of_packet() -> None:
    assert {forgery.kind for forgery in FORGERIES} == KINDS
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES)


def test_attackers_on_both_segments_send_every_forgery_in_vain() -> None:
    _, attackers = run_attack(PLAIN, FEW)
    sent = attackers[0].sent_of + attackers[1].sent_of
    assert set(sent) == {forgery.name for forgery in FORGERIES}


@pytest.mark.parametrize(
    "attack",
    [
        attrs.evolve(PLAIN, sources=1, is_acked=True, segments=("core",), attack_rate=20_000),
        attrs.evolve(PLAIN, sender=Sender.MEMBER, hostility="alters", segments=("floor",), attack_rate=20_000),
        attrs.evolve(PLAIN, sender=Sender.FORGED, sources=1, segments=("floor",), attack_rate=20_000),
        attrs.evolve(PLAIN, sender=Sender.FORGED, order="unordered", hostility="alters", attack_rate=20_000),
        attrs.evolve(PLAIN, sender=Sender.FORGED, has_states=True, segments=("floor",), attack_rate=20_000),
    ],
    ids=["acked", "hostile-repairer-and-member", "forged-addresses", "unordered", "states"],
)
def test_no_forgery_is_delivered_and_none_ends_a_stream(attack: Attack) -> None:
    run_attack(attack, FEW)


def test_campaign_finds_a_proof_that_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamJudge, "fits", lambda *_: True)
    with pytest.raises(InvariantBroken):
        run_attack(attrs.evolve(PLAIN, sender=Sender.FORGED), FEW)


def test_campaign_finds_a_signature_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SignedStreams, "_is_proved", lambda *_: True)
    with pytest.raises(InvariantBroken):
        run_attack(attrs.evolve(PLAIN, sender=Sender.FORGED, sources=1), FEW // 4)
