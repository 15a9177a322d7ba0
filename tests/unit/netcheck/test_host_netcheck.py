"""Bounds on what one netcheck sends on a host, in virtual time."""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio
import trio.testing

from deploy.netcheck.host_netcheck import HostNetcheck
from deploy.netcheck.places import ProbePlace
from deploy.netcheck.probes import MOST_BURST_S, ProbeKind, SegmentLoad
from pgm.net.sockets.interfaces import Interface
from pgm.topology.node_plan import SegmentPlan
from pgm.units import SECOND

SLOW = 100  # octets a second


class Mouth(socket.socket):
    """A socket that sends nothing, and remembers the addresses."""

    def __init__(self) -> None:
        super().__init__(socket.AF_INET6, socket.SOCK_DGRAM)
        self.names: list[Any] = []
        self.error: OSError | None = None  # of each datagram

    def sendto(self, octets: Any, name: Any) -> int:  # type: ignore[override]
        if self.error is not None:
            raise self.error
        self.names.append(name)
        return len(octets)

    def sendmsg(self, octets: Any, *rest: Any) -> int:
        self.names.append(rest[-1])
        return len(octets)


@pytest.fixture
def mouth() -> Iterator[Mouth]:
    with Mouth() as mouth:
        yield mouth


@pytest.fixture
def netcheck(mouth: Mouth) -> HostNetcheck:
    plan = SegmentPlan("lan", "ff15::1", 0, 0, "lo", None, upstream=True, downstream=True)
    interface = Interface("lo", 1, "fe80::9", "fe80::/64")
    place = ProbePlace(plan, interface, SegmentLoad(6, 1452, SLOW), 16, 1, True, frozenset())
    return HostNetcheck(bytes(8), 0, {"lan": place}, 9766, mouths={"lan": mouth})


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run a function in virtual time, of a minute at most."""

    async def bounded() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))


def test_each_host_is_asked_once_whatever_the_form_of_its_address(netcheck: HostNetcheck, mouth: Mouth) -> None:
    peers = [("lan", one) for one in ("fe80::1%a", "fe80::1%b", "FE80:0::1", "fe80::1")]

    async def main() -> None:
        await netcheck.ask(peers)
        await netcheck.ask([("lan", "fe80::1%c"), ("lan", "fe80::2")])

    run(main)
    assert mouth.names == [("fe80::1", 9766, 0, 1)] * 8


def test_probes_that_a_firewall_refuses_have_not_left(netcheck: HostNetcheck, mouth: Mouth) -> None:
    mouth.error = PermissionError(errno.EPERM, "Operation not permitted")
    run(lambda: netcheck.send_probes(2))
    told = netcheck.sent["lan", ProbeKind.NUMBERED]
    assert (told.count, told.octets, told.refused, told.error) == (0, 0, 20, "Operation not permitted")


def test_burst_of_a_slow_stream_ends_at_its_limit(netcheck: HostNetcheck, mouth: Mouth) -> None:
    run(lambda: netcheck.burst("lan", 1.0))
    told = netcheck.sent["lan", ProbeKind.BURST]
    assert told.lasted_ns == MOST_BURST_S * SECOND
    assert told.count == len(mouth.names) == 1


def test_burst_ends_with_its_netcheck(netcheck: HostNetcheck) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(netcheck.burst, "lan", 1.0)
            await trio.testing.wait_all_tasks_blocked()
            netcheck.ends.set()

    run(main)
    assert netcheck.sent["lan", ProbeKind.BURST].lasted_ns == 0
