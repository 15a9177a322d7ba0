"""Reads of `pgm record`, which is a receiver: all rules of a receiver's reads apply."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

import pgm
from deploy.archive.record import record_node
from pgm.core.structures.arena import Arena
from pgm.net.driver.read_moderation import ReadModeration
from pgm.net.endpoint.open import resolve
from pgm.topology.node_plan import Role
from pgm.units import MIB, MILLISECOND
from tests.net.support.places import Place

PATIENCE_S = 60.0
MESSAGES = 20_000


async def test_a_recorder_rests_and_has_memory_ready_as_a_receiver(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long rests and a low threshold make any machine rest."""
    rests: list[int] = []
    warmed: list[int] = []
    rest_ns, warm_up = ReadModeration.rest_ns, Arena.warm_up

    def resting(self: ReadModeration, now_ns: int) -> int:
        rests.append(rest_ns(self, now_ns))
        return rests[-1]

    def warming(self: Arena, octets: int) -> bool:
        warmed.append(octets)
        return warm_up(self, octets)

    monkeypatch.setattr(ReadModeration, "rest_ns", resting)
    monkeypatch.setattr(Arena, "warm_up", warming)
    many = {"rx_bulk_ivl": "20ms", "rx_bulk_rte": "1MB/s", "rxw_warm_bytes": "0B", "rxw_warm_ivl": "10s"}
    plan = resolve(place.url(), None, Role.RECEIVER, {**many, "rxw_bytes": "16MiB"})
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            accounts = []

            async def record() -> None:
                accounts.append(await record_node(plan, None, tmp_path, until_closed=True, seed=None))

            nursery.start_soon(record)
            await trio.testing.wait_all_tasks_blocked()  # its sockets are open
            async with pgm.open_source(place.url(fin_quiet_ivl="300ms", rate="160Mbit/s")) as source:
                await source.send_batch([b"x" * 400] * MESSAGES)
    assert accounts[0]["messages"] == MESSAGES
    assert max(rests) > 10 * MILLISECOND
    assert max(warmed) == 16 * MIB
