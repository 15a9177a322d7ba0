"""Streams between libzmq and our library, and the steps that their tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs

from tests.folders import short_folder
from tests.interop.matrix import Cells
from tests.interop.support.peers import Layout, Pair, Side
from tests.interop.support.pipes import Pipe
from tests.interop.support.yard import TYPE_IS, TYPES, Yard
from tests.interop.support.zmq_scene import ZEROMQ, ZmqScene, line

TO_THEM = Pair("to-zeromq", f"our source → {ZEROMQ}", Side.OURS, Side.THEIRS)
FROM_THEM = Pair("from-zeromq", f"{ZEROMQ} → our receivers", Side.THEIRS, Side.OURS)
BETWEEN = Pair(
    "between-zeromq", f"{ZEROMQ} → our relay and repairer → {ZEROMQ}", Side.THEIRS, Side.THEIRS, Layout.RELAY
)
PAIRS = (TO_THEM, FROM_THEM, BETWEEN)
IDS = [pair.key for pair in PAIRS]

DESK = "desk-1"
LATE = "desk-2"
ODATA_LOST = f"{TYPE_IS} {TYPES['odata']}"  # all of it, so that data come as RDATA only

Test = Callable[..., Any]
SceneOf = Callable[..., ZmqScene]


def covering(cells: Cells) -> Callable[..., Callable[[Test], Test]]:
    """Return a decorator that registers tests in a module's cells.

    Use: `@covers("data", "loss5", pairs=[TO_THEM])`.
    """

    def covers(*names: str, pairs: Sequence[Pair] = PAIRS) -> Callable[[Test], Test]:
        def register(test: Test) -> Test:
            for pair in pairs:
                cells[pair.title] |= dict.fromkeys(names, test)
            return test

        return register

    return covers


@contextmanager
def scenes(yard: Yard) -> Iterator[SceneOf]:
    """Yield a maker of scenes for the length of a block; status sockets need a short path."""
    with ExitStack() as stack:

        def make(pair: Pair, layout: Layout | None = None, **options: Any) -> ZmqScene:
            folder = stack.enter_context(short_folder())
            scene = ZmqScene(yard, Path(), folder, pair, layout or pair.layout, **{"profile": "legacy", **options})
            stack.callback(scene.close)
            return scene

        yard.send_trains(False)
        yield make


@attrs.define
class Stream:
    """Running stream with one receiver, and the receiver's messages at the start of the test."""

    scene: ZmqScene
    source: Pipe
    receiver: Pipe

    def lose(self, *losses: str) -> None:
        """Drop packets at the receiver; count there and at the source."""
        self.scene.lose([DESK, "source"], *losses)

    def deliver(self, sent: Sequence[bytes]) -> None:
        """Send messages; assert that all come in order and once, without a reported loss."""
        begun, told = len(self.receiver.messages), len(self.receiver.said)
        self.source.put(sent)
        self.receiver.until_messages(begun + len(sent))
        assert self.receiver.messages[begun:] == list(sent)
        assert not [text for text in self.receiver.said[told:] if "lost" in text or "ends" in text]

    def deliver_lossy(self, sent: Sequence[bytes], *losses: str) -> None:
        """Deliver messages under losses, which end afterwards."""
        self.lose(*losses)
        self.deliver(sent)
        lost = self.scene.counts(DESK)["lost"]
        asked = self.scene.counts("source")["nak"]
        print(f"{self.scene.pair.key}: {lost} lost at the receiver, {asked} NAKs at the source")
        assert lost
        if self.scene.layout is Layout.RELAY:
            assert asked <= 1 + lost // 10, "losses below are repaired below"
        self.lose()

    def send_until(self, holds: Callable[[], object], what: str) -> None:
        """Send messages until a condition holds. A quiet source repairs its last losses at libzmq only so.

        libzmq sets no timer after a read that delivered data: SUB then asks for a further gap when the next packet comes.
        A starved SUB was silent for 10.0 s after a repair, until the next heartbeat of a quiet source. The gap had left the
        window of 10 s by then.
        """

        def is_met() -> object:
            self.source.put([line(b"more")])
            return holds()

        self.scene.until(is_met, what)

    def deliver_until_asked(self, late: Pipe, was_asked: Callable[[], bool]) -> list[bytes]:
        """Send messages one by one until a late receiver has sent an SPMR; return the messages.

        libzmq serves its timers only when data come.
        """
        sent: list[bytes] = []
        while not was_asked():
            sent.append(line(b"first", b"%d" % len(sent)))
            assert len(sent) < 100, late.log
            self.deliver(sent[-1:])
            late.until_messages(len(sent))
        assert late.messages == sent
        return sent


def open_stream(scene: ZmqScene, **settings: int) -> Stream:
    """Start all processes; every message sent from here on must come."""
    source, (receiver,) = scene.open(desks=[DESK], **settings)
    return Stream(scene, source, receiver)
