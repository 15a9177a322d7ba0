"""However many ask the monitor, the nodes are asked once, and the text is written once."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from starlette.requests import Request

from deploy.watch import service
from deploy.watch.nodes import View
from deploy.watch.service import Pages


class Counted:
    """Nodes that count how often they are asked."""

    looks = 0

    def look(self) -> View:
        self.looks += 1
        return View((), time.monotonic(), 0.01)


async def test_many_requests_are_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: Any = Counted()
    pages = Pages(nodes)
    request = Request({"type": "http", "headers": []})
    answers = []

    async def ask() -> None:
        answers.append((await pages.metrics(request)).body)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert len(answers) == 20
    assert all(one is answers[0] for one in answers)
    assert nodes.looks == 1
    monkeypatch.setattr(service, "FRESH_S", 0.0)
    await ask()
    assert nodes.looks == 2
