"""OpenPGM and our nodes: every case of the matrix for every pair (checklist sections 12.1 and 12.2).

Each test opens a scene without loss, sends one message that all receivers get, and continues from there.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pgm.wire.sequence_numbers import SPACE
from tests.interop.conftest import SIGNER, SceneOf
from tests.interop.matrix import Cells
from tests.interop.support.peers import OPENPGM, Layout, Pair, Scene, Side, messages, needs_openpgm, sizes
from tests.interop.support.scripts import DESKS, deliver, end_whole, served
from tests.interop.support.yard import BURSTS, FIVE_PERCENT, TYPE_IS, TYPES, tail_from

pytestmark = [pytest.mark.network, needs_openpgm]

TO_THEM = Pair("to-openpgm", f"our source → {OPENPGM}", Side.OURS, Side.THEIRS)
FROM_THEM = Pair("from-openpgm", f"{OPENPGM} → our receivers", Side.THEIRS, Side.OURS)
BETWEEN = Pair("between", f"{OPENPGM} → our elements → {OPENPGM}", Side.THEIRS, Side.THEIRS, Layout.RELAY)
PAIRS = (TO_THEM, FROM_THEM, BETWEEN)

CELLS: Cells = {pair.title: {} for pair in PAIRS}

NOTES = [
    f"""## Measured with {OPENPGM}

One source sends messages of 1,000 octets to two receivers. nftables drops 5 % of all packets at each receiver. The machine has two cores and was not
idle. `python -m pytest -rP tests/interop/test_openpgm_repair.py` prints these figures.

| measurement | without this project's elements | with them |
|---|---|---|
| NAKs that reach their source, relay and repairer below it, 2,000 messages | 152 to 195 | 0 |
| the same with a relay alone, which keeps what it passed down | 152 to 195 | 0 |
| the same after the repairer is killed, 1,400 messages | | 45 to 60, and nothing lost |
| sqns that an on-LAN repairer repairs before a source at its rate limit | | 90 to 97 % |
| sqns that it repairs before a source with rate to spare, bursts of 40 packets lost | | 94 to 95 % |
| the same, single packets lost | | 48 to 78 % |

An on-LAN repairer learns of losses from the source's NCF, because NAKs go to the source by unicast and OpenPGM ignores redirects. An idle source
sends the NCF and the repair 20 to 50 us apart. The repairer's repair leaves 200 us after the NCF at best, and 500 us on a busy machine. So the
two repairs race. No process can overtake a source that sends both without a pause. The source repairs in any case, since it does not listen to repairs of others.

The next table compares a relay between OpenPGM peers with a bare forwarder in its place, which only receives and sends. It has the highest rate without
loss of messages of 1,400 octets, found by bisection. Source, two receivers and OpenPGM's example timers are the same throughout: four
processes on two cores. `python -m tests.interop.support.relay_speed` prints it on an idle machine.

| in the middle | messages a second |
|---|---|
| forwarder in C | 92,000 to 103,000 |
| forwarder in Python, a call in and a call out for each packet | 82,000 to 87,000 |
| forwarder in Python, with the socket options of this project | 60,000 |
| relaying aggregator | 66,000 to 71,000; at 80 % of the forwarder in Python nothing is lost |
| relaying repairer with a full cache | nothing is lost at 80 % of the forwarder in Python either |
| the same while its cache fills, the first 256 MiB | 42,000 to 50,000: new memory costs a page fault every three packets |""",
    f"""## Limits of {OPENPGM}

- Certain packets make an OpenPGM receiver walk for minutes or for ever: an option of length 0, or a window edge, a data packet or an NCF far ahead.
  Relays of this project forward none of these (`tests/interop/test_openpgm_hostile.py`).
- A receiver mistakes an unfragmented packet after a duplicate fragment for a fragment. It discards the packet and its repairs, and finally resets.
  Two OpenPGM peers alone show this. Streams to OpenPGM should not mix messages that fit a packet with larger ones.
- The source crashes on fragments (INT-Q14); the test peer has a checksum routine of its own.
- A message that exceeds the rate limit of one millisecond is never sent.
- The source begins at sqn 0. For `wrap` the test peer moves the window in the library's memory.""",
]


def case(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the test for a case of the matrix, for every pair."""

    def register(test: Callable[..., Any]) -> Callable[..., Any]:
        for pair in PAIRS:
            CELLS[pair.title][name] = test
        parametrized: Callable[..., Any] = pytest.mark.parametrize("pair", PAIRS, ids=[one.key for one in PAIRS])(test)
        return parametrized

    return register


def has_repairers(pair: Pair) -> Layout:
    """Return the layout of a pair with repairers in it."""
    return Layout.FLAT if pair.layout is Layout.DIRECT else pair.layout


def test_the_version(program: Path) -> None:
    """The page names the tested version."""
    version = subprocess.run([str(program), "version"], capture_output=True, text=True, check=True).stdout.strip()
    assert f"OpenPGM {version}" == OPENPGM


@case("data")
def test_data(pair: Pair, scene_of: SceneOf) -> None:
    scene = scene_of(pair)
    source, receivers = scene.open()
    sent = sizes(1000)
    deliver(source, receivers, sent)
    end_whole(scene, source, receivers, sent)


def test_signed_stream(scene_of: SceneOf, sign: Callable[[Scene], None]) -> None:
    """Receivers skip the signatures, which our relay verifies."""
    scene = scene_of(TO_THEM, Layout.RELAY, signer=SIGNER.public.line)
    sign(scene)
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    sent = messages(600)
    deliver(source, receivers, sent)
    end_whole(scene, source, receivers, sent)


def lose_and_deliver(
    scene: Scene, *losses: str, count: int = 1500, where: Sequence[str] = DESKS, loses_naks: bool = False
) -> None:
    source, receivers = scene.open()
    scene.lose(where, *losses)
    if loses_naks:
        scene.yard.rule(scene.nak_target, scene.port, *losses)
    sent = messages(count)
    deliver(source, receivers, sent)
    lost = [scene.counts(name)["lost"] for name in where]
    print(f"{scene.pair.key}: lost at {', '.join(where)}: {lost}")
    assert all(lost)
    end_whole(scene, source, receivers, sent)


@case("loss5")
def test_loss_of_single_packets(pair: Pair, scene_of: SceneOf) -> None:
    lose_and_deliver(scene_of(pair), FIVE_PERCENT, loses_naks=True)


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.key for pair in PAIRS])
def test_the_legacy_profile(pair: Pair, scene_of: SceneOf) -> None:
    """The scene uses OpenPGM's own timers and none of our private options."""
    lose_and_deliver(scene_of(pair, profile="legacy"), FIVE_PERCENT, count=600, loses_naks=True)


def test_loss_of_trains(scene_of: SceneOf) -> None:
    scene = scene_of(TO_THEM)
    scene.yard.send_trains(True)
    lose_and_deliver(scene, FIVE_PERCENT, count=6000, loses_naks=True)


@case("burst")
def test_bursts(pair: Pair, scene_of: SceneOf) -> None:
    lose_and_deliver(scene_of(pair), BURSTS)


@case("tail")
def test_tail(pair: Pair, scene_of: SceneOf) -> None:
    """RCV-30: SPM_LEAD alone reveals a lost tail, which comes as RDATA only."""
    scene = scene_of(pair, repairers=0 if pair.layout is Layout.DIRECT else 1)
    lose_and_deliver(scene, tail_from(281), count=300, where=[*DESKS, *scene.repairer_names])


@case("latejoin")
def test_late_join(pair: Pair, scene_of: SceneOf) -> None:
    """RCV-01: the first packet sets the start; nothing is missing from there on."""
    scene = scene_of(pair)
    source, receivers = scene.open(desks=["desk-1"], rate=1_000_000)
    sent = messages(1500)
    source.put(sent[:1000])
    receivers[0].until_messages(200)  # on a busy machine the other receiver may get its messages first
    receivers.append(scene.start_receiver("desk-2"))
    scene.until_joined(receivers[1])
    source.put(sent[1000:])
    receivers[0].until_messages(1 + len(sent))
    receivers[1].until(lambda: receivers[1].messages[-1:] == sent[-1:], "the last message")
    scene.end(source, receivers)
    assert receivers[0].messages == [b"hello", *sent]
    late = receivers[1].messages
    assert 500 <= len(late) < len(sent), "the second half, and some of the first"
    assert late == sent[-len(late) :]


@case("restart-source")
def test_restarted_source(pair: Pair, scene_of: SceneOf) -> None:
    scene = scene_of(pair)
    first, receivers = scene.open()
    sent = messages(400, name="first")
    deliver(first, receivers, sent)
    first.kill()
    scene.lose(DESKS)
    second = scene.start_source()
    scene.greet(second, receivers, b"hello again")
    scene.lose(DESKS, FIVE_PERCENT)
    more = messages(400, name="second")
    deliver(second, receivers, more)
    end_whole(scene, second, receivers, [*sent, b"hello again", *more])


@case("restart-repairer")
def test_restarted_repairer(pair: Pair, scene_of: SceneOf) -> None:
    scene = scene_of(pair, has_repairers(pair), repairers=1, parameters={"parent_retry_ivl": "200ms"})
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    sent = messages(1800)
    deliver(source, receivers, sent[:600])
    assert served(scene, "repairer-1")
    scene.elements["repairer-1"].kill()
    deliver(source, receivers, sent[600:1200])
    scene.start_element("repairer-1").until_said("ready:")
    deliver(source, receivers, sent[1200:])
    assert served(scene, "repairer-1"), "the repairer serves again"
    end_whole(scene, source, receivers, sent)


@case("flat-lan")
def test_flat_lan(pair: Pair, scene_of: SceneOf) -> None:
    scene = scene_of(pair, Layout.FLAT, repairers=1)
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    sent = messages(1500)
    deliver(source, receivers, sent)
    counters = scene.counters("repairer-1")
    assert counters["rdata_packets"] > 0
    assert counters.get("spm_packets", 0) == 0
    end_whole(scene, source, receivers, sent)


@case("two-repairers")
def test_two_repairers(pair: Pair, scene_of: SceneOf) -> None:
    scene = scene_of(pair, has_repairers(pair), repairers=2)
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    sent = messages(1500)
    deliver(source, receivers, sent[:750])
    assert served(scene, "repairer-1")
    before = served(scene, "repairer-2")
    scene.elements["repairer-1"].kill()
    deliver(source, receivers, sent[750:])
    assert served(scene, "repairer-2") > before
    end_whole(scene, source, receivers, sent)


@case("fragments")
def test_fragments(pair: Pair, scene_of: SceneOf) -> None:
    """INT-U13: up to 16 fragments a message.

    OpenPGM's rate limit is a bucket of one millisecond, which must hold a whole message. Its receivers mistake an
    unfragmented packet after a duplicate fragment for a fragment. Therefore no message here fits into one packet.
    """
    scene = scene_of(pair)
    source, receivers = scene.open(rate=40_000_000)
    scene.lose(DESKS, FIVE_PERCENT)
    cycle = itertools.cycle((1449, 5000, 20_000, 3000, 22_000))
    sent = [messages(1, size, f"m{number}")[0] for number, size in zip(range(150), cycle, strict=False)]
    deliver(source, receivers, sent)
    end_whole(scene, source, receivers, sent)


@case("wrap")
def test_wrap(pair: Pair, scene_of: SceneOf) -> None:
    scene = scene_of(pair, first_sqn=SPACE - 300)
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    sent = messages(600)
    deliver(source, receivers, sent)
    counted = scene.counts("desk-1")
    assert 0 < counted["high"] < counted["odata"], "some before the wrap, some after"
    end_whole(scene, source, receivers, sent)


@case("nak-list")
def test_nak_lists(pair: Pair, scene_of: SceneOf) -> None:
    """INT-Q6, RCV-47: NAK lists are sent, confirmed and served; OpenPGM's repeated NAKs do no harm."""
    scene = scene_of(pair, settings={"backoff": 50}, parameters={"nak_bo_ivl": "30ms"})
    source, receivers = scene.open()
    scene.yard.rule(scene.nak_target, scene.port)
    scene.lose(DESKS, f"{TYPE_IS} {TYPES['odata']} numgen random mod 100 < 30")
    sent = messages(1000)
    deliver(source, receivers, sent)
    counted = scene.yard.counts(scene.nak_target.host)
    print(f"{pair.key}: {counted['nak']} NAKs, {counted['nak_list']} of them with lists")
    assert counted["nak_list"] > 0
    end_whole(scene, source, receivers, sent)


QUIET = {"ambient_spm_ivl": "30s", "ihb_min": "5s", "ihb_max": "5s", "stall_ivl": "20s", "peer_expiry": "60s"}


@case("spmr")
def test_spmr(pair: Pair, scene_of: SceneOf) -> None:
    """A receiver that joins between two SPMs asks for one, and gives up no packet before it comes."""
    scene = scene_of(pair, parameters={**QUIET, "relay_takeover_ivl": "60s"})
    source, receivers = scene.open(desks=["desk-1"], ambient=30_000, heartbeat=5_000)
    receivers.append(scene.start_receiver("desk-2"))
    scene.until_joined(receivers[1])
    scene.lose(DESKS)
    source.put([b"first"])
    receivers[0].until_messages(2)
    scene.until(lambda: scene.counts("desk-2")["spm"] > 0, "an SPM that was asked for")
    receivers[1].until_messages(1)
    scene.lose(DESKS, FIVE_PERCENT, tail_from(1200))
    sent = messages(1000)
    deliver(source, receivers, sent)
    scene.end(source, receivers)
    assert receivers[0].messages == [b"hello", b"first", *sent]
    assert receivers[1].messages == [b"first", *sent]


@pytest.mark.parametrize("mtu", [576, 8972])
@case("mtu")
def test_mtu(pair: Pair, mtu: int, scene_of: SceneOf) -> None:
    tpdu = mtu - 28
    scene = scene_of(pair, settings={"mtu": mtu}, parameters={"max_tpdu": f"{tpdu}B"})
    source, receivers = scene.open()
    scene.lose(DESKS, FIVE_PERCENT)
    sent = [one for size in (tpdu - 24, 20, tpdu - 25) for one in messages(200, size, f"of{size}")]
    deliver(source, receivers, sent)
    end_whole(scene, source, receivers, sent)


@case("idle")
def test_idle(pair: Pair, scene_of: SceneOf) -> None:
    """The idle time exceeds the timeouts of all peers; SPMs keep the session alive."""
    patience = {"stall_ivl": "600ms", "peer_expiry": "1s", "relay_takeover_ivl": "1s"}
    heartbeats = {"ambient_spm_ivl": "100ms", "ihb_max": "100ms"}
    scene = scene_of(pair, settings={"expiry": 1000}, parameters={**patience, **heartbeats})
    source, receivers = scene.open(ambient=100)
    sent = messages(600)
    deliver(source, receivers, sent[:300])
    scene.lose(DESKS)
    scene.until(lambda: all(scene.counts(name)["spm"] > 14 for name in DESKS), "15 SPMs")
    scene.lose(DESKS, FIVE_PERCENT)
    deliver(source, receivers, sent[300:])
    assert not [line for receiver in receivers for line in receiver.said if "silent" in line]
    end_whole(scene, source, receivers, sent)
