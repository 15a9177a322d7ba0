"""A signal handler that raises while a thread waits in a blocking receiver, as Ctrl-C does.

The call ends, and no message is lost.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

import pgm.blocking
from pgm import LossError, Lost, Message, Opened
from pgm.core.effects import LossCause
from pgm.net.framing.items import Item
from tests.net.support.places import Place

PATIENCE_S = 20.0
SHORT_S = 0.02  # until the waiting thread sleeps


class Interrupted(Exception):
    """Exception of the handler."""


@pytest.fixture
def handler() -> Iterator[None]:
    """Install a handler of SIGUSR1 that raises."""

    def raising(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, raising)
    yield
    signal.signal(signal.SIGUSR1, before)


def interrupt(receiver: pgm.blocking.Receiver, timeout_s: float | None = None) -> None:
    """Interrupt a call while no data comes."""
    timer = threading.Timer(SHORT_S, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
    timer.start()
    with pytest.raises(Interrupted):
        receiver.recv(timeout_s)
    timer.join()


@pytest.mark.usefixtures("handler")
def test_interrupted_calls_lose_no_message(place: Place) -> None:
    got: list[Item | None] = []
    with pgm.blocking.open_receiver(place.url()) as receiver:
        for timeout_s in (None, PATIENCE_S, None):
            interrupt(receiver, timeout_s)
        with pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms")) as source:
            source.send(b"0")
            got.append(receiver.recv(PATIENCE_S))
            for number in range(1, 6):
                got.append(receiver.recv(PATIENCE_S))
                interrupt(receiver)
                source.send(b"%d" % number)
            got.append(receiver.recv(PATIENCE_S))
            assert receiver.recv(SHORT_S) is None
    assert isinstance(got[0], Opened)
    assert [one.payload for one in got[1:] if isinstance(one, Message)] == [b"%d" % number for number in range(6)]


@pytest.mark.usefixtures("handler")
def test_a_loss_that_is_raised_is_raised_for_the_next_call(place: Place) -> None:
    with pgm.blocking.open_receiver(place.url(), on_loss="raise") as receiver:
        interrupt(receiver)
        lost = Lost(b"12345678", 0, 1, LossCause.WINDOW)
        receiver._background.run_now(receiver.driver.perform, (lost,))
        with pytest.raises(LossError):
            receiver.recv(PATIENCE_S)
        assert receiver.recv(SHORT_S) is None
