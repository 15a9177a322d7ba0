"""A receiver that does not keep up is told so, and the others are unharmed."""

from __future__ import annotations

from collections.abc import Callable

import pgm.blocking
from pgm import Closed, LossCause, Lost, Message
from pgm.core.effects import Notice
from pgm.net.items import Item
from tests.net.opened import messages_of_sizes
from tests.net.places import Place

PATIENCE_S = 20.0


def taken(recv: Callable[[float], Item | None]) -> list[Item]:
    """All that comes up to the end."""
    items: list[Item] = []
    while not items or not isinstance(items[-1], Closed):
        item = recv(PATIENCE_S)
        assert item is not None, items
        items.append(item)
    return items


def test_one_that_is_stopped_for_too_long_is_told_that_its_socket_dropped_packets(place: Place) -> None:
    """One that spins reads nothing between its calls: as if its process were stopped, or lacked a processor."""
    sent = messages_of_sizes([1000] * 3000)
    window = {"txw_bytes": "256KiB", "txw_unsent_bytes": "64KiB", "fin_quiet_ivl": "50ms"}
    slow_url = place.url(so_rcvbuf="64KiB")
    notices: list[Notice] = []
    with (
        pgm.blocking.open_receiver(place.url()) as other,
        pgm.blocking.open_receiver(slow_url, busy_poll=True, on_notice=notices.append) as slow,
    ):
        with pgm.blocking.open_source(place.url(**window)) as source:
            source.send_batch(sent[:10], flush=True)
            begun = [slow.recv(PATIENCE_S) for _ in range(11)]
            source.send_batch(sent[10:], flush=True)
        late = [*begun, *taken(slow.recv)]
        assert slow.counters.socket_drops
        found = taken(other.recv)
    lost = [one for one in late if isinstance(one, Lost)]
    assert LossCause.WINDOW in {one.cause for one in lost}
    assert sum(isinstance(one, Message) for one in late) + sum(one.count for one in lost) == len(sent)
    assert [one.payload for one in found if isinstance(one, Message)] == sent
    told = [one for one in notices if one.code == "too-slow"]
    assert told
    assert all("of this receiver's own socket" in one.text for one in told)
