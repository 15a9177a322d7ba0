"""Packets that make OpenPGM hang do not pass our elements, from any sender (INT-Q10, INT-Q11, W-20)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.interop.conftest import SceneOf
from tests.interop.support.attacker import FORGERIES
from tests.interop.support.peers import Layout, Pair, Scene, Side, messages, needs_openpgm
from tests.interop.support.pipes import Pipe
from tests.interop.support.scripts import DESKS, deliver, end_whole
from tests.interop.support.yard import FIVE_PERCENT

pytestmark = [pytest.mark.network, needs_openpgm]

THEIRS = Pair("theirs", "OpenPGM on both sides", Side.THEIRS, Side.THEIRS)
HANG_S = 0.5  # a receiver without a message after this time hangs


def attack(scene: Scene, *kinds: str) -> list[bytes]:
    """Send forgeries on the LAN of the source; return the kinds that were sent."""
    seat = scene.yard.seat("repairer-2", "up")
    command = [
        sys.executable,
        "-m",
        "tests.interop.support.attacker",
        seat.address,
        scene.group("up"),
        str(scene.port),
        *kinds,
    ]
    attacker = Pipe("attacker", seat.host, command)
    scene.pipes.append(attacker)
    assert attacker.wait() == 0, attacker.log
    return attacker.messages


@pytest.mark.parametrize("role", ["aggregator", "repairer"])
def test_forgeries_end_at_the_relay(role: str, scene_of: SceneOf) -> None:
    scene = scene_of(THEIRS, Layout.RELAY, relay_role=role)
    source, receivers = scene.open(ambient=50)
    sent = messages(900)
    deliver(source, receivers, sent[:300])
    assert len(attack(scene)) > len(FORGERIES)
    deliver(source, receivers, sent[300:600])
    scene.lose(DESKS, FIVE_PERCENT)
    deliver(source, receivers, sent[600:])
    end_whole(scene, source, receivers, sent)


@pytest.mark.parametrize("kind", ["no_window", "endless_options", "far_data"])
def test_forgeries_without_a_relay_hang_receivers(kind: str, scene_of: SceneOf) -> None:
    """Without a relay the forgeries hang the receivers."""
    scene = scene_of(THEIRS)
    source, receivers = scene.open(desks=["desk-1"], ambient=50)
    deliver(source, receivers, messages(10))
    attack(scene, kind)
    source.put([b"more"])
    with pytest.raises(AssertionError):
        receivers[0].until(lambda: b"more" in receivers[0].messages, "a message", HANG_S)
    receivers[0].process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        receivers[0].process.wait(HANG_S)


def test_codes_are_skipped(scene_of: SceneOf) -> None:
    """A source repairs a packet although the NAK has OPT_PGM_CODE, and receivers go on after an NCF with it."""
    scene = scene_of(THEIRS)
    source, receivers = scene.open(desks=["desk-1"], ambient=50)
    sent = messages(20)
    deliver(source, receivers, sent[:10])
    assert attack(scene, "coded_nak") == [b"coded_nak"]
    assert attack(scene, "coded_ncf") == [b"coded_ncf"]
    deliver(source, receivers, sent[10:])
    end_whole(scene, source, receivers, sent)
