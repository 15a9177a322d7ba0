"""Faults put into the production cores on purpose, to show that the search finds each and writes its test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from pgm.core.effects import LossCause
from pgm.core.receiver.data_path import DataPath
from pgm.core.recovery.recovery import Recovery
from pgm.core.window.receive_window import ReceiveWindow


def _forget_to_cancel(_self: Recovery, _spans: object, _now_ns: int | None = None) -> list[object]:
    """Leave the NAK timer of a packet that has arrived."""
    return []


def _give_up_too_much(self: Any, now_ns: int) -> None:
    """Give up the oldest packet of the source's window, too."""
    trail = self._state.trail + 1
    if self._state.trail > self._window.next_sqn:
        self._window.reveal(trail, now_ns)
        self._window.give_up_before(trail, LossCause.WINDOW)


_reveal = ReceiveWindow.reveal


def _reveal_too_little(self: ReceiveWindow, end: int, now_ns: int) -> None:
    """Do not look for the newest packet."""
    _reveal(self, end - 1, now_ns)


def _report_nothing(_self: ReceiveWindow, _gap: object) -> None:
    """Skip lost packets without a report."""


MUTATIONS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "forgets-to-cancel": (Recovery, "arrived_each", _forget_to_cancel),
    "trail-off-by-one": (DataPath, "follow_trail", _give_up_too_much),
    "lead-off-by-one": (ReceiveWindow, "reveal", _reveal_too_little),
    "reports-no-loss": (ReceiveWindow, "_report", _report_nothing),
}


@contextlib.contextmanager
def broken(name: str) -> Iterator[None]:
    """Run with one fault in the cores; with none for an empty name."""
    if not name:
        yield
        return
    kind, method, fault = MUTATIONS[name]
    with mock.patch.object(kind, method, fault):
        yield
