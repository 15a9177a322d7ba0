"""Savings of an OpenPGM source by our elements, and behaviour after the death of an element."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

import pytest

from tests.interop.conftest import SceneOf
from tests.interop.support.peers import Layout, Pair, Scene, Side, messages, needs_openpgm
from tests.interop.support.scripts import DESKS, deliver, end_whole, served
from tests.interop.support.yard import BURSTS, FIVE_PERCENT, ONE_PERCENT, TYPES, capturing, dissect

pytestmark = [pytest.mark.network, needs_openpgm]

THEIRS = Pair("theirs", "OpenPGM on both sides", Side.THEIRS, Side.THEIRS)
THROUGH = Pair("through", "our source, OpenPGM's receivers", Side.OURS, Side.THEIRS)
BUSY = 1_600_000  # octets a second, too few for the messages of 1000 octets
IDLE = 4_000_000  # octets a second, more than the messages need
SPARED = 20  # minimum ratio of NAKs at the source without our elements to NAKs with them


def naks_at_the_source(scene: Scene) -> int:
    """Deliver with 5 % lost at each receiver; return the NAKs that reach the source."""
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    scene.lose(["source"])
    sent = messages(2000)
    deliver(source, receivers, sent)
    naks = scene.counts("source")["nak"]
    lost = [scene.counts(name)["lost"] for name in DESKS]
    end_whole(scene, source, receivers, sent)
    print(f"{scene.layout.name}, {scene.relay_role}: packets lost {lost}, NAKs at the source {naks}")
    scene.close()
    return naks


def test_losses_below_are_repaired_below(scene_of: SceneOf) -> None:
    """A repairer, a repairing relay, or what an aggregator keeps serves the losses (INT-Q3: the TSI finds it)."""
    without = naks_at_the_source(scene_of(THEIRS))
    for role, repairers in (("aggregator", 1), ("aggregator", 0), ("repairer", 0)):
        spared = naks_at_the_source(scene_of(THEIRS, Layout.RELAY, relay_role=role, repairers=repairers))
        assert spared * SPARED < without


def test_killed_repairer_is_replaced_by_the_source(scene_of: SceneOf) -> None:
    """The aggregator turns to its next parent, the OpenPGM source.

    Each NAK reaches the source and is confirmed, and nothing is lost. INT-Q3: the source confirms no NAK that lacks its
    own address and group. A relay that kept what it passed down would need neither.
    """
    scene = scene_of(THEIRS, Layout.RELAY, repairers=1, parameters={"relay_cache_ivl": "0s"})
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    scene.lose(["source", "relay"])
    sent = messages(2000)
    deliver(source, receivers, sent[:600])
    before = scene.counts("source")["nak"]
    source.put(sent[600:1200])
    scene.elements["repairer-1"].kill()
    deliver(source, receivers, sent[1200:])
    for receiver in receivers:
        receiver.until_messages(1 + len(sent))
    after = scene.counts("source")["nak"]
    print(f"NAKs at the source before the kill {before}, after it {after - before}")
    assert after > 5 * before
    scene.until(lambda: scene.counts("relay")["ncf"] >= scene.counts("source")["nak"], "an NCF for each NAK")
    end_whole(scene, source, receivers, sent)


@pytest.mark.parametrize("role", ["aggregator", "repairer"])
def test_losses_on_every_hop(role: str, scene_of: SceneOf) -> None:
    scene = scene_of(THEIRS, Layout.RELAY, relay_role=role, repairers=1)
    source, receivers = scene.open()
    scene.lose(["relay", "source"], ONE_PERCENT)
    scene.lose([*DESKS, "repairer-1"], FIVE_PERCENT)
    scene.yard.rule(scene.yard.seat("relay", "down"), scene.port, FIVE_PERCENT)
    sent = messages(2000)
    deliver(source, receivers, sent)
    end_whole(scene, source, receivers, sent)


def test_trains_through_the_relay(scene_of: SceneOf) -> None:
    """Our source sends trains, the relay forwards trains, and whole trains are lost on both sides of the relay."""
    scene = scene_of(THROUGH, Layout.RELAY, repairers=1)
    scene.yard.send_trains(True)
    source, receivers = scene.open()
    scene.lose(["relay", *DESKS], FIVE_PERCENT)
    sent = messages(6000)
    deliver(source, receivers, sent)
    assert all(scene.counts(name)["lost"] for name in ("relay", *DESKS))
    end_whole(scene, source, receivers, sent)


def test_a_standby_takes_over(scene_of: SceneOf, tmp_path: Path) -> None:
    """OpenPGM follows the SPM path from one relay to the other, once.

    It asks the standby for the packets missed in between.
    """
    spms = {"ambient_spm_ivl": "100ms", "ihb_max": "100ms"}
    patience = {"relay_takeover_ivl": "600ms", "stall_ivl": "400ms", "peer_expiry": "2s"}
    scene = scene_of(THEIRS, Layout.RELAY, has_standby=True, parameters={**spms, **patience})
    source, receivers = scene.open(ambient=100, rate=BUSY)
    scene.lose(DESKS, FIVE_PERCENT)
    sent = messages(1500)
    with capturing(scene.seat("desk-1"), tmp_path / "spms"):
        source.put(sent[:1000])
        receivers[0].until_messages(300)
        scene.elements["relay"].kill()
        scene.elements["standby"].until_said("relay-speaking")
        source.put(sent[1000:])
        for receiver in receivers:
            receiver.until_messages(1 + len(sent))
    end_whole(scene, source, receivers, sent)
    heard = dissect(tmp_path / "spms", scene.port, ["ip.src", "pgm.spm.path.ipv4"], "pgm.hdr.type == 0")
    assert all(sender == path for sender, path in heard)
    speakers = [scene.yard.seat(name, "down").address for name in scene.relay_names]
    assert [sender for sender, _ in groupby(sender for sender, _ in heard)] == speakers


@pytest.mark.parametrize(
    ("rate", "loss", "least"),
    [(BUSY, FIVE_PERCENT, 0.5), (IDLE, BURSTS, 0.5), (IDLE, FIVE_PERCENT, 0.0)],
    ids=["busy", "bursts", "idle"],
)
def test_repairs_of_an_on_lan_repairer_come_first(
    rate: int, loss: str, least: float, scene_of: SceneOf, tmp_path: Path
) -> None:
    """RFC 5.2: the source's NCF triggers our repairer.

    The repairs of the repairer come before those of a source at its rate limit or with many repairs to send. A single
    repair of an idle source races with the repairer.

    The repairer sends no SPM, so the receivers continue to ask their source.
    """
    scene = scene_of(THEIRS, Layout.FLAT, repairers=1)
    source, receivers = scene.open(rate=rate)
    scene.lose(DESKS, loss)
    sent = messages(1500)
    with capturing(scene.seat("desk-1"), tmp_path / "seen"):
        deliver(source, receivers, sent)
    assert served(scene, "repairer-1")
    assert scene.counts("source")["nak"]
    end_whole(scene, source, receivers, sent)
    fields = ["ip.src", "ip.dst", "pgm.hdr.type", "pgm.spm.sqn", "pgm.spm.path.ipv4"]
    rows = dissect(tmp_path / "seen", scene.port, fields)
    names = {scene.seat(name).address: name for name in ("source", "repairer-1", *DESKS)}
    first: dict[str, str] = {}
    for sender, _, kind, sqn, _ in rows:
        if int(kind, 16) == TYPES["rdata"]:
            first.setdefault(sqn, names[sender])
    share = Counter(first.values())
    print(f"{len(first)} sqns were repaired, first by {dict(share)}")
    assert share["repairer-1"] > least * len(first)
    own = scene.seat("source").address
    assert {(row[0], row[4]) for row in rows if int(row[2], 16) == TYPES["spm"]} == {(own, own)}, (
        "every SPM names its sender as the path"
    )
    assert {row[1] for row in rows if int(row[2], 16) == TYPES["nak"]} <= {own}  # the other receiver may ask for both
