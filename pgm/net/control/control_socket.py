"""The control socket: a Unix socket beside the status socket, by which the node's own user changes settings while it runs.

Whoever connects writes one line of JSON and reads one. One at a time is answered, in bounded time and from a bounded line.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from pgm.core.counters import Counters
from pgm.errors import PgmError, ProcessError, UsageError
from pgm.net.control.status_socket import runtime_dir
from pgm.net.sockets.trusted_folders import peer_of
from pgm.net.sockets.unix import connect, listening

Request = dict[str, Any]
Answer = dict[str, Any]

_MOST_OCTETS = 4096  # of a request: a few settings, each a short word
_PATIENCE_S = 0.5  # for a request on its way and for its answer; the next asker waits meanwhile
_ASK_TIMEOUT_S = 3.0  # that, for a few who are before us


def control_path(topology: str, node: str) -> Path:
    """The control socket of one node."""
    return runtime_dir(topology) / f"{node.replace('/', '_')}.ctl"


async def serve_control(
    path: Path,
    answer: Callable[[Request, str], Answer],
    counters: Counters,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests until cancelled: `answer` gets each and who asks, and raises `PgmError` for what it refuses.

    Raises `ProcessError` where somebody answers already, or where there can be no socket.
    """
    async with listening(path, "control") as sock:
        task_status.started()
        while True:
            try:
                asker, _ = await sock.accept()
            except OSError:  # the process has no descriptor left, for a while
                await trio.sleep(_PATIENCE_S)
                continue
            with asker, trio.move_on_after(_PATIENCE_S):
                try:
                    line = await _line_of(asker)
                    if line:
                        await _write(asker, _answered(line, answer, _who(asker), counters))
                except OSError:
                    continue  # whoever asked has gone


async def _line_of(asker: trio.socket.SocketType) -> bytes:
    """A request up to its newline or end, or more than a request may have."""
    line = bytearray()
    while len(line) <= _MOST_OCTETS and not line.endswith(b"\n"):
        chunk = await asker.recv(_MOST_OCTETS + 1 - len(line))
        if not chunk:
            break
        line += chunk
    return bytes(line)


async def _write(asker: trio.socket.SocketType, answer: Answer) -> None:
    left = memoryview(json.dumps(answer).encode() + b"\n")
    while left:
        left = left[await asker.send(left) :]


def _who(asker: trio.socket.SocketType) -> str:
    pid, uid = peer_of(asker)
    return f"process {pid} of user {uid}"


def _answered(line: bytes, answer: Callable[[Request, str], Answer], who: str, counters: Counters) -> Answer:
    try:
        return answer(_read(line), who)
    except PgmError as error:
        counters.control_refused += 1
        return {"error": {"code": error.code, "message": error.message, "remedy": error.remedy}}


def _read(line: bytes) -> Request:
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
    """Return what a node answers.

    Raises `ProcessError` if no process answers, or another user's could, and `UsageError` for what the node refuses.
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
