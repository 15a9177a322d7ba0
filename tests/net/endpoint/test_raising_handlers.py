"""Handlers of notices that raise.

The caller gets the exception, and goes on without any loss.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
import trio
import trio.testing

import pgm.blocking
from pgm import Batch, Message
from pgm.core.effects import Deliver, Effects, Notice
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.segment import Channel
from pgm.net.endpoint.receiver import Receiver
from pgm.wire.formats import Nla
from pgm.wire.train import Train
from tests.net.support.opened import open_files
from tests.net.support.places import Place

PATIENCE_S = 20.0
SENT = [b"%d" % number for number in range(50)]


class Seen:
    """Observer that keeps the performed effects."""

    sees_singles = False

    def __init__(self) -> None:
        self.effects: list[object] = []

    def received(self, *_: object) -> None:
        pass

    def taken(self) -> None:
        pass

    def performed(self, effects: Effects, now_ns: int) -> None:
        self.effects += effects


class Refused(Exception):
    """Exception of the handler."""


def refuse(notice: Notice) -> None:
    if notice.code == "test":
        raise Refused


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make cores emit a notice before each delivery."""
    receive, grant = ReceiverCore.receive, ReceiverCore.grant

    def told(effects: Effects) -> Effects:
        return (
            [Notice("test", "something happened"), *effects]
            if any(isinstance(one, Deliver) for one in effects)
            else effects
        )

    def receiving(self: ReceiverCore, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        return told(receive(self, train, channel, peer, now_ns))

    def granting(self: ReceiverCore, octets: int) -> Effects:
        return told(grant(self, octets))

    monkeypatch.setattr(ReceiverCore, "receive", receiving)
    monkeypatch.setattr(ReceiverCore, "grant", granting)


@pytest.mark.usefixtures("telling")
def test_one_that_spins_goes_on_with_what_came(place: Place) -> None:
    url = place.url(inbox_bytes="64KiB")
    with (
        pgm.blocking.open_receiver(url, busy_poll=True, on_notice=refuse) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms"), busy_poll=True) as source,
    ):
        got: list[bytes] = []
        refusals = 0
        seen = receiver.driver.observer = Seen()  # type: ignore[assignment]
        try:
            source.send_batch(SENT)  # they share a thread, so this turns the receiver, too
        except Refused:
            refusals += 1
        while len(got) < len(SENT):
            try:
                item = receiver.recv(PATIENCE_S)
            except Refused:
                refusals += 1
            else:
                assert item is not None, got
                got += [item.payload] if isinstance(item, Message) else []
        receiver.driver.observer = None
    assert got == SENT
    assert refusals
    assert len(seen.effects) == len(set(map(id, seen.effects)))


@pytest.mark.usefixtures("telling")
async def test_one_under_trio_goes_on_with_what_came(place: Place) -> None:
    async with (
        pgm.open_receiver(place.url(), on_notice=refuse) as receiver,
        pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source,
    ):
        got: list[bytes] = []
        refusals = 0

        async def take() -> None:
            nonlocal refusals
            while len(got) < len(SENT):
                try:
                    item = await receiver.next_batch()
                except Refused:
                    refusals += 1
                else:
                    got.extend(item if isinstance(item, Batch) else ())

        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                await trio.testing.wait_all_tasks_blocked()
                await source.send_batch(SENT)
    assert got == SENT
    assert refusals


async def test_raising_handler_own_reads_are_delivered_before_the_error(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets of another size were held back by the first read; no other call would read them."""
    tells, receive = iter([True]), ReceiverCore.receive

    def receiving(self: ReceiverCore, train: Train, channel: Channel, peer: Nla, now_ns: int) -> Effects:
        effects = receive(self, train, channel, peer, now_ns)
        return [Notice("test", "something happened"), *effects] if next(tells, False) else effects

    sending = pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms"), busy_poll=True)
    async with pgm.open_receiver(place.url(), on_notice=refuse) as receiver:
        with sending as source:
            source.send(b"first")
            with trio.fail_after(PATIENCE_S):
                while not isinstance(await receiver.next_batch(), Batch):
                    pass
            monkeypatch.setattr(ReceiverCore, "receive", receiving)
            for size in (1000, 1400):
                source.send_batch(np.zeros((3, size), np.uint8))
            with pytest.raises(Refused):
                receiver.driver.read_for(lambda _packet, _peer: False, gathers=True)
            assert receiver.counters.delivered_packets == 7


@pytest.mark.usefixtures("telling")
async def test_raising_handler_trio_queue_can_be_taken_after_the_end(place: Place) -> None:
    receivers: list[Receiver] = []

    async def be_away(source: pgm.Source) -> None:
        async with pgm.open_receiver(place.url(), on_notice=refuse) as receiver:
            receivers.append(receiver)
            await source.send_batch(SENT)
            with trio.fail_after(PATIENCE_S):
                await trio.sleep_forever()

    async with pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
        with pytest.raises(Refused):
            await be_away(source)
    got = [message async for batch in receivers[0].batches() if isinstance(batch, Batch) for message in batch]
    assert got == SENT[: receivers[0].counters.delivered_packets]
    assert got


@pytest.mark.usefixtures("telling")
def test_one_with_a_thread_has_what_came_and_then_what_ended_it(place: Place) -> None:
    got: list[bytes] = []
    refused = threading.Event()

    def refuse_and_tell(notice: Notice) -> None:
        if notice.code == "test":
            refused.set()
        refuse(notice)

    def be_away_and_return(source: pgm.blocking.Source) -> None:
        with pgm.blocking.open_receiver(place.url(), on_notice=refuse_and_tell) as receiver:
            source.send_batch(SENT, flush=True)
            assert refused.wait(PATIENCE_S)
            try:
                got.extend(item.payload for item in receiver if isinstance(item, Message))
            finally:
                assert got == SENT[: receiver.counters.delivered_packets]

    with pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms")) as source, pytest.raises(Refused):
        be_away_and_return(source)
    assert got


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make receivers emit a notice when they leave."""
    monkeypatch.setattr(ReceiverCore, "leave", lambda _core, _now_ns: [Notice("test", "something happened")])


@pytest.mark.usefixtures("leaving")
async def test_one_under_trio_is_closed_whatever_a_handler_does_in_the_end(place: Place) -> None:
    before = open_files()
    with pytest.raises(Refused):
        async with pgm.open_receiver(place.url(), on_notice=refuse) as receiver:
            pass
    assert await receiver.next_batch() is None
    assert open_files() == before


@pytest.mark.usefixtures("leaving")
def test_one_that_spins_is_closed_whatever_a_handler_does_in_the_end(place: Place) -> None:
    before = open_files()
    with (
        pytest.raises(Refused),
        pgm.blocking.open_receiver(place.url(), busy_poll=True, on_notice=refuse) as receiver,
    ):
        pass
    with pytest.raises(pgm.UsageError, match="closed"):
        receiver.poll()
    assert open_files() == before


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize("call", ["poll", "recv", "next_batch"])
def test_a_handler_of_one_that_spins_may_not_read(place: Place, call: str) -> None:
    """Data read there would precede effects behind the notice, or data that is put back."""
    got: list[bytes] = []
    refusals: list[pgm.UsageError] = []

    def read(notice: Notice) -> None:
        if notice.code == "test":
            try:
                getattr(receiver, call)(*() if call == "poll" else (0,))
            except pgm.UsageError as error:
                refusals.append(error)
            raise Refused

    with (
        pgm.blocking.open_receiver(place.url(inbox_bytes="64KiB"), busy_poll=True, on_notice=read) as receiver,
        pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms")) as source,
    ):
        for size in range(len(SENT)):  # of other sizes, so that they are read one by one
            source.send(SENT[size].ljust(100 + size))
        source.flush()
        while len(got) < len(SENT):
            try:
                item = receiver.recv(PATIENCE_S)
            except Refused:
                continue
            assert item is not None, got
            got += [item.payload.strip()] if isinstance(item, Message) else []
    assert got == SENT
    assert refusals
