"""A source's own multicast does not come back to it, and still reaches others on the same address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from pgm.net.sockets.open import SegmentSockets, open_sockets
from pgm.topology.node_plan import Role
from pgm.topology.url import plan_url
from tests.net.support.places import Place


@contextmanager
def opened(place: Place, role: Role) -> Iterator[SegmentSockets]:
    plan = plan_url(place.url(), role)
    with closing(open_sockets(plan.segments[0], plan.parameters)) as sockets:
        yield sockets


def test_echo_own_source_is_deaf_and_its_neighbour_hears() -> None:
    place = Place.new()
    with opened(place, Role.SOURCE) as source, opened(place, Role.RECEIVER) as receiver:
        assert source.interface.address == receiver.interface.address
        assert source.group is not None
        assert receiver.group is not None
        source.own.sendto(b"all", (place.group(), place.port))
        # Loopback delivers within the call: an echo would be there by now.
        assert receiver.group.recv(10) == b"all"
        with pytest.raises(BlockingIOError):
            source.group.recv(10)
        receiver.own.sendto(b"others", (place.group(), place.port))
        assert receiver.group.recv(10) == b"others"
