"""Nodes with many sources and receivers in one process, over real multicast on loopback."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

import pgm
from pgm import CloseCause, Message, UsageError
from pgm.net.control.control_socket import ask_control, control_path
from pgm.net.control.status_socket import ask_status, status_path
from pgm.topology.load import loads
from tests.net.support.listening import PATIENCE_S, take_all, until
from tests.net.support.opened import injector, open_files
from tests.net.support.places import BRISK, LOSSY, Place

MANY = 64


def mesh(place: Place, *, streams: int = 1, members: int = 1, parameters: str = BRISK, loss: str = "") -> str:
    """Return a topology file of members at .1 (.2, ...), each a source of all streams `s0` (`s1`, ...)."""
    names = [f"s{number}" for number in range(streams)]
    lines = [f'version = 1\nname = "t{place.number}"\nparameters = {{ {parameters} }}', place.segment("lan"), loss]
    lines += [f'[streams.{name}]\ndata_port = {7500 + at}\nrate = "50Mbit/s"' for at, name in enumerate(names)]
    lines += [
        f'[nodes.member-{number}]\nrole = "source"\nsegment = "lan"\naddress = "{place.address(number)}"\n'
        f"streams = {names}"
        for number in range(1, members + 1)
    ]
    return "\n".join(lines).replace("'", '"')


async def test_node_with_64_sources_and_64_receivers_delivers_all(place: Place) -> None:
    sent = {f"s{stream}": [f"{stream} {number}".encode() for number in range(20)] for stream in range(MANY)}
    got: dict[str, list[bytes]] = {}

    async def take(name: str, receiver: pgm.Receiver) -> None:
        got[name] = (await take_all(receiver)).messages

    before = open_files()
    topology = loads(mesh(place, streams=MANY))
    async with (
        pgm.open_node(topology, node="member-1") as node,
        trio.open_nursery() as nursery,
        AsyncExitStack() as stack,
    ):
        sources = {name: await stack.enter_async_context(node.source(name)) for name in sent}
        receivers = {name: await stack.enter_async_context(node.receiver(name)) for name in sent}
        assert len(open_files() - before) == 4  # of the group, the address, for sends, and for other processes
        with trio.fail_after(PATIENCE_S):
            for receiver in receivers.values():
                assert isinstance(await receiver.next_batch(), pgm.Opened)
        for name, receiver in receivers.items():
            nursery.start_soon(take, name, receiver)
        for name, source in sources.items():
            await source.send_batch(sent[name])
        async with trio.open_nursery() as closing:
            for source in sources.values():
                closing.start_soon(source.aclose)
        await until(lambda: len(got) == MANY)
        counters = [one.counters for one in (*sources.values(), *receivers.values())]
        assert not any(one.rejects or one.foreign_packets for one in counters)
    assert got == sent
    assert open_files() == before


async def test_two_sources_of_one_stream_are_two_sessions(place: Place) -> None:
    topology = loads(mesh(place))
    sent = [[f"{source} {number}".encode() for number in range(300)] for source in range(2)]
    async with pgm.open_receiver(topology, node="member-1") as receiver:
        async with AsyncExitStack() as stack:
            sources = [await stack.enter_async_context(pgm.open_source(topology, node="member-1")) for _ in range(2)]
            for source, messages in zip(sources, sent, strict=True):
                await source.send_batch(messages)
        taken = await take_all(receiver, streams=2)
    assert {source.tsi: messages for source, messages in zip(sources, sent, strict=True)} == taken.payloads


async def test_endpoints_of_one_node_repair_their_own_losses(place: Place) -> None:
    topology = loads(mesh(place, streams=2, members=2, parameters=LOSSY))
    sent = {f"s{stream}": [f"{stream} {number}".encode() for number in range(3000)] for stream in range(2)}
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(pgm.open_node(topology, node="member-1"))
        other = await stack.enter_async_context(pgm.open_node(topology, node="member-2"))
        receivers = [await stack.enter_async_context(node.receiver(name)) for node in (one, other) for name in sent]
        for receiver in receivers[:: len(sent)]:
            receiver.links[0].injector = injector(0.05)
        async with trio.open_nursery() as nursery:

            async def check(receiver: pgm.Receiver, messages: list[bytes]) -> None:
                taken = await take_all(receiver)
                assert taken.messages == messages
                assert not taken.lost
                assert receiver.counters.repaired_sqns > 0

            for receiver, messages in zip(receivers, [*sent.values()] * 2, strict=True):
                nursery.start_soon(check, receiver, messages)
            async with AsyncExitStack() as sending:
                for name, messages in sent.items():
                    source = await sending.enter_async_context(one.source(name))
                    for at in range(0, len(messages), 10):
                        await source.send_batch(messages[at : at + 10])


async def test_closed_endpoint_leaves_the_others_running(place: Place) -> None:
    topology, may_end = loads(mesh(place, streams=2)), trio.Event()

    async def oldest(*, task_status: trio.TaskStatus[pgm.Receiver]) -> None:
        async with pgm.open_receiver(topology, node="member-1", stream="s0") as receiver:
            task_status.started(receiver)
            await may_end.wait()

    async with trio.open_nursery() as nursery:
        first = await nursery.start(oldest)
        async with (
            pgm.open_source(topology, node="member-1", stream="s1") as source,
            pgm.open_receiver(topology, node="member-1", stream="s1") as receiver,
        ):
            [link] = source.links
            assert link is first.links[0]
            assert link.counters is first.counters
            may_end.set()
            await until(lambda: link.counters is source.counters)
            await source.send(b"later")
            with trio.fail_after(PATIENCE_S):
                assert isinstance(await receiver.next_batch(), pgm.Opened)
                assert await anext(aiter(receiver)) == Message(b"later", 0, source.tsi)
            assert source.counters.packets_in > 0
    assert link.sockets.own.fileno() < 0


async def test_handler_that_raises_ends_its_own_endpoint_alone(place: Place) -> None:
    topology = loads(mesh(place, streams=2))

    class Refused(Exception):
        pass

    def refuse(_: pgm.Notice) -> None:
        raise Refused

    async def failing(*, task_status: trio.TaskStatus[None]) -> None:
        async with pgm.open_receiver(topology, node="member-1", stream="s0", on_notice=refuse) as receiver:
            task_status.started()
            await take_all(receiver, streams=3)

    async def refused(*, task_status: trio.TaskStatus[None]) -> None:
        with pytest.raises(Refused):
            await failing(task_status=task_status)

    async with (
        pgm.open_receiver(topology, node="member-1", stream="s1") as receiver,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(refused)
        async with pgm.open_source(topology, node="member-1", stream="s0", fin_quiet_ivl="20ms") as source:
            await source.send(b"x")
            await source.flush()
        async with pgm.open_source(topology, node="member-1", stream="s0") as source:  # restarted: a notice
            await source.send(b"x")
        async with pgm.open_source(topology, node="member-1", stream="s1") as source:
            await source.send(b"y")
        taken = await take_all(receiver)
        assert taken.messages == [b"y"]
        assert taken.causes == [CloseCause.FIN]


async def test_status_and_settings_cover_all_endpoints_of_a_node(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path))
    topology = loads(mesh(place, streams=3))
    status, control = status_path(topology.name, "member-1"), control_path(topology.name, "member-1")

    async def asked(request: dict[str, Any]) -> list[tuple[str, str, str]]:
        answer = await trio.to_thread.run_sync(ask_control, control, request)
        return [(row["name"], row["value"], row["note"]) for row in answer["settings"]]

    async with pgm.open_node(topology, node="member-1") as node, node.receiver("s2") as receiver:
        async with node.source("s0", answer="yes") as first, node.source("s1", answer="yes") as source:
            await source.send(b"one")
            await first.send(b"two")
            rows = (await trio.to_thread.run_sync(ask_status, status))["sessions"]
            assert [row["stream"] for row in rows] == ["s0", "s1"]
            request = {"do": "set", "settings": {"rate": "1Mbit/s"}}
            with pytest.raises(UsageError, match="several streams"):
                await trio.to_thread.run_sync(ask_control, control, request)
            await trio.to_thread.run_sync(ask_control, control, {**request, "stream": "s1"})
            assert await asked({"do": "get"}) == [("rate", "50Mbit/s", "stream s0"), ("rate", "1Mbit/s", "stream s1")]
        assert receiver.driver.links.gone.odata_packets == 2
