"""Joiners of a table of keys and values, which begin with a snapshot of the table, on real sockets."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import trio

import pgm
import pgm.blocking
from pgm import Lost, Message, Snapshot, SnapshotError, UsageError
from pgm.core.effects import NoSnapshotCause
from tests.net.support.listening import PATIENCE_S
from tests.net.support.loops import runner_of
from tests.net.support.places import Place

KEYS, LAST = 50, b"end"


class Table:
    """Keys and values, of which every change is a message."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.snapshots = 0

    def change(self, number: int) -> bytes:
        """Return the message of the next change, and the change itself for `apply`."""
        return json.dumps([f"key-{number % KEYS}", number]).encode()

    def apply(self, message: bytes) -> None:
        """Apply a change. A change that came twice or not in order is an error."""
        key, value = json.loads(message)
        assert self.values.get(key, value - KEYS) == value - KEYS
        self.values[key] = value

    def state(self) -> bytes:
        """Return the whole table."""
        self.snapshots += 1
        return json.dumps(self.values).encode()

    def take(self, item: Any) -> bool:
        """Apply an item at a joiner. Return whether more follow."""
        assert not isinstance(item, Lost)
        if isinstance(item, Snapshot):
            assert not self.values
            self.values = json.loads(bytes(item.payload))
        elif isinstance(item, Message):
            if item.payload == LAST:
                return False
            self.apply(item.payload)
        return True


@pytest.mark.parametrize("framing", ["plain", "batch"])
async def test_joiner_of_a_table_gets_it_and_every_change(place: Place, framing: str) -> None:
    table, copies = Table(), [Table(), Table()]
    url = place.url(framing=framing)
    joined = trio.Event()

    async def join(copy: Table) -> None:
        async with pgm.open_receiver(url, start="snapshot") as receiver:
            async for item in receiver:
                if isinstance(item, Snapshot) and copy is copies[1]:
                    joined.set()
                if not copy.take(item):
                    break

    with trio.fail_after(PATIENCE_S):
        async with (
            pgm.open_source(url, snapshot=table.state, fin_quiet_ivl="100ms", snapshot_ivl="100ms") as source,
            trio.open_nursery() as joins,
        ):
            number = 0
            while not joined.is_set() or number < 500:
                message = table.change(number)
                await source.send(message)
                table.apply(message)
                number += 1
                if number == 200:
                    joins.start_soon(join, copies[0])
                    joins.start_soon(join, copies[1])
                if number > 200:
                    await trio.sleep(0.001)
            await source.send(LAST, flush=True)
    assert copies[0].values == copies[1].values == table.values
    assert 1 <= table.snapshots <= 3


@pytest.mark.parametrize("busy_poll", [False, True])
def test_threads_give_and_take_a_snapshot(place: Place, busy_poll: bool) -> None:
    table, copy = Table(), Table()
    is_joined = threading.Event()
    kind: Any = {"busy_poll": busy_poll}

    def join() -> None:
        with pgm.blocking.open_receiver(place.url(), start="snapshot", **kind) as receiver:
            for item in receiver:
                if isinstance(item, Snapshot):
                    is_joined.set()
                if not copy.take(item):
                    break

    joiner = threading.Thread(target=join)
    with pgm.blocking.open_source(place.url(), snapshot=table.state, fin_quiet_ivl="50ms", **kind) as source:
        number = 0
        while not is_joined.wait(0.001) or number < 100:
            message = table.change(number)
            source.send(message)
            table.apply(message)
            number += 1
            if number == 50:
                joiner.start()
        source.send(LAST)
        joiner.join(PATIENCE_S)
    assert copy.values == table.values
    assert table.snapshots == 1


@pytest.mark.parametrize("library", ["asyncio", "uvloop"])
def test_asyncio_gives_and_takes_a_snapshot(place: Place, library: str) -> None:
    async def main() -> None:
        async with (
            pgm.open_source(place.url(), snapshot=lambda: b"all", fin_quiet_ivl="50ms") as source,
            pgm.open_receiver(place.url(), start="snapshot") as receiver,
        ):
            async for item in receiver:
                if isinstance(item, Snapshot):
                    assert item.payload == b"all"
                    await source.send(b"next")
                elif isinstance(item, Message):
                    assert item.payload == b"next"
                    break

    runner_of(library)(main())


async def test_idle_source_gives_a_snapshot_at_once(place: Place) -> None:
    with trio.fail_after(PATIENCE_S):
        async with (
            pgm.open_source(place.url(), snapshot=lambda: b"all", fin_quiet_ivl="50ms"),
            pgm.open_receiver(place.url(), start="snapshot") as receiver,
        ):
            async for item in receiver:
                if isinstance(item, Snapshot):
                    assert item.payload == b"all"
                    break


async def test_source_without_snapshots_raises_with_a_remedy(place: Place) -> None:
    with trio.fail_after(PATIENCE_S):
        async with (
            pgm.open_source(place.url(), fin_quiet_ivl="50ms") as source,
            pgm.open_receiver(place.url(), start="snapshot") as receiver,
        ):
            with pytest.raises(SnapshotError, match="snapshot=") as raised:
                async for _ in receiver:
                    pass
            assert raised.value.missing.cause is NoSnapshotCause.NOT_OFFERED
            await source.send(b"still usable", flush=True)
            async for item in receiver:
                if isinstance(item, Message):
                    assert item.payload == b"still usable"
                    break


async def test_snapshots_that_cannot_work_are_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="private_options"):
        async with pgm.open_source(place.url(), snapshot=bytes, private_options=False):
            pass
    with pytest.raises(UsageError, match="memory"):
        async with pgm.open_receiver(place.url(), start="snapshot", durable="./positions"):
            pass
