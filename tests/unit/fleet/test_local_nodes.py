"""Nodes of this host by their sockets: those that are gone, and those that run and do not answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pgm.errors import ProcessError
from pgm.fleet.local_nodes import LocalNodes, RunningFile
from tests.folders import short_folder


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of the sockets of the tree `t`."""
    with short_folder() as runtime:
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(runtime))
        (runtime / "t").mkdir(mode=0o700)
        yield runtime / "t"


@contextmanager
def bound(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        yield sock


@contextmanager
def answering(path: Path, *answers: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Give one answer to each client in turn. Yield the requests."""
    requests: list[dict[str, Any]] = []

    def serve(sock: socket.socket) -> None:
        for answer in answers:
            client, _ = sock.accept()
            with client:
                requests.append(json.loads(client.makefile().readline()))
                client.sendall(json.dumps(answer).encode())

    with bound(path) as sock:
        sock.listen()
        thread = threading.Thread(target=serve, args=(sock,))
        thread.start()
        yield requests
        thread.join()


ROW = {"node": "desk-1", "file": "/tree.toml", "digest": "0"}


def test_node_that_does_not_answer_is_no_node_that_has_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgm.net.control.control_socket._ASK_TIMEOUT_S", 0.05)
    with bound(folder / "killed.ctl"), answering(folder / "desk-1.ctl", ROW, ROW):
        assert LocalNodes("t").running() == {"desk-1": RunningFile("/tree.toml", "0")}
        with bound(folder / "desk-2.ctl") as stuck:
            stuck.listen()
            with pytest.raises(ProcessError, match="desk-2 does not answer: timed out"):
                LocalNodes("t").running()


def test_stop_of_a_node_asks_the_pgm_up_that_still_starts_it(folder: Path) -> None:
    """Without that request the start would go on after the change has been undone."""
    starting = {"nodes": [], "busy": ["desk-2"], "failed": {}}
    over: dict[str, Any] = {"nodes": [], "busy": [], "failed": {}}
    with answering(folder / "up-1.sup", starting, {"node": "desk-2"}, over) as requests:
        LocalNodes("t").supervise("stop", "desk-2", 5.0)
    assert requests[1] == {"do": "stop", "node": "desk-2"}
