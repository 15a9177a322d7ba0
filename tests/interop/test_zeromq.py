"""ZeroMQ and our nodes: every case of the matrix for every pair (checklist section 12.5).

The tests of a pair share one stream. Each test has losses, messages and an account of its own. Cases that change the
processes themselves are in `test_zeromq_alone.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.interop.conftest import SIGNER
from tests.interop.matrix import Cells
from tests.interop.support.peers import Layout, Pair, Scene
from tests.interop.support.yard import BURSTS, FIVE_PERCENT, TYPE_IS, TYPES, Yard
from tests.interop.support.zmq_scene import line, messages, needs_zeromq, parts_of
from tests.interop.support.zmq_stream import (
    BETWEEN,
    DESK,
    FROM_THEM,
    LATE,
    ODATA_LOST,
    PAIRS,
    TO_THEM,
    Stream,
    covering,
    open_stream,
    scenes,
)
from tests.interop.test_openpgm_hostile import attack

pytestmark = [pytest.mark.network, needs_zeromq]

CELLS: Cells = {pair.title: {} for pair in PAIRS}
NOTES = [
    """\
## Behaviour of libzmq 4.3.4

These tests show the following behaviour, between ZeroMQ's own sockets as well as with this project:

- After a final loss, SUB delivers the received parts of the broken message together with the parts of the next message. Messages of one part are
  not affected. Receivers of this project drop the broken message and report it.
- The receive window of SUB has as many packets as `ZMQ_RATE` fills in `ZMQ_RECOVERY_IVL`, 80 by default. SUB may wait for ever after an outage longer than
  this window or the source's. Set the same `ZMQ_RATE` on both sides, and a `ZMQ_RECOVERY_IVL` well above the expected outages.

    | source | window of SUB, packets | outage, packets | runs in which SUB recovered |
    |---|---|---|---|
    | PUB | 533 | 353 | 1 of 4, within eight seconds |
    | this project | 533 | 1,000 | 39 of 45 |
    | this project | 26,667 | 108, beyond the source's window | 16 of 16, each within a second |

- SUB gives up one lost packet for each arriving packet, so it needs traffic to recover.
- SUB checks the need for an SPM request only when data arrive.
- SUB may ask for a lost packet only when another packet arrives, because libzmq sets no timer after a read that delivered data. After a lost repair
  the next NAK came 5.1 s later with heartbeats of 5 s, and 0.3 s later with the defaults. `ihb_min` must be well below `txw_secs`.
- In about one run of three the message that reveals a final loss to SUB is lost too. If a heartbeat SPM reveals the loss, the next message arrives.""",
]

# From empty to several packets, and around the lengths at which a frame's head changes (INT-Z5).
SIZES = (0, 1, 20, 252, 253, 254, 255, 1000, 1400, 1424, 5000)

covers = covering(CELLS)


@pytest.fixture(scope="module")
def streams(shared_yard: Yard) -> Iterator[Callable[[Pair, Layout], Stream]]:
    """Yield the streams that tests share, by pair and layout, opened at the first use."""
    opened: dict[tuple[Pair, Layout], Stream] = {}

    def find(pair: Pair, layout: Layout) -> Stream:
        if (pair, layout) not in opened:
            repairers = 0 if layout is Layout.DIRECT else 2
            scene = scene_of(pair, layout, repairers=repairers, parameters={"parent_retry_ivl": "200ms"})
            opened[pair, layout] = open_stream(scene)
        return opened[pair, layout]

    with scenes(shared_yard) as scene_of:
        yield find


@pytest.fixture
def stream(streams: Callable[[Pair, Layout], Stream], request: pytest.FixtureRequest) -> Iterator[Stream]:
    """Return a shared stream without losses whose packets leave one by one."""
    found = streams(*request.param)
    found.scene.yard.send_trains(False)
    found.lose()
    yield found
    found.scene.yard.clear_rules()


def on(*places: tuple[Pair, Layout]) -> pytest.MarkDecorator:
    """Run the test in the streams of these pairs."""
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


def test_signed_stream(shared_yard: Yard, sign: Callable[[Scene], None]) -> None:
    """The receiver skips the signatures, which our relay verifies."""
    with scenes(shared_yard) as make:
        scene = make(TO_THEM, Layout.RELAY, signer=SIGNER.public.line)
        sign(scene)
        open_stream(scene).deliver_lossy(messages(600), FIVE_PERCENT)


def test_source_skips_the_code_of_a_nak(shared_yard: Yard) -> None:
    """A PUB repairs a packet although the NAK has OPT_PGM_CODE."""
    with scenes(shared_yard) as make:
        stream = open_stream(make(FROM_THEM, Layout.DIRECT))
        stream.deliver(messages(50))
        assert attack(stream.scene, "coded_nak") == [b"coded_nak"]
        stream.deliver(messages(50, name="n"))


@covers("loss5")
@every_pair
def test_loss(stream: Stream) -> None:
    stream.deliver_lossy(messages(1500), FIVE_PERCENT)


@on((TO_THEM, Layout.DIRECT))
def test_loss_of_trains(stream: Stream) -> None:
    """A rule drops all or none of the packets that leave in one call."""
    stream.scene.yard.send_trains(True)
    stream.deliver_lossy(messages(6000), FIVE_PERCENT)


@covers("burst")
@every_pair
def test_bursts(stream: Stream) -> None:
    stream.deliver_lossy(messages(1500), BURSTS)


@covers("tail")
@every_pair
def test_tail(stream: Stream) -> None:
    """RCV-30: SPM_LEAD alone reveals the last packets before a pause."""
    stream.deliver(messages(20))
    stream.deliver_lossy(messages(20, name="tail"), ODATA_LOST)


@covers("fragments")
@every_pair
def test_messages_of_many_packets(stream: Stream) -> None:
    """INT-Z3: ZeroMQ's framing cuts the messages, because libzmq aborts on PGM fragments."""
    stream.deliver_lossy(messages(60, (5000, 20_000, 100_000)), FIVE_PERCENT)


@covers("nak-list")
@every_pair
def test_nak_lists(stream: Stream) -> None:
    """INT-Q6: NAK lists ask for the missing packets."""
    scene = stream.scene
    asked = scene.nak_target
    scene.lose([DESK], f"{ODATA_LOST} numgen random mod 100 < 30")
    scene.yard.rule(asked, scene.port)
    stream.deliver(messages(1000))
    counted = scene.yard.counts(asked.host)
    print(f"{scene.pair.key}: {counted['nak']} NAKs, {counted['nak_list']} of them with lists")
    assert counted["nak_list"] > 0


@covers("latejoin")
@every_pair
def test_late_join(stream: Stream) -> None:
    """INT-Z7: a receiver that joins within a message starts with the next one and misses none after it."""
    scene = stream.scene
    # The receiver gets the third and fourth packet of the first message, and no SPM that would reveal the earlier ones.
    scene.lose([LATE], f"{TYPE_IS} {TYPES['spm']}", f"{ODATA_LOST} numgen inc mod 1000000 < 2")
    late = scene.start_receiver(LATE)
    scene.until_joined(late)
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
    """A receiver with data and no SPM asks for one, and then repairs its losses."""
    scene = stream.scene
    asked = scene.nak_target
    scene.lose(
        [LATE], f"{TYPE_IS} {TYPES['spm']}"
    )  # set before the receiver listens, because a single SPM would keep it from asking
    scene.yard.rule(asked, scene.port)
    late = scene.start_receiver(LATE)
    scene.until_joined(late)
    stream.deliver_until_asked(late, lambda: scene.yard.counts(asked.host)["spmr"] > 0)
    scene.lose([LATE])
    scene.until(lambda: scene.counts(LATE)["spm"] > 0, "an SPM")
    scene.lose([LATE], FIVE_PERCENT)
    sent = messages(600)
    stream.deliver(sent)
    late.until(lambda: late.messages[-1:] == sent[-1:], "the last message")
    assert late.messages[-600:] == sent
    late.stop()


@covers("idle")
@every_pair
def test_idle(stream: Stream) -> None:
    """The pause lasts until SPMs have become rare; later losses are repaired as usual."""
    scene = stream.scene
    stream.deliver(messages(10))
    stream.lose()
    scene.until(lambda: scene.counts(DESK)["spm"] >= 5, "five SPMs")
    stream.deliver_lossy(messages(300), FIVE_PERCENT)


@every_pair
def test_subscriptions_are_filtered_at_the_receiver(stream: Stream) -> None:
    """INT-Z1: the beginning of the first part is the filter, and it changes while the receiver runs."""
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
    """Return the repairs that a repairer has sent."""
    return stream.scene.counters(repairer).get("rdata_packets", 0)


@covers("flat-lan")
@on(*((pair, Layout.FLAT) for pair in PAIRS))
def test_flat_lan(stream: Stream) -> None:
    """Our repairer on the LAN of both peers repairs and sends no SPM."""
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
    assert served(stream, "repairer-1"), "the repairer serves again"


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
