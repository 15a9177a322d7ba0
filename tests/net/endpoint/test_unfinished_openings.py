"""Openings that fail after a node's sockets were opened: none stays open, even if the error is kept."""

from __future__ import annotations

import select
from pathlib import Path
from typing import Any

import pytest
import trio

import pgm
import pgm.blocking
from deploy.archive.record import record_node
from pgm.archive.errors import ArchiveError
from pgm.net.element_process import run_element
from pgm.net.endpoint import open as opening
from pgm.net.endpoint.open import resolve
from pgm.topology.load import loads
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_node
from tests.net.support.opened import open_files
from tests.net.support.places import Place, below_a_relay

_EPOLL = select.epoll


class Refused(Exception):
    """Exception of a core's constructor."""


def refuse(*_: object, **__: object) -> None:
    raise Refused


def nothing(*_: object) -> None:
    """Ignore a notice."""


def under_trio(way: str, place: Place) -> None:
    async def opened() -> None:
        async with getattr(pgm, way)(place.url()):
            pass

    trio.run(opened)


def spinning(way: str, place: Place) -> None:
    with getattr(pgm.blocking, way)(place.url(), busy_poll=True):
        pass


@pytest.mark.parametrize("role", ["source", "receiver"])
@pytest.mark.parametrize("spins", [False, True])
def test_a_core_that_cannot_be_made(place: Place, monkeypatch: pytest.MonkeyPatch, role: str, spins: bool) -> None:
    monkeypatch.setattr(opening, f"{role}_core", refuse)
    before = open_files()
    open_it = spinning if spins else under_trio
    with pytest.raises(Refused) as kept:
        open_it(f"open_{role}", place)
    assert open_files() == before
    assert kept.value.__traceback__ is not None


async def test_an_element_whose_core_cannot_be_made(place: Place) -> None:
    plan = plan_node(loads(below_a_relay(place, "repairer")), "relay")
    before = open_files()
    with pytest.raises(Refused) as kept:
        await run_element(plan, refuse, nothing)  # type: ignore[arg-type]
    assert open_files() == before
    assert kept.value.__traceback__ is not None


async def test_a_recorder_that_cannot_write(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = resolve(place.url(), None, Role.RECEIVER, {})
    before = open_files()
    with pytest.raises(ArchiveError) as kept:
        await record_node(plan, None, tmp_path / "file" / "archive", until_closed=True, seed=None)
    assert open_files() == before
    assert kept.value.__traceback__ is not None


class Full:
    """Epoll with room for one socket."""

    def __init__(self) -> None:
        self._epoll = _EPOLL()
        self._left = 1

    def register(self, sock: Any, mask: int) -> None:
        if not self._left:
            raise OSError(28, "No space left on device")
        self._left -= 1
        self._epoll.register(sock, mask)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)


def test_one_that_spins_and_whose_sockets_cannot_be_watched(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later nodes of the thread do not turn any part of the failed node either."""
    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr("pgm.net.driver.busy_poll_driver.select.epoll", Full)
        with pytest.raises(OSError, match="No space") as kept:
            spinning("open_receiver", place)
    assert open_files() == before
    assert kept.value.__traceback__ is not None
    with pgm.blocking.open_receiver(place.url(), busy_poll=True) as receiver:
        assert receiver.recv(0) is None
