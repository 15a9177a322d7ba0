"""Acknowledged streams on real sockets: stable data, and the members and times to wait for."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import attrs
import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from deploy.archive.record import record_node
from deploy.status.status import _acked
from pgm import Message, UsageError
from pgm.core.status import AckLag
from pgm.net.endpoint.open import resolve
from pgm.net.endpoint.source import Source
from pgm.topology.load import loads
from pgm.topology.node_plan import Role
from tests.net.support.listening import PATIENCE_S, taking
from tests.net.support.opened import messages_of_sizes
from tests.net.support.places import Place, one_segment

EXPIRY_S = 1.0
SETTINGS = f'ack_expiry = "{round(EXPIRY_S * 1000)}ms", ack_ivl = "10ms", ack_window = 512'


def acked(place: Place, more: str = "", loss: str = "") -> str:
    text = one_segment(place, parameters=", ".join(filter(None, (SETTINGS, more))), loss=loss)
    return text.replace("[streams.s]\n", '[streams.s]\nflow = "acked"\n')


def receiving(file: Path, node: str) -> subprocess.Popen[bytes]:
    """Start a receiver in a process of its own, which can be stopped."""
    command = [sys.executable, "-m", "deploy", "recv", str(file), "--node", node]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def members(source: Source, count: int) -> None:
    """Wait until `count` receivers are members."""
    with trio.fail_after(PATIENCE_S):
        await source.joined(count)
        assert source.members == count


async def test_acked_stable_messages_are_delivered_everywhere(place: Place) -> None:
    topology = loads(acked(place, loss='{ loss = "5%" }'))
    sent = messages_of_sizes([1000] * 3000)
    async with (
        pgm.open_receiver(topology, node="desk-1") as one,
        pgm.open_receiver(topology, node="desk-2") as other,
        taking(one, other) as taken,
        pgm.open_source(topology, node="source") as source,
    ):
        await members(source, 2)
        for at in range(0, len(sent), 100):
            sqn = await source.send_batch(sent[at : at + 100]) + 99
            if at % 500 == 0:
                with trio.fail_after(PATIENCE_S):
                    await source.stable(sqn)
                assert all(one.counters.delivered_packets > sqn for one in taken)
        with trio.fail_after(PATIENCE_S):
            await source.stable()
        assert source.is_stable(len(sent) - 1)
        assert not source.is_stable(len(sent))
    assert [one.messages for one in taken] == [sent, sent]
    assert source.counters.members_left == 2


async def test_a_receiver_that_closes_is_not_waited_for(place: Place) -> None:
    topology = loads(acked(place))
    async with (
        pgm.open_receiver(topology, node="desk-2") as stays,
        taking(stays),
        pgm.open_source(topology, node="source") as source,
    ):
        async with pgm.open_receiver(topology, node="desk-1") as leaves:
            await members(source, 2)
            sqn = await source.send(b"for both")
            items = [await leaves.next_batch(), await leaves.next_batch(), await leaves.next_batch(0)]
            assert [type(item) for item in items] == [pgm.Opened, pgm.Batch, type(None)]
            await source.stable(sqn)
        sqn = await source.send(b"for one")
        begun = trio.current_time()
        await source.stable(sqn)
        assert trio.current_time() - begun < EXPIRY_S / 2
        assert stays.counters.delivered_packets == 2
        assert source.counters.members_left == 1


async def test_nor_is_a_recorder_that_ends(place: Place, tmp_path: Path) -> None:
    topology = loads(acked(place))
    async with (
        pgm.open_receiver(topology, node="desk-2") as stays,
        taking(stays),
        pgm.open_source(topology, node="source") as source,
    ):
        async with trio.open_nursery() as nursery:
            plan = resolve(topology, "desk-1", Role.RECEIVER, {})
            nursery.start_soon(partial(record_node, plan, None, tmp_path, until_closed=False, seed=None))
            await members(source, 2)
            await source.stable(await source.send(b"for both"))
            nursery.cancel_scope.cancel()
        sqn = await source.send(b"for one")
        begun = trio.current_time()
        await source.stable(sqn)
        assert trio.current_time() - begun < EXPIRY_S / 2
        assert source.counters.members_left == 1


async def test_a_stream_without_acks_says_that_nobody_knows(place: Place) -> None:
    async with pgm.open_source(loads(one_segment(place)), node="source") as source:
        with pytest.raises(UsageError, match="not acknowledged"):
            await source.stable(0)


@pytest.mark.parametrize("busy_poll", [False, True])
def test_twins_for_threads(place: Place, *, busy_poll: bool) -> None:
    topology = loads(acked(place))
    with (
        pgm.blocking.open_receiver(topology, node="desk-1") as receiver,
        pgm.blocking.open_source(topology, node="source", busy_poll=busy_poll) as source,
    ):
        until = time.monotonic() + PATIENCE_S
        while not source.counters.members_joined:
            if busy_poll:
                source.poll()
            assert time.monotonic() < until
        with ThreadPoolExecutor(1) as pool:
            count = pool.submit(lambda: sum(isinstance(receiver.recv(PATIENCE_S), Message) for _ in range(2001)))
            source.send_batch(np.zeros((2000, 100), np.uint8))
            source.stable(1998)
            assert receiver.counters.delivered_packets == 2000
            assert count.result() == 2000  # and Opened
            assert not source.is_stable(1999)  # nobody has come back for more
            assert receiver.recv(0) is None
            source.stable()


async def test_acked_stopped_receiver_blocks_for_ack_expiry(place: Place, tmp_path: Path) -> None:
    """JGroups' senders stand still for 42 s here."""
    file = tmp_path / "tree.toml"
    file.write_text(acked(place))
    longest, notices = 0.0, []
    with receiving(file, "desk-2") as other:
        try:
            async with (
                pgm.open_receiver(file, node="desk-1") as receiver,
                taking(receiver),
                pgm.open_source(file, node="source", on_notice=notices.append, txw_unsent_bytes="64KiB") as source,
            ):
                await members(source, 2)
                other.send_signal(signal.SIGSTOP)
                end = trio.current_time() + 4 * EXPIRY_S
                while trio.current_time() < end:
                    begun = trio.current_time()
                    await source.send_batch([bytes(1000)] * 20)
                    longest = max(longest, trio.current_time() - begun)
        finally:
            other.kill()
    assert 0.3 * EXPIRY_S < longest < 1.5 * EXPIRY_S
    assert [notice.code for notice in notices] == ["member-silent"]
    assert source.counters.odata_packets > 20 * 512  # and it went on


async def test_status_tells_who_has_what(place: Place) -> None:
    topology = loads(acked(place))
    async with (
        pgm.open_receiver(topology, node="desk-1") as receiver,
        pgm.open_source(topology, node="source") as source,
    ):
        await members(source, 1)
        await source.send_batch([b"one", b"two", b"three"])
        received = aiter(receiver)
        assert [type(await anext(received)) for _ in range(3)] == [pgm.Opened, Message, Message]
        await source.stable(0)
        [row] = source.driver.core.status(time.monotonic_ns())
        [below] = receiver.driver.core.status(time.monotonic_ns())
    address = place.address(100)
    assert row.acked is not None
    assert (row.acked.stable, row.acked.members, row.acked.held_up_by, row.acked.window) == (0, 1, address, 512)
    assert row.acked.acks == {address: 0}
    assert below.acked is not None
    assert row.acked.lags == [AckLag(address=address, lag=2, members=1, is_branch=False, held_up_by=address)]
    assert row.acked.lag == 2
    assert (below.acked.stable, below.acked.parent) == (0, place.address(1))
    assert (below.acked.lag, below.acked.untaken) == (2, 2)
    assert _acked({"sessions": [attrs.asdict(row)]}) == f"0 by 1, {address} last, 2 behind"
    assert _acked({"sessions": [attrs.asdict(below)]}) == "0 by 1, 2 behind, 2 wait for the application"
