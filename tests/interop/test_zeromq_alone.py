"""ZeroMQ and our nodes: cases with processes of their own, our commands, and the examples of docs/guide/zeromq.md.

See checklist section 12.5.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgm.messages.zmtp import HarmfulPacket, refuse_harmful
from pgm.topology.check import load_checked
from pgm.wire.sequence_numbers import SPACE
from tests.interop.matrix import Cells
from tests.interop.support.peers import Pair
from tests.interop.support.pipes import Pipe
from tests.interop.support.yard import FIVE_PERCENT, Yard
from tests.interop.support.zmq_scene import PYTHON, dropping, line, messages, needs_zeromq, parts_of
from tests.interop.support.zmq_stream import (
    BETWEEN,
    DESK,
    FROM_THEM,
    IDS,
    LATE,
    PAIRS,
    TO_THEM,
    SceneOf,
    covering,
    open_stream,
    scenes,
)
from tests.net.support.pages import blocks, page

pytestmark = [pytest.mark.network, needs_zeromq]

CELLS: Cells = {pair.title: {} for pair in PAIRS}
NO_FIRST_SQN = "libzmq's PUB begins at sqn 0 and has no setting for it."
PGM = [sys.executable, "-m", "deploy"]

covers = covering(CELLS)


@pytest.fixture
def scene_of(shared_yard: Yard) -> Iterator[SceneOf]:
    """Return a maker of scenes that end with the test."""
    with scenes(shared_yard) as make:
        yield make


@covers("restart-source")
@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_restarted_source(pair: Pair, scene_of: SceneOf) -> None:
    """A new session begins with the first message (INT-Z7: state is by TSI)."""
    stream = open_stream(scene_of(pair))
    stream.deliver(messages(300))
    stream.source.kill()
    stream.scene.lose([DESK])
    stream.source = stream.scene.start_source()
    stream.scene.greet(stream.source, [stream.receiver], line(b"hello again"))
    stream.deliver_lossy(messages(300, name="second"), FIVE_PERCENT)
    stream.scene.end(stream.source, [stream.receiver])


@covers("mtu")
@pytest.mark.parametrize("mtu", [576, 8972])
@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_mtu(pair: Pair, mtu: int, scene_of: SceneOf) -> None:
    """ZMQ_MULTICAST_MAXTPDU equals our max_tpdu plus the headers of IP and UDP."""
    scene = scene_of(pair, settings={"MULTICAST_MAXTPDU": mtu}, parameters={"max_tpdu": f"{mtu - 28}B"})
    stream = open_stream(scene)
    stream.deliver_lossy(messages(400, (100, mtu - 100, 3 * mtu)), FIVE_PERCENT)
    scene.end(stream.source, [stream.receiver])


CELLS[FROM_THEM.title]["wrap"] = CELLS[BETWEEN.title]["wrap"] = NO_FIRST_SQN


@covers("wrap", pairs=[TO_THEM])
def test_wrap(scene_of: SceneOf) -> None:
    scene = scene_of(TO_THEM, first_sqn=SPACE - 200)
    stream = open_stream(scene)
    stream.deliver_lossy(messages(600), FIVE_PERCENT)
    scene.end(stream.source, [stream.receiver])


@covers("spmr", pairs=[TO_THEM])
def test_libzmq_spmr_is_answered(scene_of: SceneOf) -> None:
    """A SUB that joins between two SPMs asks for one and gets it at once."""
    quiet = {"ambient_spm_ivl": "30s", "ihb_min": "10s", "ihb_max": "10s", "stall_ivl": "25s"}
    stream = open_stream(scene_of(TO_THEM, parameters=quiet))
    scene = stream.scene
    late = scene.start_receiver(LATE)
    scene.until_joined(late)
    scene.lose([LATE, "source"])
    sent = stream.deliver_until_asked(late, lambda: scene.counts("source")["spmr"] > 0)
    scene.until(lambda: scene.counts(LATE)["spm"] > 0, "an SPM that was asked for")
    scene.lose([LATE], FIVE_PERCENT)
    stream.deliver(more := messages(600))
    scene.lose([LATE])
    wanted = [*sent, *more]
    stream.send_until(lambda: len(late.messages) >= len(wanted), "every message at the late receiver")
    assert late.messages[: len(wanted)] == wanted
    scene.end(stream.source, [stream.receiver, late])


def test_libzmq_sub_rejoins_after_an_unrecoverable_loss(scene_of: SceneOf) -> None:
    """INT-Z7: SUB loses whole messages that our window has dropped, and continues with the next one.

    The receive window of SUB holds the outage; libzmq may wait for ever once its window is outrun, with any source.
    Messages have one part, because SUB joins the parts from before a loss with those after it.
    """
    scene = scene_of(TO_THEM, parameters={"txw_secs": "200ms", "txw_adv_secs": "50ms"})
    stream = open_stream(scene)
    before, gone, after = (
        [line(b"".join(parts_of(one))) for one in messages(count, (5000,), name)]
        for count, name in ((20, "before"), (30, "gone"), (300, "after"))
    )
    stream.deliver(before)
    scene.lose([DESK], f"udp dport {scene.port}")
    scene.lose([LATE])
    stream.source.put(gone)
    scene.until(
        lambda: scene.counts(LATE)["spm"] >= 6, "the end of the window: the sixth heartbeat comes 1.2 s after the data"
    )
    heard = scene.counts(DESK)["spm"]
    scene.lose([DESK])
    # libzmq sometimes loses the packet that reveals a loss. A heartbeat shall be that packet.
    scene.until(lambda: scene.counts(DESK)["spm"] > heard, "where the window is now")
    stream.source.put(after)
    for number in range(200):  # libzmq passes one lost packet for every packet that comes
        if stream.receiver.messages[-1] == after[-1]:
            break
        stream.source.put([line(b"%d" % number)])
        scene.until(lambda: scene.counts(DESK)["odata"] > 1000 + number, "that packet")  # noqa: B023
    stream.receiver.until(lambda: after[-1] in stream.receiver.messages, "the last message")
    got = stream.receiver.messages[1:]
    assert got[: len(before)] == before
    assert [one for one in got if one in gone] == []
    assert [one for one in got if one in after] == after
    scene.end(stream.source, [stream.receiver])


def test_our_receiver_rejoins_after_an_unrecoverable_loss(scene_of: SceneOf) -> None:
    """INT-Z7: messages that PUB's window has dropped are reported, and the next whole message is delivered."""
    scene = scene_of(FROM_THEM, settings={"RECOVERY_IVL": 200})  # 533 packets
    stream = open_stream(scene)
    before, gone, after = (messages(count, (5000,), name) for count, name in ((20, "a"), (300, "b"), (300, "c")))
    stream.deliver(before)
    scene.lose([DESK], f"udp dport {scene.port}")
    stream.source.put(gone)
    scene.until(lambda: scene.counts(DESK)["lost"] > 1000, "the end of the outage")
    scene.lose([DESK])
    stream.source.put(after)
    stream.receiver.until(lambda: stream.receiver.messages[-1] == after[-1], "the last message")
    got = stream.receiver.messages[1:]
    rest = iter([*before, *gone, *after])
    assert all(one in rest for one in got), "whole, in order, once"
    assert got[-len(after) + 1 :] == after[1:], "every message after the outage"
    missing = len(before) + len(gone) + len(after) - len(got)
    print(f"{missing} of {len(gone)} messages lost for good")
    assert 100 < missing <= len(gone) + 1
    assert any("lost" in text for text in stream.receiver.said)
    scene.end(stream.source, [stream.receiver])


@pytest.mark.parametrize("pair", [TO_THEM, FROM_THEM], ids=[TO_THEM.key, FROM_THEM.key])
def test_defaults_of_both_sides_work(pair: Pair, scene_of: SceneOf) -> None:
    """INT-Z9, INT-Z10: ZeroMQ's defaults on both sides, 100 kbit/s and windows of 80 packets."""
    scene = scene_of(pair, are_bare=True)
    stream = open_stream(scene)
    stream.deliver_lossy(messages(60, (300,)), "numgen inc mod 5 < 1")
    scene.end(stream.source, [stream.receiver])


def test_our_commands(scene_of: SceneOf) -> None:
    """`pgm send` and `pgm recv` take addresses in ZeroMQ's notation, with a subscription."""
    sent = [b"EUR 1.%03d" % at if at % 3 else b"USD 1.%03d" % at for at in range(300)]
    to_them, from_them = scene_of(TO_THEM), scene_of(FROM_THEM)
    sub = to_them.start_receiver(DESK, b"EUR")
    to_them.until_joined(sub)
    send = Pipe(
        "source",
        to_them.yard.hosts["source"],
        [*PGM, "send", "--lines", f"{to_them.url('source', 'up')}?rate=10Mbit/s"],
    )
    to_them.pipes.append(send)
    send.put(sent)
    wanted = [one for one in sent if one.startswith(b"EUR")]
    sub.until_messages(len(wanted))
    assert sub.messages == [line(one) for one in wanted]
    send.end_input()
    assert send.wait() == 0, send.log
    command = [*PGM, "recv", "--lines", "--subscribe", "EUR", from_them.url(LATE, "up")]
    recv = Pipe(LATE, from_them.yard.hosts[LATE], command)
    from_them.pipes.append(recv)
    from_them.until_joined(recv)
    pub = from_them.start_source()
    pub.put([line(one[:4], one[4:]) for one in sent])
    recv.until_messages(len(wanted))
    assert recv.messages == wanted


@pytest.mark.parametrize("pair", [TO_THEM, FROM_THEM], ids=[TO_THEM.key, FROM_THEM.key])
def test_zeromq_addresses_without_udp(pair: Pair, scene_of: SceneOf) -> None:
    """ZeroMQ's `pgm://` is IP protocol 113; our equivalent is `transport=ip`."""
    scene = scene_of(pair, transport="ip")
    receiver = scene.start_receiver(DESK)
    scene.until_joined(receiver)
    source = scene.start_source()
    source.put([line(b"hello")])
    receiver.until_messages(1)
    seat = scene.seat(DESK)
    with dropping(seat.host, "ip protocol 113 numgen random mod 1000 < 50"):
        source.put(sent := messages(1000))
        receiver.until_messages(1 + len(sent))
    assert receiver.messages == [line(b"hello"), *sent]


def test_zeromq_page_examples_work(scene_of: SceneOf) -> None:
    """Source and receivers run as written in docs/guide/zeromq.md, on the interface of the hosts here."""
    scene = scene_of(TO_THEM)
    publish, receive, theirs = (block.replace("eth0", "up") for block in blocks(page("guide/zeromq.md"), "python"))
    group = "239.192.1.1"
    theirs = theirs.replace("10.1.0.12", scene.yard.seat(LATE, "up").address)

    def start(name: str, interpreter: str, program: str) -> Pipe:
        pipe = Pipe(name, scene.yard.hosts[name], [interpreter, "-u", "-c", program])
        scene.pipes.append(pipe)
        return pipe

    def has_joined(name: str) -> bool:
        return f" {group}" in scene.yard.hosts[name].run("ip", "maddress", "show", "dev", "up")

    ours, sub = start(DESK, sys.executable, receive), start(LATE, PYTHON, theirs)
    scene.until(lambda: has_joined(DESK) and has_joined(LATE), ours.log + sub.log)
    assert start("source", sys.executable, publish).wait() == 0
    assert ours.wait() == 0, ours.log
    assert ours.messages == [b"b'EUR' b'1.0871'", b"b'USD 1.0000'"]
    assert sub.wait() == 0, sub.log
    assert sub.messages == [b"[b'EUR', b'1.0871']"]


def test_zeromq_page_tree_is_valid(tmp_path: Path) -> None:
    (tmp_path / "quotes.toml").write_text(blocks(page("guide/zeromq.md"), "toml")[0])
    topology = load_checked(tmp_path / "quotes.toml")
    assert topology.streams["quotes"].framing == "zeromq"
    assert topology.nodes["relay"].is_relay


HARMFUL = {
    "empty": b"",
    "shorter-than-its-offset": b"\0",
    "offset-outside": b"\0\x09abc",
    "in-fragments": b"\0\0" + bytes(3000),
}
SEND_UNFRAMED = """
import sys, pgm.blocking
with pgm.blocking.open_source(sys.argv[1]) as source:
    while True:
        source.send(bytes.fromhex(sys.argv[2]))
        source.flush()
        sys.stdin.readline() or sys.exit()
"""


@pytest.mark.parametrize("harm", HARMFUL)
def test_zeromq_unsent_packets_do_end_libzmq(harm: str, scene_of: SceneOf) -> None:
    """INT-Z8: without our framing such packets end the SUB process; the framing refuses them."""
    scene = scene_of(TO_THEM)
    sub = scene.start_receiver(DESK)
    scene.until_joined(sub)
    seat = scene.yard.seat("source", "up")
    url = f"pgm://{scene.group('up')}:{scene.port}?interface=up&address={seat.address}&data_port={scene.port}&profile=legacy"
    command = [sys.executable, "-c", SEND_UNFRAMED, url, HARMFUL[harm].hex()]
    source = Pipe("source", seat.host, command)
    scene.pipes.append(source)

    def is_gone() -> bool:
        source.put([b"again"])
        return sub.process.poll() is not None

    scene.until(is_gone, "the end of SUB")
    assert sub.process.returncode == -signal.SIGABRT, sub.log
    with pytest.raises(HarmfulPacket):
        refuse_harmful(HARMFUL[harm], 1428)
