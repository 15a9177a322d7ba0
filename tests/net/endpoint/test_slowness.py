"""A receiver that does not keep up is told so, and the others are unharmed."""

from __future__ import annotations

from collections.abc import Callable

import pgm.blocking
from pgm import LossCause, Lost, Message
from pgm.core.effects import Notice
from pgm.net.framing.items import Item
from tests.net.support.opened import messages_of_sizes
from tests.net.support.places import Place

PATIENCE_S = 20.0


def told_of(item: Item | None) -> int:
    """Count the packets whose fate an item reports, in a stream with a message in each packet."""
    assert item is not None
    return item.count if isinstance(item, Lost) else isinstance(item, Message)


def taken(recv: Callable[[float], Item | None], packets: int) -> list[Item | None]:
    """Return all items until the fate of `packets` packets is known."""
    items: list[Item | None] = []
    while sum(map(told_of, items)) < packets:
        items.append(recv(PATIENCE_S))
    return items


def test_slowness_stopped_receiver_is_told_of_socket_drops(place: Place) -> None:
    """A busy-poll receiver reads nothing between its calls, as if its process were stopped or lacked a processor."""
    sent = messages_of_sizes([1000] * 3000)
    window = {"txw_bytes": "256KiB", "txw_unsent_bytes": "64KiB", "fin_quiet_ivl": "50ms"}
    slow_url = place.url(so_rcvbuf="64KiB")
    notices: list[Notice] = []
    with (
        pgm.blocking.open_receiver(place.url()) as other,
        pgm.blocking.open_receiver(slow_url, busy_poll=True, on_notice=notices.append) as slow,
        pgm.blocking.open_source(place.url(**window)) as source,
    ):
        source.send_batch(sent[:10], flush=True)
        begun = taken(slow.recv, 10)
        source.send_batch(sent[10:], flush=True)
        late = [*begun, *taken(slow.recv, len(sent) - 10)]
        assert slow.counters.socket_drops
        found = taken(other.recv, len(sent))
    lost = [one for one in late if isinstance(one, Lost)]
    assert LossCause.WINDOW in {one.cause for one in lost}
    assert sum(map(told_of, late)) == len(sent)
    assert [one.payload for one in found if isinstance(one, Message)] == sent
    told = [one for one in notices if one.code == "too-slow"]
    assert told
    assert all("at this receiver's own socket" in one.text for one in told)
