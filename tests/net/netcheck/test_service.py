"""The agent's part of a netcheck on loopback: what a client may start, and what it may not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import trio

from deploy.netcheck import host_netcheck
from deploy.netcheck.service import ProbeService
from pgm.errors import ProcessError, UsageError
from tests.cli.command import invoked
from tests.net.support.places import Place, one_segment

ID = "0123456789abcdef"


@pytest.fixture
def service(tmp_path: Path) -> ProbeService:
    place = Place.new()
    file = tmp_path / "tree.toml"
    file.write_text(f"{one_segment(place, rate='80Mbit/s')}\n[fleet]\nprobe_port = {Place.new().port}\n")
    return ProbeService(file)


def test_netcheck_without_agents_tells_how_to_start_them(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(f"{one_segment(Place.new())}\n[fleet]\nport = {Place.new().port}\n")
    invoked("netcheck", file).complains(1, "no agent answers: 127.0.0.1:")
    assert (
        "pgm agent FILE --bind 0.0.0.0 --token-file TOKEN"
        in invoked("netcheck", file, "--json").json["error"]["remedy"]
    )


async def refused(service: ProbeService, **wanted: Any) -> str:
    with pytest.raises((UsageError, ProcessError)) as caught:
        await service.answer({"id": ID, **wanted})
    return caught.value.message


PAUSE_S = 0.2


def test_service_takes_one_netcheck_and_nothing_twice(service: ProbeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_netcheck, "PAUSE_S", PAUSE_S)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.run)
            assert "not open" in await refused(service, do="probe", hosts=1)
            assert "`id`" in await refused(service, do="open", host=0, id="../../x")
            assert "`host`" in await refused(service, do="open", host=10**9)
            opened = await service.answer({"do": "open", "id": ID, "host": 0})
            assert [(one["segment"], one["nodes"], one["sends"]) for one in opened["places"]] == [("lan", 2, True)]
            assert (opened["silent"], opened["problems"]) == (0, [])
            assert "another netcheck" in await refused(service, do="open", host=1, id="f" * 16)
            assert "not open" in await refused(service, do="result", id="f" * 16)
            assert "unknown" in await refused(service, do="format")
            assert "`hosts`" in await refused(service, do="probe", hosts="all")
            assert "`peers`" in await refused(service, do="ask", peers={"lan": "10.0.0.1"})
            assert "`segment`" in await refused(service, do="burst", segment="wan", share=1)
            for share in (math.nan, math.inf, -1, 0, 0.049, "1", None):
                assert "`share`" in await refused(service, do="burst", segment="lan", share=share)
            await _sends(service)
            await service.answer({"do": "close", "id": ID})
            began = trio.current_time()
            again = await service.answer({"do": "open", "id": "f" * 16, "host": 0})
            assert again["problems"] == []
            assert trio.current_time() - began >= PAUSE_S  # else bursts at the full rate follow each other
            nursery.cancel_scope.cancel()

    trio.run(main)


async def _sends(service: ProbeService) -> None:
    """Assert that each step sends once, and to the hosts of the segment alone."""
    address = _source_address(service)
    for _ in range(2):
        await service.answer({"do": "burst", "id": ID, "segment": "lan", "share": 5.0})
        peers = [["lan", address], ["lan", "192.0.2.1"], ["wan", address], ["lan", "junk"], "junk"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.answer, {"do": "probe", "id": ID, "hosts": 1})
            nursery.start_soon(service.answer, {"do": "ask", "id": ID, "peers": peers})
    told = await service.answer({"do": "result", "id": ID})
    sent = {row["kind"]: row for row in told["sent"]}
    heard = {row["kind"]: row for row in told["heard"]}
    assert (sent["numbered"]["count"], sent["ask"]["count"], sent["burst"]["refused"]) == (200, 8, 0)
    assert sent["burst"]["octets"] <= 10_000_000 // 4  # a quarter of a second at the rate of the file
    for kind in ("numbered", "size", "burst"):
        assert (heard[kind]["count"], heard[kind]["duplicates"], heard[kind]["is_allowed"]) == (
            sent[kind]["count"],
            0,
            True,
        )
    assert [(row["segment"], row["host"], row["count"]) for row in told["echoes"]] == [("lan", 0, 8)]


def _source_address(service: ProbeService) -> str:
    """Return the address of the source, the first one in the file of a service."""
    lines = service.file.read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("address = "))
