"""Read-ahead of a busy-poll receiver behind a packet.

It gathers more packets if they come in a row, and none if each is awaited.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pgm.blocking
from pgm import Batch, Message
from pgm.net.driver import busy_poll_driver as busy_poll
from pgm.net.endpoint.busy_poll import BusyPollReceiver, BusyPollSource
from pgm.net.link.link import Link
from pgm.net.link.reader import SocketRead, TakeSingle
from tests.net.support.places import Place
from tests.net.support.taking import PATIENCE_S, payload_of

SENT = [b"%d" % number for number in range(60)]
MANY = SENT * 20
TRAIN, TRAINS = [bytes(1400)] * 40, 50


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Record for each read on the general path whether it gathered."""
    found: list[bool] = []
    read = Link.read

    def noted(link: Link, sock: object, *, gathers: bool = True, take: TakeSingle | None = None) -> SocketRead | None:
        found.append(gathers)
        return read(link, sock, gathers=gathers, take=take)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "read", noted)
    return found


@contextmanager
def begun(place: Place) -> Iterator[tuple[BusyPollSource, BusyPollReceiver]]:
    """Open a stream that has begun, with a receiver that polls for single packets."""
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms"), busy_poll=True) as source,
    ):
        for message in SENT[:4]:
            source.send(message)
            assert payload_of(receiver) == message
        yield source, receiver


def test_read_ahead_is_off_when_each_message_is_awaited(
    place: Place, gathered: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in round trips, an unsuccessful poll lies between two packets, or between three if one came early."""
    with begun(place) as (source, receiver):
        poll_single, rest = Link.poll_single, SENT[::-1]
        got: list[bytes] = []

        def then_send(link: Link, sock: object, take: TakeSingle, _most: int = 1) -> int:
            found = poll_single(link, sock, take)  # type: ignore[arg-type]
            # A turn in a send may have read the message, which then waits for the application.
            if not found and len(got) % 3 < 2 and len(got) + len(rest) == len(SENT):
                source.send(rest.pop())
            return found

        monkeypatch.setattr(Link, "poll_single", then_send)
        gathered.clear()
        while len(got) < len(SENT):
            if len(got) % 3 == 2:
                source.send(rest.pop())  # one that is there already
            got.append(payload_of(receiver))
        assert got == SENT
        assert gathered.count(True) <= len(SENT) // 10  # SPMs come between


def test_answers_that_are_there_at_the_first_look_are_no_stream(place: Place, gathered: list[bool]) -> None:
    with begun(place) as (source, receiver):
        gathered.clear()
        for message in MANY:
            source.send(message)
            assert payload_of(receiver) == message
        # After 1, 2, 4 and so on in a row, and then after 256 each time, it was looked whether it is one.
        assert gathered.count(True) <= len(MANY) // 256 + 9


def test_trains_behind_such_answers_are_taken_together(place: Place, gathered: list[bool]) -> None:
    """This holds for any receiver of the thread."""
    with begun(Place.new()) as (asking, answered), pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver:
        for message in MANY:
            asking.send(message)
            assert payload_of(answered) == message
        with pgm.blocking.open_source(place.url()) as source:  # sends in a thread of its own: nothing is read meanwhile
            for _ in range(TRAINS):
                source.send_batch(TRAIN)
            source.flush()
            gathered.clear()
            left = TRAINS * len(TRAIN)
            while left:
                item = receiver.next_batch(PATIENCE_S)
                assert item is not None
                left -= len(item) if isinstance(item, Batch) else 0
    assert len(gathered) < TRAINS // 2, "train by train"


def test_read_ahead_slow_application_blocks_no_other_socket(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any time counts as too long here, and each message is there at the first poll."""
    monkeypatch.setattr(busy_poll, "_TURN_IVL", 0)
    other = Place.new()
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms")) as source,
        pgm.blocking.open_receiver(other.url(), busy_poll=True) as beside,
        pgm.blocking.open_source(other.url(fin_quiet_ivl="50ms")) as its_source,
    ):

        def send_and_take(message: bytes) -> None:
            source.send(message)
            source.flush()
            assert payload_of(receiver) == message

        for message in MANY:
            send_and_take(message)
        for _ in range(8):
            before = beside.counters.packets_in
            its_source.send(b"y")
            its_source.flush()
            for message in SENT[:2]:  # the look of the first may be one behind a turn
                send_and_take(message)
            assert beside.counters.packets_in > before


def test_read_ahead_begins_when_the_receiver_falls_behind(place: Place, gathered: list[bool]) -> None:
    with begun(place) as (source, receiver):
        gathered.clear()
        for message in SENT:
            source.send(message)
        assert [payload_of(receiver) for _ in SENT] == SENT
        assert gathered.count(True) >= 1


def test_messages_that_are_kept_stay_what_they_are(place: Place) -> None:
    """Each message is an object of its own, even if the object was made in advance."""
    with begun(place) as (source, receiver):
        kept: list[Message] = []
        sqns = []
        for message in SENT:
            sqns.append(source.send(message))
            while len(kept) < len(sqns):
                item = receiver.recv(PATIENCE_S)
                assert item is not None
                kept += [item] if isinstance(item, Message) else []
        assert [one.payload for one in kept] == SENT
        assert [one.sqn for one in kept] == sqns
        assert {one.tsi for one in kept} == {source.tsi}
