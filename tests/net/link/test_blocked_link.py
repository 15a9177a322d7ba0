"""Several tasks of one driver with data for a link that takes no more: each waits, and all data leaves."""

from __future__ import annotations

import contextlib
import errno
import socket

import pytest
import trio
import trio.testing

from pgm.core.effects import Send, alone
from pgm.net.link.link import WouldBlock
from pgm.topology.load import loads
from tests.net.support.elements import running
from tests.net.support.places import Place, below_a_relay


def full_socket() -> tuple[socket.socket, socket.socket]:
    """Return a socket that takes no more until the other is read."""
    full, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    full.setblocking(False)
    other.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            full.send(b"?")
    return full, other


async def test_blocked_link_holds_reads_and_timers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    full, other = full_socket()
    async with running(loads(below_a_relay(place, "repairer")), "relay") as tree:
        driver = tree.drivers["relay"]
        link = driver.links[1]
        is_open, sent = False, []

        def send(one: Send, at: int = 0) -> None:
            if not is_open:
                raise WouldBlock(at, full)
            sent.append(bytes(one.octets))

        with full, other, monkeypatch.context() as patch, trio.fail_after(20):
            patch.setattr(link, "send", send)
            async with trio.open_nursery() as nursery:
                for octets in (b"one", b"two", b"three"):
                    nursery.start_soon(driver._perform, [alone(link.segment, octets)])
                await trio.testing.wait_all_tasks_blocked()
                assert driver.is_held_up
                is_open = True
                with contextlib.suppress(BlockingIOError):
                    while True:
                        other.recv(1)
        assert sorted(sent) == [b"one", b"three", b"two"]


async def test_a_train_waits_for_the_socket_that_did_not_take_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(loads(below_a_relay(place, "repairer")), "relay") as tree:
        link = tree.drivers["relay"].links[1]

        def refuse(*_: object) -> None:
            raise BlockingIOError(errno.EAGAIN, "full")

        assert link.to_group is not None
        with monkeypatch.context() as patch:
            patch.setattr(link.to_group, "send", refuse)
            patch.setattr(link, "_sendmsg", refuse)
            with pytest.raises(WouldBlock) as blocked:
                link.send(Send(link.segment, bytes(350), 100))
            assert blocked.value.sock is link.to_group.sock
            with pytest.raises(WouldBlock) as blocked:
                link.send(Send(link.segment, bytes(350), 100, hops=1))
            assert blocked.value.sock is link.sockets.own


async def test_of_a_train_that_a_link_does_not_take_each_packet_is_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(loads(below_a_relay(place, "repairer")), "relay") as tree:
        driver = tree.drivers["relay"]
        link, counters = driver.links[1], driver.core.counters
        train = Send(link.segment, bytes(350), 100)

        def refuse(_: Send) -> None:
            raise WouldBlock(100, link.sockets.own)

        def fail(*_: object) -> None:
            raise OSError(errno.ENETUNREACH, "no route")

        with monkeypatch.context() as patch:
            patch.setattr(link, "send", refuse)
            driver.perform([train])
            assert counters.sends_dropped == 3
        with monkeypatch.context() as patch:
            assert link.to_group is not None
            patch.setattr(link.to_group, "send", fail)
            driver.perform([train])
            assert counters.send_errors == 4
