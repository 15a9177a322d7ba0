"""Objects of a type, on all four surfaces."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from uuid import UUID

import attrs
import numpy as np
import numpy.typing as npt
import pytest
import trio

import pgm
import pgm.blocking
from pgm.net.framing.objects import ObjectItem
from tests.net.support.loops import runner_of
from tests.net.support.places import Place


@dataclasses.dataclass
class Leg:
    symbol: str
    size: int


@attrs.define
class Trade:
    key: UUID
    at: datetime
    legs: list[Leg]
    prices: npt.NDArray[np.float64] = attrs.field(eq=attrs.cmp_using(np.array_equal))


SENT = [Trade(UUID(int=number), datetime(2026, 3, 1), [Leg("a", number)], np.arange(3.0)) for number in range(3)]


VALUES = [*SENT, {"key": SENT[0].key}]  # the last is no trade


def check(items: list[ObjectItem], receiver: pgm.Receiver | pgm.blocking.Receiver) -> None:
    with pytest.raises(pgm.UsageError, match="dataclass"):
        receiver.objects(type=object())
    found = [item for item in items if isinstance(item, pgm.Object)]
    assert [one.value for one in found] == [*SENT, None]
    assert "required field missing" in found[-1].error
    assert receiver.counters.object_rejects == 1


async def main(place: Place) -> None:
    items: list[ObjectItem] = []
    async with pgm.open_receiver(place.url()) as receiver:
        async with pgm.open_source(place.url(fin_quiet_ivl="50ms")) as source:
            for value in VALUES:
                await source.send_object(value)
        async for item in receiver.objects(type=Trade):
            items.append(item)
            if isinstance(item, pgm.Closed):
                break
        check(items, receiver)


@pytest.mark.parametrize("library", ["trio", "asyncio"])
def test_objects_of_a_type_in_a_loop(place: Place, library: str) -> None:
    if library == "trio":
        trio.run(main, place)
    else:
        runner_of(library)(main(place))


@pytest.mark.parametrize("busy_poll", [False, True])
def test_objects_of_a_type_in_a_thread(place: Place, busy_poll: bool) -> None:
    items: list[ObjectItem] = []
    with pgm.blocking.open_receiver(place.url(), busy_poll=busy_poll) as receiver:  # type: ignore[call-overload]
        with pgm.blocking.open_source(place.url(fin_quiet_ivl="50ms")) as source:
            for value in VALUES:
                source.send_object(value)
        for item in receiver.objects(type=Trade):
            items.append(item)
            if isinstance(item, pgm.Closed):
                break
        check(items, receiver)
