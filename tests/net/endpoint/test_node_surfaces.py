"""Nodes with many sources and receivers in ordinary threads, over real multicast on loopback."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

import pytest

import pgm.blocking
from pgm import Closed, Message, Opened, UsageError
from pgm.net.endpoint.busy_poll import BusyPollReceiver, BusyPollSource
from pgm.topology.load import loads
from tests.net.endpoint.test_nodes import mesh
from tests.net.support.listening import PATIENCE_S
from tests.net.support.opened import open_files
from tests.net.support.places import Place

SENT = {name: [f"{name} {number}".encode() for number in range(500)] for name in ("s0", "s1", "s2")}


def _loops() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "pgm"]


def test_node_in_threads_shares_sockets_and_a_loop(place: Place) -> None:
    topology, got = loads(mesh(place, streams=3)), dict[str, list[bytes]]()
    before, loops = open_files(), len(_loops())

    def take(name: str, receiver: pgm.blocking.Receiver) -> None:
        got[name] = []
        for item in receiver:
            if isinstance(item, Message):
                got[name].append(item.payload)
            elif isinstance(item, Closed):
                return

    with ExitStack() as stack:
        node = stack.enter_context(pgm.blocking.open_node(topology, node="member-1"))
        takers = [threading.Thread(target=take, args=(name, stack.enter_context(node.receiver(name)))) for name in SENT]
        for taker in takers:
            taker.start()
        with ExitStack() as sending:
            sources = {name: sending.enter_context(node.source(name)) for name in ("s0", "s1")}
            # an opener without the node joins it as well
            sources["s2"] = sending.enter_context(pgm.blocking.open_source(topology, node="member-1", stream="s2"))
            assert len({id(source.links[0]) for source in sources.values()}) == 1
            assert len(_loops()) == loops + 1
            for name, source in sources.items():
                source.send_batch(SENT[name])
        for taker in takers:
            taker.join(PATIENCE_S)
    assert got == SENT
    assert len(_loops()) == loops
    assert open_files() == before


def test_call_in_progress_ends_with_its_own_handle(place: Place) -> None:
    topology = loads(mesh(place, streams=2))
    with pgm.blocking.open_receiver(topology, node="member-1", stream="s1") as other:
        with pgm.blocking.open_receiver(topology, node="member-1", stream="s0") as receiver:

            def take() -> None:
                with suppress(UsageError):
                    receiver.recv()

            taker = threading.Thread(target=take)
            taker.start()
        taker.join(PATIENCE_S)
        assert not taker.is_alive()
        with pytest.raises(UsageError, match="is closed"):
            receiver.recv()
        assert other.recv(0.01) is None


def test_node_with_busy_poll_shares_sockets(place: Place) -> None:
    topology, got = loads(mesh(place, streams=3)), {name: list[bytes]() for name in SENT}
    before = open_files()
    with ExitStack() as stack:
        node = stack.enter_context(pgm.blocking.open_node(topology, node="member-1", busy_poll=True))
        receivers: dict[str, BusyPollReceiver] = {name: stack.enter_context(node.receiver(name)) for name in SENT}
        sources: dict[str, BusyPollSource] = {name: stack.enter_context(node.source(name)) for name in SENT}
        assert len(open_files() - before) == 4
        for name, receiver in receivers.items():
            assert isinstance(receiver.recv(PATIENCE_S), Opened), name
        for number in range(len(SENT["s0"])):
            for name, source in sources.items():
                source.send(SENT[name][number])
        for name, receiver in receivers.items():
            while len(got[name]) < len(SENT[name]):
                item = receiver.recv(PATIENCE_S)
                assert isinstance(item, Message)
                got[name].append(item.payload)
        assert not any(end.counters.foreign_packets for end in (*receivers.values(), *sources.values()))
    assert got == SENT
    assert open_files() == before
