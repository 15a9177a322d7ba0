"""Requests to an agent that change something, and their token."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from deploy.monitor import http_service as service
from deploy.monitor.agent_service import AgentService
from pgm.fleet import nodes

TOKEN = "a-token-of-many-characters"
BASIC = base64.b64encode(f"anybody:{TOKEN}".encode()).decode()


async def status_of(file: Path, authorization: str) -> int:
    """Return the status of the agent's answer to a step of `pgm apply`."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"do": "prepare"}', "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": "POST", "path": "/fleet/v1/apply", "query_string": b"", "scheme": "http"}
    headers = [(b"authorization", authorization.encode()), (b"content-type", b"text/plain")]
    agent = service.application(
        nodes.NodeWatch(), TOKEN, lambda pages: AgentService(pages, file, "t", may_change=True).resources()
    )
    await agent({**scope, "headers": headers, "root_path": ""}, receive, send)
    status: int = said[0]["status"]
    return status


async def test_change_needs_the_token_that_no_browser_sends_by_itself(tmp_path: Path) -> None:
    """A page of another site could let a browser that knows the password send the change."""
    assert await status_of(tmp_path / "tree.toml", f"Basic {BASIC}") == 401
