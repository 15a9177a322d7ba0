"""Data that waits is read before control packets and before late timers, by every driver."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from pgm.core.counters import Counters
from pgm.core.effects import NOTHING, Effect, Effects
from pgm.core.segment import Channel
from pgm.core.structures.arena import Arena
from pgm.net.driver.asyncio_driver import AsyncioDriver
from pgm.net.driver.asyncio_reads import AsyncioReads
from pgm.net.driver.busy_poll_driver import BusyPollDriver
from pgm.net.driver.effects import LATE_NS
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.link.backlog import DRAIN_TRAINS
from pgm.net.link.node_links import NodeLinks, open_links
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.units import NEVER
from pgm.wire.train import Train
from tests.net.link.test_read_gathering import sender
from tests.net.support.listening import PATIENCE_S
from tests.net.support.places import Place, below_a_relay

# Packets of changing sizes, two of which fit into a read: more than a task reads in a row.
_DATA = [bytes(100 + 100 * (number % 2)) for number in range(3 * DRAIN_TRAINS)]
_REQUESTS = 3


class _Core:
    """Core that records the order of its calls."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.calls: list[str] = []
        self.deadline_ns = NEVER
        self.wanted = 0
        self.has_enough: Callable[[], None] = lambda: None

    def receive(self, train: Train, channel: Channel, _peer: str, _now_ns: int) -> Effects:
        return self._note(*["data" if channel.is_group else "request"] * train.count)

    def handle_deadline(self, _now_ns: int) -> Effects:
        self.deadline_ns = NEVER
        return self._note("deadline")

    def _note(self, *calls: str) -> Effects:
        self.calls += calls
        if len(self.calls) >= self.wanted:
            self.has_enough()
        return NOTHING


class _Nobody:
    def take(self, effect: Effect) -> None:
        raise AssertionError(effect)

    def after(self) -> Effects:
        return NOTHING


class _Node:
    """Repairer's sockets on the floor, and the other nodes there."""

    def __init__(self, place: Place, links: NodeLinks, sock: socket.socket) -> None:
        self.core: Any = _Core()
        self.links = links
        self._sock = sock
        self._group = (place.group(1), place.port)
        self._own = (place.address(4), place.port)

    def knock(self, deadline_after: int = NEVER) -> None:
        """Let requests wait, and data that came before them. A timer of `deadline_after` ns is late then."""
        core = self.core
        core.wanted = len(_DATA) + _REQUESTS + (deadline_after != NEVER)
        for packet in _DATA:
            self._sock.sendto(packet, self._group)
        for _ in range(_REQUESTS):
            self._sock.sendto(bytes(50), self._own)
        if deadline_after != NEVER:
            core.deadline_ns = time.monotonic_ns() + deadline_after

    def send_data(self) -> None:
        """Let another packet of data wait."""
        self._sock.sendto(_DATA[0], self._group)

    def stand_still(self) -> None:
        """Keep the thread from the sockets until the timer is late, as a stopped process is kept."""
        while time.monotonic_ns() < self.core.deadline_ns + LATE_NS:
            pass

    def run_trio(self, *, has_timer: bool) -> None:
        async def main() -> None:
            driver = TrioDriver(self.core, TrioReads(self.links), _Nobody())
            with trio.fail_after(PATIENCE_S):
                async with trio.open_nursery() as nursery:
                    self.core.has_enough = nursery.cancel_scope.cancel
                    nursery.start_soon(driver.run)
                    await trio.testing.wait_all_tasks_blocked()
                    self._stop(driver.reschedule, has_timer=has_timer)
            driver.leave()

        trio.run(main)

    def run_asyncio(self, *, has_timer: bool) -> None:
        async def main() -> None:
            driver = AsyncioDriver(self.core, AsyncioReads(self.links), _Nobody())
            task = asyncio.ensure_future(driver.run())
            self.core.has_enough = task.cancel
            for _ in range(3):
                await asyncio.sleep(0)
            self._stop(driver.reschedule, has_timer=has_timer)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(asyncio.CancelledError):
                    await task
            driver.leave()

        asyncio.run(main())

    def run_busy_poll(self, *, has_timer: bool) -> None:
        driver = BusyPollDriver(self.core, self.links, _Nobody())
        driver.turn()
        self._stop(driver.reschedule, has_timer=has_timer)
        until = time.monotonic() + PATIENCE_S
        while len(self.core.calls) < self.core.wanted and time.monotonic() < until:
            driver.turn()
        driver.close()

    def _stop(self, reschedule: Callable[[], None], *, has_timer: bool) -> None:
        if has_timer:
            self.knock(LATE_NS)
            reschedule()
            self.stand_still()
        else:
            self.knock()


@pytest.fixture
def node(place: Place) -> Iterator[_Node]:
    plan = plan_node(loads(below_a_relay(place, has_repairer=True, parameters="gro = false")), "repairer")
    with open_links(plan, Arena()).held() as links, sender(place.address(3)) as sock:
        yield _Node(place, links, sock)


@pytest.mark.parametrize("loop", ["trio", "asyncio", "busy_poll"])
@pytest.mark.parametrize("has_timer", [False, True])
def test_read_order_data_comes_before_what_is_judged_by_it(node: _Node, loop: str, has_timer: bool) -> None:
    """A process that stood still finds all of it at once, and a timer that was over meanwhile."""
    getattr(node, f"run_{loop}")(has_timer=has_timer)
    expected = ["data"] * len(_DATA) + ["request"] * _REQUESTS + ["deadline"] * has_timer
    assert node.core.calls == expected


def test_read_order_full_socket_ends_a_pass(node: _Node) -> None:
    """Data that comes as fast as it is read does not hold up requests for ever."""
    driver = BusyPollDriver(node.core, node.links, _Nobody())
    node.knock()
    flood = iter(range(100 * len(_DATA)))

    def receive(train: Train, channel: Channel, _peer: str, _now_ns: int) -> Effects:
        node.core.calls += ["data" if channel.is_group else "request"] * train.count
        if channel.is_group and next(flood, None) is not None:
            node.send_data()
        return NOTHING

    node.core.receive = receive
    while node.core.calls.count("request") < _REQUESTS:
        driver.turn()
    driver.close()
    assert next(flood, None) is not None
