"""Receivers that continue where their application stopped: from caches, with a file or with stored positions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import pgm
import pgm.blocking
from pgm import Closed, Lost, Message, Opened, Position, UsageError
from pgm.errors import ProcessError
from pgm.net.endpoint.source import Source
from pgm.topology.load import loads
from pgm.topology.model import Topology
from tests.net.support.elements import Tree, running
from tests.net.support.listening import PATIENCE_S, until
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, count, processes
from tests.net.trees.test_late_join import tree_of

LINES = [b"%05d" % number for number in range(100)]
FRAMINGS = ("none", "batch", "zeromq")


def topology_of(place: Place, framing: str = "none", window: str = "300ms") -> Topology:
    """Return a tree whose source soon forgets, with a repairer that does not."""
    text = tree_of(place, window)
    return loads(text if framing == "none" else text.replace("[streams.s]\n", f'[streams.s]\nframing = "{framing}"\n'))


@asynccontextmanager
async def tree_at(place: Place, framing: str = "none") -> AsyncIterator[tuple[Topology, Tree, Source]]:
    """Run a source and a repairer that have met."""
    topology = topology_of(place, framing)
    async with running(topology, "repairer", "source") as tree:
        with trio.fail_after(PATIENCE_S):
            await until(lambda: tree.core("repairer").counters.spm_packets_in)
            yield topology, tree, tree.sources["source"]


async def send(tree: Tree, source: Source, payloads: Sequence[bytes]) -> None:
    """Send messages, some of them in one packet, and wait until the repairer has them."""
    for at in range(0, len(payloads), 7):
        await source.send_batch(payloads[at : at + 7], flush=True)
    await source.flush()
    await until(lambda: tree.core("repairer").counters.received_packets >= source.next_sqn)


async def take(receiver: Any, count: int) -> list[bytes]:
    """Take messages one by one, and let the application process them. Nothing may be lost."""
    got: list[bytes] = []
    async for item in receiver:
        assert not isinstance(item, Lost), item
        if isinstance(item, Message):
            got.append(item.payload)
            if len(got) == count:
                break
    return got


# every fifth message needs several packets, and others share one
PAYLOADS = [b"%05d" % number + bytes(0 if number % 5 else 3000) for number in range(400)]


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_durable_receiver_goes_on_with_the_next_message(place: Place, tmp_path: Path, framing: str) -> None:
    file = tmp_path / "desk"
    got: list[bytes] = []
    async with tree_at(place, framing) as (topology, tree, source):
        async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
            await until(lambda: receiver.known_sources)
            await send(tree, source, PAYLOADS[:100])
            got += await take(receiver, 39)
        for many in (61, 90, 10):  # nothing that was taken before the end of a block comes again
            await send(tree, source, PAYLOADS[len(got) + 61 : len(got) + 61 + many])
            async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
                got += await take(receiver, many)
    assert got == PAYLOADS[: len(got)]
    assert len(got) == 39 + 61 + 90 + 10


@pytest.mark.parametrize("framing", FRAMINGS)
async def test_stored_positions_give_every_message_once(place: Place, framing: str) -> None:
    got: list[bytes] = []
    stored: list[str] = []
    async with tree_at(place, framing) as (topology, tree, source):
        for round_ in range(6):
            async with pgm.open_receiver(topology, node="desk-1", start=stored) as receiver:
                if not round_:
                    await until(lambda: receiver.known_sources)
                    await send(tree, source, PAYLOADS)
                for _ in range(17):
                    got += await take(receiver, 1)
                    stored = [str(receiver.position)]
    assert got == PAYLOADS[: 6 * 17]


async def test_an_application_that_raises_gets_its_message_again(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "desk"
    async with tree_at(place) as (topology, tree, source):
        with suppress(RuntimeError):
            async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
                await until(lambda: receiver.known_sources)
                await send(tree, source, PAYLOADS[:20])
                assert await take(receiver, 5) == PAYLOADS[:5]
                raise RuntimeError
        async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
            assert await take(receiver, 16) == PAYLOADS[4:20]


async def test_a_restarted_source_is_heard_from_its_first_packet(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "desk"
    topology = topology_of(place)
    seen: list[object] = []
    async with running(topology, "repairer") as tree:
        with trio.fail_after(PATIENCE_S):
            async with pgm.open_source(topology, node="source") as source:
                async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
                    await until(lambda: receiver.known_sources)
                    await source.send_batch(LINES[:10])
                    await take(receiver, 4)
                    await until(lambda: receiver.sessions[0].lead == 9)
                first = source.tsi
            async with pgm.open_source(topology, node="source") as source:
                await source.send_batch(LINES[10:20])
                await source.flush()
                await until(lambda: tree.core("repairer").counters.received_packets >= 20)
                options = {"durable": file, "durable_gone_ivl": "50ms"}
                async with pgm.open_receiver(topology, node="desk-1", **options) as receiver:
                    async for item in receiver:
                        seen.append(item)
                        if isinstance(item, Message) and item.payload == LINES[19]:
                            break
    opened, lost, closed, again, *messages = seen
    assert isinstance(opened, Opened)
    assert (opened.tsi, opened.first) == (first, 4)
    assert isinstance(lost, Lost)
    assert (lost.first, lost.count, lost.cause) == (4, 6, pgm.LossCause.SOURCE_GONE)
    assert isinstance(closed, Closed)
    assert (closed.tsi, closed.next_sqn) == (first, 10)
    assert isinstance(again, Opened)
    assert again.tsi == source.tsi
    assert [message.payload for message in messages if isinstance(message, Message)] == LINES[10:20]


async def test_packets_that_no_node_holds_are_lost(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "desk"
    topology = loads(one_segment(place, window="100ms", parameters='join_ivl = "0ns"'))
    async with pgm.open_source(topology, node="source") as source:
        with trio.fail_after(PATIENCE_S):
            async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
                await until(lambda: receiver.known_sources)
                await source.send_batch(LINES[:10])
                await take(receiver, 10)
            await source.send_batch(LINES[10:20])
            await source.flush()
            source.close_window()
            got: list[bytes] = []
            async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
                await until(lambda: receiver.known_sources)
                await source.send_batch(LINES[20:30])
                lost = 0
                async for item in receiver:
                    if isinstance(item, Lost):
                        assert item.first + item.count <= 20
                        lost += item.count
                    if isinstance(item, Message):
                        got.append(item.payload)
                        if item.payload == LINES[29]:
                            break
    assert got == LINES[10 + lost : 30]
    assert lost == 10


def test_blocking_and_busy_polling_receivers_are_durable(place: Place, tmp_path: Path) -> None:
    topology = loads(one_segment(place))
    with pgm.blocking.open_source(topology, node="source") as source:
        for busy in (False, True):
            file = tmp_path / f"desk-{busy}"
            with pgm.blocking.open_receiver(topology, node="desk-1", durable=file, busy_poll=busy) as receiver:  # type: ignore[call-overload]
                source.send(b"+", flush=True)
                opened = receiver.recv(PATIENCE_S)
                assert isinstance(opened, Opened)
                message = receiver.recv(PATIENCE_S)
                assert isinstance(message, Message)
                position = receiver.position
            assert position is not None
            assert position.sqn == message.sqn + 1
            with pgm.blocking.open_receiver(topology, node="desk-1", durable=file, busy_poll=busy) as receiver:  # type: ignore[call-overload]
                opened = receiver.recv(PATIENCE_S)
                assert isinstance(opened, Opened)
                assert opened.first == position.sqn


async def test_two_receivers_with_one_name_get_an_error(place: Place, tmp_path: Path) -> None:
    topology = topology_of(place)
    async with pgm.open_receiver(topology, node="desk-1", durable=tmp_path / "desk"):
        with pytest.raises(ProcessError, match="another receiver uses"):
            async with pgm.open_receiver(topology, node="desk-1", durable=tmp_path / "desk"):
                pass


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"slow": "drop-oldest"}, "takes every message"),
        ({"on_loss": "resync"}, "takes every message"),
        ({"start": [Position(bytes(8), 0, 0)]}, "two memories"),
        ({"durable": ".hidden"}, "no name"),
    ],
)
async def test_impossible_memories_are_refused(
    place: Place, tmp_path: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        async with pgm.open_receiver(topology_of(place), node="desk-1", **{"durable": tmp_path / "desk", **options}):
            pass


async def test_positions_need_a_receiver_that_counts_them(place: Place) -> None:
    async with pgm.open_receiver(topology_of(place), node="desk-1") as receiver:
        with pytest.raises(UsageError, match="counts no positions"):
            _ = receiver.position


def test_command_goes_on_where_it_was_killed(place: Place, tmp_path: Path) -> None:
    with processes(tree_of(place, "300ms"), f"t{place.number}") as nodes:
        nodes.start_all(["repairer"])
        with pgm.blocking.open_source(nodes.file, node="source") as source:
            nodes.until("repairer", lambda snapshot: snapshot["sessions"])
            first = nodes.start("desk-1", "--lines", "--durable", str(tmp_path / "desk"), verb="recv")
            first.line_with(" opened: ")
            source.send_batch(LINES[:50], flush=True)
            printed = until_printed(first, 50)
            nodes.until("repairer", lambda _: (tmp_path / "desk").stat().st_size)  # a position is saved
            first.kill()
            source.send_batch(LINES[50:100], flush=True)
            nodes.until("repairer", lambda snapshot: count(snapshot, "received_packets") >= 100)
            second = nodes.start("desk-1", "--lines", "--durable", str(tmp_path / "desk"), verb="recv")
            again = until_printed(second, 50)
    assert printed == LINES[:50]
    begin = LINES.index(again[0])
    assert begin <= 50  # the last ones before the kill may come again
    assert again == LINES[begin : begin + len(again)]


def until_printed(process: Process, least: int) -> list[bytes]:
    """Wait until a command has printed that many lines, and return all of them."""
    process.until_printed(least)
    return [line.encode() for line in process.printed]


def test_asyncio_receivers_are_durable(place: Place, tmp_path: Path) -> None:
    topology, file = loads(one_segment(place)), tmp_path / "desk"

    async def life() -> Opened | None:
        async with pgm.open_receiver(topology, node="desk-1", durable=file) as receiver:
            opened = None
            async for item in receiver:
                if isinstance(item, Message):
                    break
                opened = item
        return opened if isinstance(opened, Opened) else None

    with pgm.blocking.open_source(topology, node="source") as source:
        for number in range(3):
            source.send(b"+", flush=True)
            opened = asyncio.run(asyncio.wait_for(life(), PATIENCE_S))
            assert opened is not None
            assert opened.first == number
