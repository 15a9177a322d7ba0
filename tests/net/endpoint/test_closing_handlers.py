"""Handlers of notices that close receivers of their thread during a turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

import pgm.blocking
from pgm import Message, UsageError
from pgm.core.effects import Effects, Notice
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.net.driver import busy_poll_driver as busy_poll
from pgm.net.endpoint.busy_poll import BusyPollReceiver
from pgm.wire.formats import Nla
from pgm.wire.train import Train
from tests.net.support.places import Place
from tests.net.support.taking import PATIENCE_S, payload_of

SENT = [b"%d" % number for number in range(50)]


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make cores emit a notice for every packet."""
    receive = ReceiverCore.receive

    def receiving(self: ReceiverCore, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        return [Notice("test", "something happened"), *receive(self, train, channel, peer, now_ns)]

    monkeypatch.setattr(ReceiverCore, "receive", receiving)


def opened(stack: ExitStack, place: Place, then: Callable[[], None]) -> BusyPollReceiver:
    """Open a receiver that calls `then` at its first notice."""
    todo = [then]

    def handle(notice: Notice) -> None:
        if notice.code == "test" and todo:
            todo.pop()()

    return stack.enter_context(pgm.blocking.open_receiver(place.url(), busy_poll=True, on_notice=handle))


def nothing() -> None:
    """Do nothing, as most handlers."""


def taken(receiver: BusyPollReceiver) -> list[bytes]:
    """Return all messages that were sent."""
    got: list[bytes] = []
    while len(got) < len(SENT):
        item = receiver.recv(PATIENCE_S)
        assert item is not None
        got += [item.payload] if isinstance(item, Message) else []
    return got


def send_to_all(place: Place) -> None:
    """Send data to every socket before any node takes a turn."""
    with pgm.blocking.open_source(place.url(fin_quiet_ivl="1ms")) as source:
        source.send_batch(SENT)
        source.flush()


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize("which", [0, 1])
def test_one_of_a_thread_that_closes_another(place: Place, which: int) -> None:
    """Either receiver may get its turn first; data for the closed one is dropped."""
    with ExitStack() as stack, ExitStack() as other:
        if which:
            stays = opened(stack, place, other.close)
            goes = opened(other, place, nothing)
        else:
            goes = opened(other, place, nothing)
            stays = opened(stack, place, other.close)
        third = opened(stack, place, nothing)
        send_to_all(place)
        assert taken(stays) == SENT
        assert taken(third) == SENT
        with pytest.raises(UsageError, match="is closed"):
            goes.recv(PATIENCE_S)


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize("others", [0, 1])
def test_one_that_closes_itself(place: Place, others: int) -> None:
    """A waiting call is told of the closing, whether or not its receiver was the last of the thread."""
    with ExitStack() as stack, ExitStack() as other:
        rest = [opened(other, place, nothing) for _ in range(others)]
        receiver = opened(stack, place, stack.close)
        send_to_all(place)
        with pytest.raises(UsageError, match="is closed"):
            receiver.recv(PATIENCE_S)
        assert [taken(one) for one in rest] == [SENT] * others


@pytest.mark.usefixtures("telling")
def test_one_that_another_takes_the_place_of(place: Place) -> None:
    """The new socket has the number of the closed one, which brought the last single packet."""
    armed: list[bool] = []
    opened_since: list[BusyPollReceiver] = []
    with ExitStack() as stack:
        stack.enter_context(pgm.blocking.open_receiver(Place.new().url(), busy_poll=True))  # the thread goes on turning
        its_own = stack.enter_context(ExitStack())

        def reopen(notice: Notice) -> None:
            if notice.code == "test" and armed:
                armed.clear()
                its_own.close()
                opened_since.append(stack.enter_context(pgm.blocking.open_receiver(place.url(), busy_poll=True)))

        one = its_own.enter_context(pgm.blocking.open_receiver(place.url(), busy_poll=True, on_notice=reopen))
        source = stack.enter_context(pgm.blocking.open_source(place.url(fin_quiet_ivl="1ms", ihb_min="20ms")))
        for message in SENT[:4]:
            source.send(message)
            source.flush()
            assert payload_of(one) == message
        armed.append(True)
        while armed:  # until the next SPM
            one.poll()
        before = one.counters.packets_in
        for message in SENT[4:]:
            source.send(message)
            source.flush()
            while (got := payload_of(opened_since[0])) != message:
                assert got in SENT[:4]  # that it joined late for
        assert one.counters.packets_in == before


@pytest.mark.usefixtures("telling")
def test_closing_handler_message_before_close_is_delivered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_poll, "_TURN_IVL", 0)  # every turn reads all sockets
    other = Place.new()
    with ExitStack() as stack:
        its_own = stack.enter_context(ExitStack())
        one = its_own.enter_context(pgm.blocking.open_receiver(place.url(), busy_poll=True))
        opened(stack, other, its_own.close)
        source = stack.enter_context(pgm.blocking.open_source(place.url(fin_quiet_ivl="1ms")))
        for message in SENT[:4]:
            source.send(message)
            source.flush()
            assert payload_of(one) == message
        source.send(SENT[4])
        source.flush()
        send_to_all(other)
        assert payload_of(one) == SENT[4]
        with pytest.raises(UsageError, match="closed"):
            one.recv(PATIENCE_S)
