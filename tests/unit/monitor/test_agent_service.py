"""Requests to an agent that change something: their token, and a folder that the agent cannot write."""

from __future__ import annotations

import base64
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from deploy.monitor import http_service as service
from deploy.monitor.agent_service import AgentService
from pgm.fleet import nodes

TOKEN = "a-token-of-many-characters"
BASIC = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()


class FullDisk:
    """Host that cannot write its files."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def answer(self, _: dict[str, Any]) -> dict[str, Any]:
        raise self._error


async def answer_of(file: Path, authorization: str, *, error: OSError | None = None) -> tuple[int, bytes]:
    """Return the agent's answer to a step of `pgm apply`."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"do": "prepare"}', "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    full: Any = FullDisk(error or OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    scope = {"type": "http", "method": "POST", "path": "/fleet/v1/apply", "query_string": b"", "scheme": "http"}
    headers = [(b"authorization", authorization.encode()), (b"content-type", b"text/plain")]
    agent = service.application(
        nodes.NodeWatch(), TOKEN, lambda pages: AgentService(pages, file, "t", may_change=True, change=full).resources()
    )
    await agent({**scope, "headers": headers, "root_path": ""}, receive, send)
    return said[0]["status"], said[1]["body"]


async def test_change_needs_the_token_that_no_browser_sends_by_itself(tmp_path: Path) -> None:
    """A page of another site could let a browser that knows the password send the change."""
    assert (await answer_of(tmp_path / "tree.toml", f"Basic {BASIC}"))[0] == 401


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
async def test_folder_that_the_agent_cannot_write_is_told_with_the_remedy(tmp_path: Path, number: int) -> None:
    path = str(tmp_path / ".tree.toml.new-1")
    error = OSError(number, os.strerror(number), path)
    status, body = await answer_of(tmp_path / "tree.toml", f"Bearer {TOKEN}", error=error)
    told = json.loads(body)["error"]
    assert (status, told["message"]) == (503, f"{path}: {os.strerror(number)}")
    assert f"ReadWritePaths={tmp_path}" in told["remedy"]


async def test_agent_without_room_for_files_is_not_told_to_write_elsewhere(tmp_path: Path) -> None:
    error = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    status, body = await answer_of(tmp_path / "tree.toml", f"Bearer {TOKEN}", error=error)
    assert (status, json.loads(body)["error"]["remedy"]) == (503, "let the agent open more files, and ask again")
