"""A resting element sleeps with its whole process.

It does not sleep for long, not while a deadline is due, and not past data on other sockets.
"""

from __future__ import annotations

import socket
import time

import pytest
import trio

from pgm import Batch
from pgm.net.driver.process_sleep import ProcessSleep
from pgm.topology.load import loads
from pgm.units import MILLISECOND, SECOND
from tests.net.support.elements import running
from tests.net.support.places import Place, below_a_relay

LENGTH = 30 * MILLISECOND


def took_ns(pauses: ProcessSleep, length_ns: int = LENGTH) -> tuple[bool, int]:
    begun_ns = time.monotonic_ns()
    return pauses.pause(length_ns), time.monotonic_ns() - begun_ns


def test_process_sleep_ends_in_time_or_by_another_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pauses = ProcessSleep([ours])
        has_paused, length_ns = took_ns(pauses)
        assert has_paused
        assert LENGTH <= length_ns < 10 * LENGTH
        theirs.send(b"?")
        assert took_ns(pauses, 60 * SECOND)[0] is False


def test_other_tasks_get_their_turn() -> None:
    pauses = ProcessSleep([])
    assert [pauses.pause(0) for _ in range(16)] == 2 * [*[True] * 7, False]


@pytest.mark.parametrize("ivl", ["5ms", "0ms"])
async def test_process_sleep_of_a_relay_loses_nothing(place: Place, ivl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, pause, lengths = 60, ProcessSleep.pause, []

    def noted(pauses: ProcessSleep, length_ns: int) -> bool:
        lengths.append(length_ns)
        return pause(pauses, length_ns)

    monkeypatch.setattr(ProcessSleep, "pause", noted)
    pausing = f'rx_bulk_rte = "10kB/s", rx_bulk_ivl = "{ivl}"'
    topology = loads(below_a_relay(place, "repairer", relay=pausing, rate="160Mbit/s"))
    async with running(topology, "relay", "desk-1", "source", is_alone=True) as tree:
        wanted = [f"{number:05d}".encode() * 200 for number in range(40 * rows)]
        got: list[bytes] = []
        with trio.fail_after(20):
            for at in range(0, len(wanted), rows):
                await tree.sources["source"].send_batch(wanted[at : at + rows])
                while len(got) < at + rows:
                    item = await tree.receivers["desk-1"].next_batch()
                    got += [bytes(one) for one in item.payloads] if isinstance(item, Batch) else []
        assert got == wanted
        assert bool(lengths) is (ivl != "0ms")
