"""A handler of notices that raises: whoever called has the exception, and goes on without having lost anything."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import pgm.blocking
from pgm import Batch, Message
from pgm.core.channel import Channel
from pgm.core.effects import Deliver, Effects, Notice
from pgm.core.receiver import ReceiverCore
from pgm.wire.formats import Nla
from pgm.wire.train import Train
from tests.net.places import Place

PATIENCE_S = 20.0
SENT = [b"%d" % number for number in range(50)]


class Seen:
    """An observer that keeps what was performed."""

    def __init__(self) -> None:
        self.effects: list[object] = []

    def received(self, *_: object) -> None:
        pass

    def performed(self, effects: Effects, now_ns: int) -> None:
        self.effects += effects


class Refused(Exception):
    """What the handler raises."""


def refuse(notice: Notice) -> None:
    if notice.code == "test":
        raise Refused


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that have something to tell before each delivery."""
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
