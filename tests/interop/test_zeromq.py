"""ZeroMQ and us: every case of the matrix for every pair (checklist section 12.5).

A pair's stream is opened once; each test goes on in it with losses, messages and an account of its own. What a test changes in the
processes themselves, it changes in a scene of its own.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from pgm.wire.serial import SPACE
from tests.interop.matrix import Cells
from tests.interop.peers import Layout, Pair, Side
from tests.interop.pipes import Pipe
from tests.interop.yard import BURSTS, FIVE_PERCENT, TYPE_IS, TYPES, Yard
from tests.interop.zmq_scene import ZEROMQ, ZmqScene, dropping, line, messages, needs_zeromq, parts_of

pytestmark = [pytest.mark.network, needs_zeromq]

TO_THEM = Pair("to-zeromq", f"our source → {ZEROMQ}", Side.OURS, Side.THEIRS)
FROM_THEM = Pair("from-zeromq", f"{ZEROMQ} → our receivers", Side.THEIRS, Side.OURS)
BETWEEN = Pair(
    "between-zeromq", f"{ZEROMQ} → our relay and repairer → {ZEROMQ}", Side.THEIRS, Side.THEIRS, Layout.RELAY
)
PAIRS = (TO_THEM, FROM_THEM, BETWEEN)
IDS = [pair.key for pair in PAIRS]

CELLS: Cells = {pair.title: {} for pair in PAIRS}
NO_FIRST_SQN = "libzmq's PUB begins at sqn 0 and has no setting for it."
NOTES = [
    """\
## What libzmq 4.3.4 does by itself

Seen in these tests, between its own sockets as well as with ours, and worth knowing:

- After a loss that nobody repairs, SUB hands out the parts that it had of the message before it together with the parts of the next message that
  it reads. Messages of one part are not affected. Our receivers drop the broken message and report it.
- Its receive window is as many packets as `ZMQ_RATE` fills in `ZMQ_RECOVERY_IVL`, 80 by default. SUB may wait for ever after an outage that this
  window, or the source's, does not hold. With windows of 533 packets and an outage of 353, PUB to SUB was back within eight seconds in one run of
  four. From our source, and after an outage of 1,000 packets, a SUB with that window was back in 39 runs of 45; with a window of 26,667 packets
  and an outage of 108 that our window did not hold, in all of 16, each in less than a second. So set the same `ZMQ_RATE` on both sides, and a
  `ZMQ_RECOVERY_IVL` well above the outages that are expected.
- SUB puts one lost packet behind it for each packet that arrives, so it needs traffic to come back.
- SUB looks whether it should ask for an SPM only when data arrive.""",
]

PGM = [sys.executable, "-m", "deploy"]
DESK = "desk-1"
LATE = "desk-2"
ODATA_LOST = f"{TYPE_IS} {TYPES['odata']}"  # all of it: nothing comes but as RDATA
# From empty to several packets, and around the lengths at which a frame's head changes (INT-Z5).
SIZES = (0, 1, 20, 252, 253, 254, 255, 1000, 1400, 1424, 5000)

Test = Callable[..., Any]


def covers(*names: str, pairs: Sequence[Pair] = PAIRS) -> Callable[[Test], Test]:
    """The test covers cases of the matrix for these pairs."""

    def register(test: Test) -> Test:
        for pair in pairs:
            CELLS[pair.title] |= dict.fromkeys(names, test)
        return test

    return register


SceneOf = Callable[..., ZmqScene]


@pytest.fixture(scope="module")
def scene_of(shared_yard: Yard) -> Iterator[SceneOf]:
    """Make scenes. Status sockets need a short path."""
    folders: list[Path] = []
    scenes: list[ZmqScene] = []

    def make(pair: Pair, layout: Layout | None = None, **options: Any) -> ZmqScene:
        folders.append(Path(tempfile.mkdtemp(prefix="pgm-test-")))
        options = {"profile": "legacy", **options}
        scenes.append(ZmqScene(shared_yard, Path(), folders[-1], pair, layout or pair.layout, **options))
        return scenes[-1]

    shared_yard.send_trains(False)
    yield make
    for scene in scenes:
        scene.close()
    for folder in folders:
        shutil.rmtree(folder)


@attrs.define
class Stream:
    """A running stream with one receiver, and what the receiver had when the test began."""

    scene: ZmqScene
    source: Pipe
    receiver: Pipe

    def lose(self, *losses: str) -> None:
        """Lose at the receiver, count at the source too."""
        self.scene.lose([DESK, "source"], *losses)

    def deliver(self, sent: Sequence[bytes]) -> None:
        """Send messages; all of them come, in order, once, and no loss is told of."""
        begun, told = len(self.receiver.messages), len(self.receiver.said)
        self.source.put(sent)
        self.receiver.until_messages(begun + len(sent))
        assert self.receiver.messages[begun:] == list(sent)
        assert not [text for text in self.receiver.said[told:] if "lost" in text or "ends" in text]

    def deliver_lossy(self, sent: Sequence[bytes], *losses: str) -> None:
        """The same while something is lost; then nothing is lost any more."""
        self.lose(*losses)
        self.deliver(sent)
        lost = self.scene.counts(DESK)["lost"]
        asked = self.scene.counts("source")["nak"]
        print(f"{self.scene.pair.key}: {lost} lost at the receiver, {asked} NAKs at the source")
        assert lost
        if self.scene.layout is Layout.RELAY and self.scene.repairers:
            assert asked <= lost // 10, "what is lost below is repaired below"
        self.lose()


def open_stream(scene: ZmqScene, **settings: int) -> Stream:
    """Start everything; all that is sent from here on must come."""
    source, (receiver,) = scene.open(desks=[DESK], **settings)
    return Stream(scene, source, receiver)


@pytest.fixture(scope="module")
def streams(scene_of: SceneOf) -> Callable[[Pair, Layout], Stream]:
    """The streams that tests share, by pair and layout, opened when one is asked for."""
    opened: dict[tuple[Pair, Layout], Stream] = {}

    def find(pair: Pair, layout: Layout) -> Stream:
        if (pair, layout) not in opened:
            repairers = 0 if layout is Layout.DIRECT else 2
            scene = scene_of(pair, layout, repairers=repairers, parameters={"parent_retry_ivl": "200ms"})
            opened[pair, layout] = open_stream(scene)
        return opened[pair, layout]

    return find


@pytest.fixture
def stream(streams: Callable[[Pair, Layout], Stream], request: pytest.FixtureRequest) -> Iterator[Stream]:
    """One of them, without losses."""
    found = streams(*request.param)
    found.lose()
    yield found
    found.scene.yard.clear_rules()


def on(*places: tuple[Pair, Layout]) -> pytest.MarkDecorator:
    """Run the test in these streams."""
    ids = [f"{pair.key}-{layout.name.lower()}" for pair, layout in places]
    return pytest.mark.parametrize("stream", places, ids=ids, indirect=True)


every_pair = on(*((pair, pair.layout) for pair in PAIRS))
with_repairers = on((TO_THEM, Layout.FLAT), (FROM_THEM, Layout.FLAT), (BETWEEN, Layout.RELAY))


@covers("data")
@every_pair
def test_data(stream: Stream) -> None:
    """INT-Z3 to INT-Z6: messages of one to three parts, of every size."""
    two = [parts_of(one) for one in messages(600, SIZES)]
    sent = [line(*parts[: 1 + at % 2], *([b""] * (at % 3 == 0))) for at, parts in enumerate(two)]
    stream.deliver(sent)


@covers("loss5")
@every_pair
def test_loss(stream: Stream) -> None:
    stream.scene.lose(["source"], FIVE_PERCENT)
    stream.deliver_lossy(messages(1500), FIVE_PERCENT)


@on((TO_THEM, Layout.DIRECT))
def test_loss_of_trains(stream: Stream) -> None:
    """Of what leaves in one call a rule drops all or nothing."""
    stream.scene.yard.send_trains(True)
    stream.deliver_lossy(messages(6000), FIVE_PERCENT)
    stream.scene.yard.send_trains(False)


@covers("burst")
@every_pair
def test_bursts(stream: Stream) -> None:
    stream.deliver_lossy(messages(1500), BURSTS)


@covers("tail")
@every_pair
def test_tail(stream: Stream) -> None:
    """RCV-30: the last packets before a pause are known from SPM_LEAD alone."""
    stream.deliver(messages(20))
    stream.deliver_lossy(messages(20, name="tail"), ODATA_LOST)


@covers("fragments")
@every_pair
def test_messages_of_many_packets(stream: Stream) -> None:
    """INT-Z3. They are cut by ZeroMQ's framing; fragments of PGM's there are none, on which libzmq would abort."""
    stream.deliver_lossy(messages(60, (5000, 20_000, 100_000)), FIVE_PERCENT)


@covers("nak-list")
@every_pair
def test_nak_lists(stream: Stream) -> None:
    """INT-Q6: what is missing is asked for in lists."""
    scene = stream.scene
    asked = scene.asked
    scene.lose([DESK], f"{ODATA_LOST} numgen random mod 100 < 30")
    scene.yard.rule(asked, scene.port)
    stream.deliver(messages(1000))
    counted = scene.yard.counts(asked.host)
    print(f"{scene.pair.key}: {counted['nak']} NAKs, {counted['nak_list']} of them with lists")
    assert counted["nak_list"] > 0


@covers("latejoin")
@every_pair
def test_late_join(stream: Stream) -> None:
    """INT-Z7: whoever comes in the middle of a message begins with the next one, and gets all from there on."""
    scene = stream.scene
    late = scene.start_receiver(LATE)
    scene.until_joined(late)
    # Of the first message it hears the third packet and the fourth, and no SPM that would tell of those before.
    scene.lose([LATE], f"{TYPE_IS} {TYPES['spm']}", f"{ODATA_LOST} numgen inc mod 1000000 < 2")
    sent = messages(50, (5000,))
    stream.deliver(sent[:1])
    stream.deliver(sent[1:])
    late.until_messages(len(sent) - 1)
    assert scene.counts(LATE)["odata"] > 2
    scene.lose([LATE])
    scene.until(lambda: scene.counts(LATE)["spm"] > 0, "an SPM, without which libzmq gives up what it misses (INT-Q4)")
    scene.lose([LATE], FIVE_PERCENT)
    stream.deliver(more := messages(300, name="more"))
    late.until_messages(len(sent) - 1 + len(more))
    assert late.messages == [*sent[1:], *more]
    late.stop()


@covers("spmr", pairs=(FROM_THEM, BETWEEN))
@on((FROM_THEM, Layout.DIRECT), (BETWEEN, Layout.RELAY))
def test_spmr(stream: Stream) -> None:
    """Who has heard data and no SPM asks for one; from then on it repairs what it loses."""
    scene = stream.scene
    asked = scene.asked
    late = scene.start_receiver(LATE)
    scene.until_joined(late)
    scene.lose([LATE], f"{TYPE_IS} {TYPES['spm']}")
    scene.yard.rule(asked, scene.port)
    spmr_by_messages(stream, late, lambda: scene.yard.counts(asked.host)["spmr"] > 0)
    scene.lose([LATE])
    scene.until(lambda: scene.counts(LATE)["spm"] > 0, "an SPM")
    scene.lose([LATE], FIVE_PERCENT)
    sent = messages(600)
    stream.deliver(sent)
    late.until(lambda: late.messages[-1:] == sent[-1:], "the last message")
    assert late.messages[-600:] == sent
    late.stop()


def spmr_by_messages(stream: Stream, late: Pipe, was_asked: Callable[[], bool]) -> list[bytes]:
    """Send messages one by one until a late receiver has asked for an SPM; libzmq looks at its timers when data come."""
    sent = []
    while not was_asked():
        sent.append(line(b"first", b"%d" % len(sent)))
        assert len(sent) < 100, late.log
        stream.deliver(sent[-1:])
        late.until_messages(len(sent))
    assert late.messages == sent
    return sent


@covers("idle")
@every_pair
def test_idle(stream: Stream) -> None:
    """Until the SPMs have become rare; what is sent then is repaired like anything else."""
    scene = stream.scene
    stream.deliver(messages(10))
    stream.lose()
    scene.until(lambda: scene.counts(DESK)["spm"] >= 5, "five SPMs")
    stream.deliver_lossy(messages(300), FIVE_PERCENT)


@every_pair
def test_subscriptions_are_filtered_by_whoever_receives(stream: Stream) -> None:
    """INT-Z1: by the beginning of the first part, changed while it runs."""
    scene, receiver = stream.scene, stream.receiver
    sent = [line(b"EUR.%d" % at if at % 2 else b"USD.%d" % at, b"EUR") for at in range(200)]
    wanted = [one for at, one in enumerate(sent) if at % 2]
    begun = len(receiver.messages)
    scene.tell(receiver, b"+", b"EUR.", b"end")
    scene.tell(receiver, b"-", b"")
    stream.source.put([*sent, line(b"end")])
    receiver.until_messages(begun + len(wanted) + 1)
    assert receiver.messages[begun:] == [*wanted, line(b"end")]
    scene.tell(receiver, b"+", b"")
    scene.tell(receiver, b"-", b"EUR.", b"end")
    stream.deliver(sent)


def served(stream: Stream, repairer: str) -> int:
    """Repairs that a repairer has sent."""
    return stream.scene.counters(repairer).get("rdata_packets", 0)


@covers("flat-lan")
@on(*((pair, Layout.FLAT) for pair in PAIRS))
def test_flat_lan(stream: Stream) -> None:
    """Our repairer on the LAN of both: it repairs, and says no SPM."""
    before = served(stream, "repairer-1")
    stream.deliver_lossy(messages(1500), FIVE_PERCENT)
    assert served(stream, "repairer-1") > before
    assert stream.scene.counters("repairer-1").get("spm_packets", 0) == 0


@covers("restart-repairer")
@with_repairers
def test_restarted_repairer(stream: Stream) -> None:
    scene = stream.scene
    stream.lose(FIVE_PERCENT)
    stream.deliver(messages(600))
    scene.elements["repairer-1"].kill()
    stream.deliver(messages(600))
    scene.start_element("repairer-1").until_said("ready:")
    stream.deliver(messages(900))
    assert served(stream, "repairer-1"), "it serves again"


@covers("two-repairers")
@with_repairers
def test_two_repairers(stream: Stream) -> None:
    scene = stream.scene
    stream.lose(FIVE_PERCENT)
    before = served(stream, "repairer-2")
    scene.elements["repairer-1"].kill()
    stream.deliver(messages(1500))
    assert served(stream, "repairer-2") > before
    scene.start_element("repairer-1").until_said("ready:")


# Scenes of their own


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
    """ZMQ_MULTICAST_MAXTPDU is our max_tpdu and the headers of IP and UDP."""
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
def test_spmr_of_theirs(scene_of: SceneOf) -> None:
    """A SUB that comes between two SPMs asks for one and is answered at once."""
    quiet = {"ambient_spm_ivl": "30s", "ihb_min": "10s", "ihb_max": "10s", "stall_ivl": "25s"}
    stream = open_stream(scene_of(TO_THEM, parameters=quiet))
    scene = stream.scene
    late = scene.start_receiver(LATE)
    scene.until_joined(late)
    scene.lose([LATE, "source"])
    sent = spmr_by_messages(stream, late, lambda: scene.counts("source")["spmr"] > 0)
    scene.until(lambda: scene.counts(LATE)["spm"] > 0, "an SPM that was asked for")
    scene.lose([LATE], FIVE_PERCENT)
    stream.deliver(more := messages(600))
    scene.lose([LATE])
    stream.deliver(end := [line(b"end")])
    late.until(lambda: late.messages[-1:] == end, "the last message")
    assert late.messages == [*sent, *more, *end]
    scene.end(stream.source, [stream.receiver, late])


def test_theirs_rejoin_after_a_loss_for_good(scene_of: SceneOf) -> None:
    """INT-Z7: what our window has left behind is lost as whole messages; SUB goes on with the next one that begins.

    Its receive window holds the outage: a libzmq whose window is outrun may wait for ever, whoever the source is. Of one part
    are the messages since SUB hands out the parts from before a loss together with those from behind it.
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
    scene.lose([DESK])
    stream.source.put(after)
    for number in range(200):  # libzmq puts one lost packet behind it for every packet that comes
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


def test_ours_rejoin_after_a_loss_for_good(scene_of: SceneOf) -> None:
    """INT-Z7: what PUB's window has left behind is reported, and the next message that begins is delivered."""
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
    assert got[-len(after) + 1 :] == after[1:], "from the first message behind the outage on"
    missing = len(before) + len(gone) + len(after) - len(got)
    print(f"{missing} of {len(gone)} messages lost for good")
    assert 100 < missing <= len(gone) + 1
    assert any("lost" in text for text in stream.receiver.said)
    scene.end(stream.source, [stream.receiver])


@pytest.mark.parametrize("pair", [TO_THEM, FROM_THEM], ids=[TO_THEM.key, FROM_THEM.key])
def test_as_it_is_without_any_setting(pair: Pair, scene_of: SceneOf) -> None:
    """INT-Z9, INT-Z10: ZeroMQ's defaults on both sides, 100 kbit/s and windows of 80 packets."""
    scene = scene_of(pair, are_bare=True)
    stream = open_stream(scene)
    stream.deliver_lossy(messages(60, (300,)), "numgen random mod 100 < 20")
    scene.end(stream.source, [stream.receiver])


def test_our_commands(scene_of: SceneOf) -> None:
    """`pgm send` and `pgm recv` on addresses as ZeroMQ writes them, with a subscription."""
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
def test_their_addresses_without_udp(pair: Pair, scene_of: SceneOf) -> None:
    """ZeroMQ's `pgm://` is IP protocol 113; ours says `transport=ip`."""
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
