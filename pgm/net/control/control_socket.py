"""Control socket: a Unix socket for changes of a running node's settings.

It lies beside the status socket, for the node's own user. A client writes one line of JSON and reads one. Clients are
served one at a time, in bounded time and with bounded lines.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from pgm.core.counters import Counters
from pgm.errors import PgmError, ProcessError, UsageError
from pgm.net.control.clients import accept_client, receive, send_all
from pgm.net.control.status_socket import runtime_dir
from pgm.net.driver.event_loops import EventLoop, TaskStatus, current_loop
from pgm.net.sockets.trusted_folders import peer_of
from pgm.net.sockets.unix import connect, listening

Request = dict[str, Any]
Answer = dict[str, Any]

_MOST_OCTETS = 4096  # of a request: a few settings, each a short word
_CLIENT_TIMEOUT_S = 0.5  # for a request to arrive and for its answer; the next client waits meanwhile
_ASK_TIMEOUT_S = 3.0  # the same, for a few clients ahead


def control_path(topology: str, node: str) -> Path:
    """Return the path of one node's control socket."""
    return runtime_dir(topology) / f"{node.replace('/', '_')}.ctl"


async def serve_control(
    path: Path,
    answer: Callable[[Request, str], Answer],
    counters: Counters,
    *,
    task_status: TaskStatus = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests until cancelled.

    `answer` gets each request and the requester, and raises `PgmError` to refuse it. Raises `ProcessError` if a process
    answers already, or if the socket cannot be made.
    """
    loop = current_loop()

    async def serve(client: socket.socket) -> None:
        line = await _line_of(loop, client)
        if line:
            reply = _answer_to(line, answer, _requester_of(client), counters)
            await send_all(loop, client, json.dumps(reply).encode() + b"\n")

    with listening(path, "control") as sock:
        task_status.started()
        while True:
            with await accept_client(loop, sock) as client, contextlib.suppress(OSError):  # the client has gone
                await loop.within(_CLIENT_TIMEOUT_S, serve, client)


async def _line_of(loop: EventLoop, client: socket.socket) -> bytes:
    """Return a request up to its newline or end; one octet more than the limit if it is too long."""
    line = bytearray()
    while len(line) <= _MOST_OCTETS and not line.endswith(b"\n"):
        chunk = await receive(loop, client, _MOST_OCTETS + 1 - len(line))
        if not chunk:
            break
        line += chunk
    return bytes(line)


def _requester_of(client: socket.socket) -> str:
    pid, uid = peer_of(client)
    return f"process {pid} of user {uid}"


def _answer_to(line: bytes, answer: Callable[[Request, str], Answer], requester: str, counters: Counters) -> Answer:
    try:
        return answer(_parse(line), requester)
    except PgmError as error:
        counters.control_refused += 1
        return {"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}


def _parse(line: bytes) -> Request:
    if len(line) > _MOST_OCTETS:
        raise UsageError(f"a request of more than {_MOST_OCTETS} octets", remedy="ask for less at a time")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError("the request is no JSON", remedy='send one line, such as {"do": "get"}') from error
    if not isinstance(request, dict):
        raise UsageError("the request is no JSON object", remedy='send one line, such as {"do": "get"}')
    return request


def ask_control(path: Path, request: Request) -> Answer:
    """Return a node's answer to a request.

    Raises `ProcessError` if no process answers, or if another user could answer. Raises `UsageError` if the node
    refuses.
    """
    octets = bytearray()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_ASK_TIMEOUT_S)
            connect(sock, path)
            sock.sendall(json.dumps(request).encode() + b"\n")
            while chunk := sock.recv(65_536):
                octets += chunk
        answer: Answer = json.loads(octets)
    except (OSError, ValueError) as error:
        raise ProcessError(
            f"no answer from {path}: {error}", remedy="see with `pgm status` whether the node runs, and ask again"
        ) from error
    if "error" in answer:
        raise UsageError(answer["error"]["message"], remedy=answer["error"]["remedy"])
    return answer
