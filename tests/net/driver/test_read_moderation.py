"""Rests of a node that receives at a high rate: the data stays the same.

A node with a low rate, or with a gap, does not wait.
"""

from __future__ import annotations

import numpy as np
import pytest
import trio

import pgm
import pgm.blocking
from pgm import Batch
from pgm.core.counters import Counters
from pgm.net.driver.read_moderation import ReadModeration
from pgm.net.driver.rest_settings import ReadSettings, element_read_settings, receiver_read_settings
from pgm.parameters import Parameters
from pgm.units import MIB, MILLISECOND
from tests.net.support.places import Place

MUCH = 64_000_000  # octets a second
IVL = 2 * MILLISECOND
BULK, NO_REST = ReadSettings(bulk_ivl=IVL, bulk_rte=MUCH), ReadSettings(bulk_rte=MUCH)
PATIENCE_S = 20.0


def rests(moderation: ReadModeration, rate: int, *, begun_ns: int = 10**9, windows: int = 3) -> list[int]:
    """Return the rest at the end of each of some windows of 10 ms, read every millisecond."""
    said = []
    for window in range(windows):
        for step in range(1, 11):
            moderation.read(rate // 1000)
            rest_ns = moderation.rest_ns(begun_ns + (10 * window + step) * MILLISECOND)
        said.append(rest_ns)
    return said


def test_only_much_is_moderated() -> None:
    assert rests(ReadModeration(BULK, MIB, Counters()), 2 * MUCH)[1:] == [IVL, IVL]
    assert rests(ReadModeration(BULK, MIB, Counters()), MUCH // 2) == [0, 0, 0]
    assert rests(ReadModeration(NO_REST, MIB, Counters()), 2 * MUCH) == [0, 0, 0]


@pytest.mark.parametrize(("rate", "wanted"), [(700_000_000, MIB * 10**9 // 700_000_000), (1_200_000_000, 0)])
def test_a_rest_fills_no_more_than_the_room_there_is(rate: int, wanted: int) -> None:
    assert rests(ReadModeration(BULK, MIB, Counters()), rate)[-1] == wanted


def test_moderation_begins_with_steady_heavy_traffic() -> None:
    counters = Counters()
    for settings in (BULK, NO_REST):
        moderation = ReadModeration(settings, MIB, counters)
        rests(moderation, 20 * MUCH)
        assert moderation.steady_rate == 20 * MUCH
        rests(moderation, MUCH // 2, begun_ns=2 * 10**9)
        assert moderation.steady_rate == 0
        rests(moderation, MUCH, begun_ns=3 * 10**9)
        moderation.read(2 * MUCH)
        counters.nak_packets += 1
        assert moderation.rest_ns(4 * 10**9) == 0
        assert moderation.steady_rate >= MUCH, "where losses are steady something is asked for all the time"


@pytest.mark.parametrize(
    ("rate", "ivl", "wanted"),
    [
        (2 * MUCH, 4 * IVL, 2 * MUCH * 8 // 1000),
        (2 * MUCH, 100 * IVL, MIB),  # no more than the window takes
        (2 * MUCH, 0, 0),
        (MUCH // 2, 4 * IVL, 0),
    ],
)
@pytest.mark.parametrize("rest_ivl", [IVL, 0])
def test_memory_is_wanted_for_what_comes_in_an_interval(rate: int, ivl: int, wanted: int, rest_ivl: int) -> None:
    settings = ReadSettings(bulk_ivl=rest_ivl, bulk_rte=MUCH, warm_ivl=ivl, warm_octets=MIB)
    moderation = ReadModeration(settings, MIB, Counters())
    assert moderation.warm_octets == 0
    rests(moderation, rate)
    assert moderation.warm_octets == wanted


@pytest.mark.parametrize(("ivl", "is_taken"), [("1s", True), ("0ms", False)])
async def test_moderation_prefaults_memory_behind_a_gap(place: Place, ivl: str, is_taken: bool) -> None:
    """As much as comes in `rxw_warm_ivl`, up to `rxw_bytes`: 12 MiB here. The messages themselves need 2 MiB."""
    much = {"rx_bulk_rte": "100kB/s", "rxw_warm_ivl": ivl, "rxw_bytes": "12MiB", "rxw_warm_bytes": "0B"}
    rows = np.zeros((500, 1000), np.uint8)
    source_url = place.url(fin_quiet_ivl="50ms", rate="160Mbit/s")
    async with pgm.open_receiver(place.url(), **much) as receiver, pgm.open_source(source_url) as source:
        for _ in range(40):
            with trio.fail_after(PATIENCE_S):
                await source.send_batch(rows)
                got = 0
                while got < len(rows):
                    item = await receiver.next_batch()
                    got += len(item) if isinstance(item, Batch) else 0
        assert (receiver.links[0].arena.octets == 12 * MIB) is is_taken


@pytest.mark.parametrize(("ivl", "is_taken"), [("1s", True), ("0ms", False)])
def test_moderation_prefaults_for_busy_poll_too(place: Place, ivl: str, is_taken: bool) -> None:
    much = {"rx_bulk_rte": "100kB/s", "rxw_warm_ivl": ivl, "rxw_bytes": "12MiB", "rxw_warm_bytes": "0B"}
    rows = np.zeros((500, 1000), np.uint8)
    source_url = place.url(fin_quiet_ivl="50ms", rate="160Mbit/s")
    with (
        pgm.blocking.open_receiver(place.url(), busy_poll=True, **much) as receiver,
        pgm.blocking.open_source(source_url, busy_poll=True) as source,
    ):
        for _ in range(40):
            source.send_batch(rows)
            got = 0
            while got < len(rows):
                item = receiver.next_batch(PATIENCE_S)
                assert item is not None
                got += len(item) if isinstance(item, Batch) else 0
        assert (receiver.links[0].arena.octets == 12 * MIB) is is_taken


def test_an_element_may_rest_longer() -> None:
    assert receiver_read_settings(Parameters()).bulk_share == 1 / 16
    assert element_read_settings(Parameters()).bulk_share == 1 / 4


def test_nobody_rests_while_repairs_are_asked_for() -> None:
    counters = Counters()
    moderation = ReadModeration(BULK, MIB, counters)
    assert rests(moderation, 2 * MUCH)[-1] == IVL
    counters.nak_packets += 1
    assert rests(moderation, 2 * MUCH, begun_ns=2 * 10**9)[1:] == [IVL, IVL]  # the first window is over before
    counters.nak_packets_in += 1
    moderation.read(MUCH)
    assert moderation.rest_ns(3 * 10**9) == 0


def test_a_rest_ends_with_the_first_nak_and_not_with_the_window() -> None:
    counters = Counters()
    moderation = ReadModeration(BULK, MIB, counters)
    assert rests(moderation, 2 * MUCH)[-1] == IVL
    soon_ns = 10**9 + 31 * MILLISECOND
    assert moderation.rest_ns(soon_ns) == IVL
    counters.nak_packets += 1
    assert moderation.rest_ns(soon_ns) == 0


def lossy(moderation: ReadModeration, counters: Counters, windows: int, *, begun_ns: int, sqns: int = 10) -> list[int]:
    """Return the rest at the end of each window of 1000 packets, of which `sqns` were lost."""
    said = []
    for window in range(windows):
        counters.packets_in += 1000
        counters.nak_packets += 1
        counters.nak_sqns += sqns
        said += rests(moderation, 4 * MUCH, begun_ns=begun_ns + 10 * window * MILLISECOND, windows=1)
    return said


def test_a_few_losses_all_the_time_leave_a_short_rest() -> None:
    counters = Counters()
    moderation = ReadModeration(BULK, MIB, counters)
    said = lossy(moderation, counters, 20, begun_ns=10**9)
    assert said[:10] == [0] * 10
    assert said[-8:] == [MILLISECOND] * 8
    soon_ns = 10**9 + 200 * MILLISECOND
    counters.nak_packets += 1
    counters.nak_sqns += 50
    assert moderation.rest_ns(soon_ns) == MILLISECOND
    counters.nak_sqns += 50
    assert moderation.rest_ns(soon_ns) == 0, "a burst does not wait"
    assert lossy(moderation, counters, 10, begun_ns=2 * 10**9) == [0] * 10, "nor what comes soon after it"


def test_moderation_resumes_after_losses_end() -> None:
    counters = Counters()
    moderation = ReadModeration(BULK, MIB, counters)
    lossy(moderation, counters, 20, begun_ns=10**9)
    assert rests(moderation, 4 * MUCH, begun_ns=2 * 10**9)[1:] == [IVL, IVL]
    counters.nak_packets += 1
    assert moderation.rest_ns(2 * 10**9 + 29 * MILLISECOND) == MILLISECOND


@pytest.mark.parametrize(("sqns", "room"), [(100, MIB), (10, MIB // 8)])
def test_many_losses_or_little_room_leave_none(sqns: int, room: int) -> None:
    counters = Counters()
    assert not any(lossy(ReadModeration(BULK, room, counters), counters, 30, begun_ns=10**9, sqns=sqns))


def test_nobody_rests_while_children_ask() -> None:
    counters = Counters()
    moderation = ReadModeration(BULK, MIB, counters)
    for window in range(30):
        counters.nak_packets_in += 1
        assert lossy(moderation, counters, 1, begun_ns=10**9 + 10 * window * MILLISECOND) == [0]


def test_the_first_packet_after_a_pause_ends_it() -> None:
    moderation = ReadModeration(BULK, MIB, Counters())
    assert rests(moderation, 2 * MUCH)[-1] == IVL
    moderation.read(1472)
    assert moderation.rest_ns(2 * 10**9) == 0


async def test_moderation_keeps_all_packets_in_order(place: Place) -> None:
    """Long rests and a low threshold make any machine rest."""
    count = 40_000
    numbers = np.arange(count, dtype=">u8").view(np.uint8).reshape(count, 8)
    rows = np.hstack([numbers, np.zeros((count, 392), np.uint8)])
    slow = {"rx_bulk_ivl": "20ms", "rx_bulk_rte": "1MB/s"}
    source_url = place.url(fin_quiet_ivl="50ms", rate="160Mbit/s")
    async with pgm.open_receiver(place.url(), **slow) as receiver, pgm.open_source(source_url) as source:
        got, rested = [], 0.0

        async def send() -> None:
            for at in range(0, count, 1000):
                await source.send_batch(rows[at : at + 1000])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with trio.fail_after(PATIENCE_S):
                while sum(map(len, got)) < count:
                    item = await receiver.next_batch()
                    rested = max(rested, receiver.driver.rest_s())
                    if isinstance(item, Batch):
                        got.append(np.ascontiguousarray(item.payloads[:, :8]).view(">u8")[:, 0])
    assert np.array_equal(np.concatenate(got), np.arange(count))
    assert rested > 0.001
