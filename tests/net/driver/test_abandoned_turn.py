"""A busy-poll node whose core is interrupted by a signal handler that raises.

The work left half done is reported as an error, and no call waits for it.
"""

from __future__ import annotations

from typing import Any

import pytest

import pgm.blocking
from pgm import Message
from pgm.errors import UsageError
from tests.net.support.places import Place

PATIENCE_S = 20.0


class Interrupted(Exception):
    """Exception of the handler."""


def take(receiver: Any) -> bytes:
    while not isinstance(item := receiver.recv(PATIENCE_S), Message):
        assert item is not None
    return bytes(item.payload)


def use(source: Any, receiver: Any) -> None:
    """Make a receiver's core read, serve its deadline, and receive budget; any call takes a turn of all nodes."""
    source.send_batch([b"behind"] * 3)
    receiver.driver.serve(receiver.driver.core.deadline_ns)
    take(receiver)


@pytest.mark.parametrize("what", ["receive", "handle_deadline", "grant"])
def test_others_of_the_thread_go_on(place: Place, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    url = place.url(fin_quiet_ivl="50ms")
    with (
        pgm.blocking.open_source(url, busy_poll=True) as source,
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as torn,
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as other,
    ):
        source.send(b"before")
        assert take(torn) == take(other) == b"before"

        def interrupted(*_: object) -> None:
            raise Interrupted

        with monkeypatch.context() as patch:
            patch.setattr(torn.driver.core, what, interrupted)
            with pytest.raises(Interrupted):
                use(source, torn)
        for call in (torn.recv, torn.next_batch, torn.poll):
            with pytest.raises(UsageError, match="half done"):
                call()
        source.send(b"last")
        while (payload := take(other)) != b"last":
            assert payload == b"behind"
