"""Concurrent requests to the monitor poll the nodes once and share one text."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.datastructures import URL
from starlette.requests import Request

from deploy.monitor import http_service as service
from deploy.monitor.http_service import PageService
from pgm.errors import ProcessError
from pgm.fleet import nodes
from pgm.fleet.nodes import TreeView
from tests.folders import short_folder


class CountingWatch:
    """Nodes that count the polls."""

    looks = 0

    def look(self) -> TreeView:
        self.looks += 1
        return TreeView((), time.monotonic(), 0.01)


async def test_monitor_service_at_the_limit_of_files_answers_503(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a flood of connections, the limit of open files is the monitor's and not the nodes'."""

    def refuse(path: Path) -> None:
        raise ProcessError(f"no answer from {path}") from OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(nodes, "ask_status", refuse)
    with short_folder() as folder:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
        (folder / "t").mkdir()
        (folder / "t" / "n.sock").touch()
        answers: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            answers.append(message)

        scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [], "query_string": b""}
        await service.application(nodes.NodeWatch(), None)(scope, receive, send)
    assert answers[0]["status"] == 503
    assert b"Too many open files" in answers[1]["body"]


async def test_monitor_service_concurrent_requests_share_one_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Any = CountingWatch()
    pages = PageService(counted)
    request = Request({"type": "http", "headers": []})
    answers = []

    async def ask() -> None:
        answers.append((await pages.metrics(request)).body)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert len(answers) == 20
    assert all(one is answers[0] for one in answers)
    assert counted.looks == 1
    monkeypatch.setattr(service, "FRESH_S", 0.0)
    await ask()
    assert counted.looks == 2


async def answer_of(path: str, **headers: str) -> tuple[int, bytes]:
    """Return the monitor's answer to one request."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    named = [(key.encode(), value.encode()) for key, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "headers": named, "query_string": b""}
    counted: Any = CountingWatch()
    await service.application(counted, None)({**scope, "scheme": "http", "root_path": ""}, receive, send)
    return said[0]["status"], said[1]["body"]


@pytest.mark.parametrize("host", ["127.0.0.1", "a/b", "a//dev/null?", "a//etc/hostname?"])
async def test_monitor_service_ignores_path_headers(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that a library builds from the Host header may contain any path."""
    monkeypatch.setattr(Request, "url", property(lambda self: URL(f"http://{self.headers['host']}/monitor.css")))
    status, text = await answer_of("/monitor.css", host=host)
    assert (status, text[:5]) == (200, b":root")
