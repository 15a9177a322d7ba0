"""docs/internals/walk.md against running trees: real sockets, and every function that a node enters."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np
import pytest
import trio

import aggregator.process
import repairer.process
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.structures.arena import Arena
from pgm.impairments import Impairment, Injector
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.endpoint.open import driven, open_receiver, open_source
from pgm.net.endpoint.receiver import Receiver
from pgm.net.endpoint.source import Source
from pgm.net.link.node_links import open_links
from pgm.topology.load import loads
from pgm.topology.model import Topology
from pgm.topology.plan import plan_node
from pgm.wire.control_packets import Nak, encode
from pgm.wire.options import NakList
from tests.net.support.places import Place, below_a_relay, one_segment
from tests.tidy.walk_tracer import (
    PAGE,
    ROW,
    Call,
    Figures,
    Line,
    Tracer,
    chapters,
    figures_of,
    follow,
    follow_lines,
    lines_of,
    steps_of,
)

MESSAGES = [b"%04d" % number for number in range(40)]
LOST_ROW = 20
TREE = "A packet lost in a tree"
TEXT = chapters("##", PAGE.read_text())
ROWS = {title: Figures(*map(int, figures)) for title, *figures in ROW.findall(PAGE.read_text())}
ATTEMPTS = 50  # a scheduler decides whether a NAK comes before data or behind it

NODES = {"aggregator": "relay", "x": "desk-1", "y": "desk-2"}  # names in the walk, and in the tree


class OneLoss(Injector):
    """Impairment that drops one packet of the first train that is long enough."""

    def __init__(self) -> None:
        super().__init__(Impairment(), "walk")
        self.is_done = False

    def draw(self, count: int) -> np.ndarray | None:
        if self.is_done or count != len(MESSAGES):
            return None
        self.is_done = True
        return np.arange(count) == LOST_ROW


class IdleApplication:
    """Application of an element."""

    def take(self, effect: Effect) -> None:
        """Accept no delivery."""

    def after(self) -> Effects:
        return NOTHING


BUILDERS: dict[str, Callable[..., object]] = {
    "aggregator": aggregator.process.build,
    "repairer": repairer.process.build,
}


@asynccontextmanager
async def element(topology: Topology, role: str, tracer: Tracer) -> AsyncIterator[TrioDriver]:
    """Run an element on real sockets."""
    plan = plan_node(topology, NODES.get(role, role))
    links = open_links(plan, Arena())
    core = BUILDERS[role](plan, [link.segment for link in links])
    driver = TrioDriver(core, TrioReads(links), IdleApplication())  # type: ignore[arg-type]
    tracer.name(role, driver, driver.reads)
    async with driven(driver):
        yield driver


async def until(is_met: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds."""
    while not is_met():
        await trio.lowlevel.checkpoint()


async def run_tree(tracer: Tracer) -> list[bytes]:
    """Send the messages through the tree; return the messages of X."""
    # A starved process reads the repair later than 100 ms after the NAK: the relay must not repair by then.
    timers = {"parameters": 'nak_rdata_ivl = "2s"', "relay": 'rdata_hold_ivl = "1s"'}
    topology = loads(below_a_relay(Place.new(), has_repairer=True, quiet="10ms", **timers))
    async with AsyncExitStack() as stack:
        elements = [await stack.enter_async_context(element(topology, role, tracer)) for role in BUILDERS]
        receivers: dict[str, Receiver] = {}
        for name in ("x", "y"):
            receivers[name] = await stack.enter_async_context(open_receiver(topology, node=NODES[name]))
            tracer.name(name, receivers[name], receivers[name].driver, receivers[name].driver.reads)
        receivers["x"].links[0].injector = OneLoss()
        source: Source = await stack.enter_async_context(open_source(topology, node="source"))
        tracer.name("source", source, source.driver, source.driver.reads)
        for receiver in receivers.values():
            assert await receiver.next_batch() is not None  # Opened: the path is known
        with tracer.running():
            await source.send_batch(MESSAGES)
            got: dict[str, list[bytes]] = {"x": [], "y": []}
            for name, receiver in reversed(receivers.items()):
                # An application that waits would read the socket itself, which is another path than the documented one.
                await until(lambda one=receiver: one.counters.delivered_packets >= len(MESSAGES))  # type: ignore[misc]
                while len(got[name]) < len(MESSAGES):
                    batch = await receiver.next_batch()
                    got[name] += list(batch)  # type: ignore[arg-type]
            # an element may hear the repair after X
            await until(lambda: not any(row.pending_sqns for one in elements for row in one.core.status(one.now_ns())))
        assert got["y"] == MESSAGES
    return got["x"]


def test_the_walk_is_what_a_running_tree_does() -> None:
    steps = {title: steps_of(part) for title, part in chapters("###", TEXT[TREE]).items()}
    tracer = Tracer({(file, function) for chapter in steps.values() for _, file, function in chapter})

    async def main() -> list[bytes]:
        with trio.fail_after(30):
            return await run_tree(tracer)

    assert trio.run(main) == MESSAGES
    for title, chapter in steps.items():
        assert chapter, f"chapter {title!r} names no functions"
        for node in {node for node, _, _ in chapter}:
            own = [step for step in chapter if step[0] == node]
            missing = follow(own, tracer.calls)
            assert missing is None, f"chapter {title!r}: {missing} does not follow at {node}"
    whole = [step for title, chapter in steps.items() if title[:1] in "1245" for step in chapter]
    assert follow([step for step in whole if step[0] != "y"], tracer.calls) is None


Walk = Callable[[], Awaitable[object]]  # goes the walk once, if the scheduler lets it


@asynccontextmanager
async def a_source(tracer: Tracer, place: Place, more: str = "") -> AsyncIterator[tuple[Topology, Source]]:
    """Open a source that is the only node."""
    topology = loads(one_segment(place) + more)
    async with open_source(topology, node="source") as source:
        tracer.name("source", source, source.driver, source.driver.reads)
        yield topology, source


@asynccontextmanager
async def source_and_receiver(tracer: Tracer) -> AsyncIterator[tuple[Source, Receiver]]:
    """Open a source and its receiver."""
    async with a_source(tracer, Place.new()) as (topology, source), open_receiver(topology, node="desk-1") as receiver:
        tracer.name("receiver", receiver, receiver.driver, receiver.driver.reads)
        assert await receiver.next_batch() is not None
        yield source, receiver


class NakSocket:
    """Socket of a receiver that sends NAKs for packets of a source, each for others."""

    def __init__(self, source: Source, place: Place, host: int) -> None:
        self._source = source
        self._sqn = source.next_sqn - 1
        self._ends = place.address(1), place.group()
        self._to = place.address(host), source.links[0].plan.unicast_port
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((place.address(100), 0))

    def send(self) -> None:
        """Send a NAK for two packets."""
        self._sqn -= 4
        options = (NakList(sqns=(self._sqn + 2,)),)
        tsi, (source_nla, group_nla) = self._source.tsi, self._ends
        nak = Nak(tsi=tsi, data_port=7500, sqn=self._sqn, source_nla=source_nla, group_nla=group_nla, options=options)
        self._sock.sendto(encode(nak), self._to)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


@asynccontextmanager
async def message_out(tracer: Tracer) -> AsyncIterator[Walk]:
    async with a_source(tracer, Place.new()) as (_, source):

        async def walk() -> None:
            await source.send(b"message")
            await source.flush()

        yield walk


@asynccontextmanager
async def batch_out(tracer: Tracer) -> AsyncIterator[Walk]:
    async with a_source(tracer, Place.new()) as (_, source):

        async def walk() -> None:
            await source.send_batch(MESSAGES)
            await source.flush()

        yield walk


@asynccontextmanager
async def packet_in(tracer: Tracer) -> AsyncIterator[Walk]:
    got: list[object] = []

    async def application(receiver: Receiver) -> None:
        async for item in receiver:
            got.append(item)

    async with source_and_receiver(tracer) as (source, receiver), trio.open_nursery() as nursery:
        nursery.start_soon(application, receiver)

        async def walk() -> None:
            count = len(got) + 1
            await source.send(b"message")
            await until(lambda: len(got) >= count)

        yield walk
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def train_in(tracer: Tracer) -> AsyncIterator[Walk]:
    async with source_and_receiver(tracer) as (source, receiver):

        async def walk() -> None:
            until_packets = receiver.counters.delivered_packets + len(MESSAGES)
            await source.send_batch(MESSAGES)
            await until(lambda: receiver.counters.delivered_packets >= until_packets)
            assert await receiver.next_batch() is not None

        yield walk


@asynccontextmanager
async def nak_later(tracer: Tracer, sends_data: bool = False) -> AsyncIterator[Walk]:
    place = Place.new()
    async with a_source(tracer, place) as (_, source):
        await source.send_batch(MESSAGES * 10)
        await source.flush()
        naks = NakSocket(source, place, 1)

        async def walk() -> None:
            packets, sqn = source.counters.rdata_packets + 2, source.next_sqn
            naks.send()
            if sends_data:
                source.try_send(b"message")
            await until(lambda: source.counters.rdata_packets >= packets and source.next_sqn >= sqn + sends_data)

        yield walk
        naks.close()


def nak_at_once(tracer: Tracer) -> object:
    return nak_later(tracer, sends_data=True)


@asynccontextmanager
async def nak_at_a_repairer(tracer: Tracer) -> AsyncIterator[Walk]:
    place = Place.new()
    node = f'\n[nodes.repairer]\nrole = "repairer"\nsegment = "lan"\naddress = "{place.address(4)}"\nparents = ["source"]\n'
    async with a_source(tracer, place, node) as (topology, source), element(topology, "repairer", tracer) as driver:
        counters = driver.core.counters
        await source.send_batch(MESSAGES * 10)
        await until(lambda: counters.received_packets >= 10 * len(MESSAGES))
        naks = NakSocket(source, place, 4)

        async def walk() -> None:
            packets = counters.rdata_packets + 2
            naks.send()
            await until(lambda: counters.rdata_packets >= packets)

        yield walk
        naks.close()


def test_follow_lines_skips_the_calls_of_another_packet() -> None:
    """An SPM may be read before the train. Its read and parser are then no part of the walk."""
    lines: list[Line] = [
        (0, ("x", "reads.py", "drain")),
        (1, ("x", "train.py", "parse")),
        (2, ("x", "group.py", "group")),
    ]
    (_, drain), (_, parse), (_, group) = lines
    spm = [Call(drain, 0, (), 1, 4), Call(parse, 1, ("reads.py",), 2, 3)]
    train = [Call(drain, 0, (), 5, 10), Call(parse, 1, ("reads.py",), 6, 9), Call(group, 2, ("train.py",), 7, 8)]
    assert follow_lines(lines, spm + train) == (train, None)
    assert figures_of(train) == Figures(steps=2, climbs=0, modules=3)
    assert follow_lines(lines, spm + train[2:]) == (spm, lines[2])
    by_backlog = Call(parse, 1, ("backlog.py", "reads.py"), 6, 9)
    assert follow_lines(lines, [train[0], by_backlog, train[2]]) == (train[:1], lines[1])


WALKS = {
    "A message out": message_out,
    "A batch out": batch_out,
    "A packet in": packet_in,
    "A train in": train_in,
    "A NAK at a source that sends": nak_at_once,
    "A NAK at an idle source": nak_later,
    "A NAK at a repairer": nak_at_a_repairer,
}


def test_walks_of_page_are_those_that_are_run() -> None:
    assert [*ROWS] == [title for title in TEXT if title != TREE] == [*WALKS]


@pytest.mark.parametrize("title", WALKS)
def test_walk_and_figures_are_those_of_running_code(title: str) -> None:
    lines = lines_of(TEXT[title])
    tracer = Tracer({(file, function) for _, (_, file, function) in lines})

    async def main() -> None:
        missing = None
        with trio.fail_after(30):
            async with WALKS[title](tracer) as walk:  # type: ignore[attr-defined]
                for _ in range(ATTEMPTS):
                    with tracer.running():
                        await walk()
                    calls, missing = follow_lines(lines, tracer.calls)
                    if missing is None:
                        break
        assert missing is None, f"{missing} does not follow below modules that the walk names"
        figures = figures_of(calls)
        assert ROWS[title] == figures, f"{figures} belong into the table of the page"

    trio.run(main)
