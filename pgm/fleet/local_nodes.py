"""Nodes of one tree on this host, by their sockets, and the `pgm up` processes that start and stop them."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from pgm.errors import ProcessError
from pgm.fleet.runtime_folders import folder_of, sockets_in
from pgm.net.control.control_socket import ask_control
from pgm.net.control.status_socket import ask_status

_POLL_S = 0.1
_GONE = (errno.ECONNREFUSED, errno.ENOENT)  # a killed process leaves its socket
_CONTROL, _SUPERVISORS = "*.ctl", "*.sup"


@attrs.frozen
class RunningFile:
    """File that a running node has read."""

    path: str
    digest: str


class HostNodes(Protocol):
    """Nodes of one tree on one host."""

    def running(self) -> dict[str, RunningFile]:
        """Return the nodes that run, with their files. Raises `ProcessError` for a node that does not answer."""

    def ask(self, node: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a node. Raises `ProcessError`, and `UsageError` if it refuses."""

    def supervised(self) -> dict[str, Path]:
        """Return the supervisor of each node that has one."""

    def has_supervisor(self) -> bool:
        """Return whether nodes can be started."""

    def supervise(self, verb: str, node: str, within_s: float) -> None:
        """Start, restart or stop a node, and wait until that is done. Raises `ProcessError`."""

    def digest_of(self, node: str) -> str:
        """Return the digest of the file that a node reports; empty if it does not answer."""


@attrs.frozen
class LocalNodes:
    """Nodes of one tree that run on this host, as this user."""

    topology: str

    def _folder(self, sockets: str) -> Path:
        return folder_of(self.topology, sockets)

    def running(self) -> dict[str, RunningFile]:
        """Return the nodes that run, with their files. Raises `ProcessError` for a node that does not answer."""
        rows = [row for _, row in self._answers(_CONTROL, "file")]
        return {row["node"]: RunningFile(row["file"], row["digest"]) for row in rows}

    def _answers(self, sockets: str, verb: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the answers of all processes with a socket. Raises `ProcessError` if one runs and does not answer."""
        for path in sockets_in(self._folder(sockets), sockets):
            try:
                row = ask_control(path, {"do": verb})
            except ProcessError as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in _GONE:
                    continue
                raise ProcessError(
                    f"{path.stem} does not answer: {error.__cause__ or error.message}",
                    remedy="wait until it answers (see pgm status), or end it, and ask again",
                ) from error
            yield path, row

    def ask(self, node: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a node. Raises `ProcessError`, and `UsageError` if it refuses."""
        return ask_control(self._folder(_CONTROL) / f"{node.replace('/', '_')}.ctl", dict(request))

    def supervised(self) -> dict[str, Path]:
        """Return the supervisor of each node that a `pgm up` of this host runs, starts or stops."""
        found: dict[str, Path] = {}
        for path, row in self._answers(_SUPERVISORS, "nodes"):
            found |= dict.fromkeys([*row["nodes"], *row["busy"]], path)
        return found

    def _supervisor(self) -> Path | None:
        return next((path for path, _ in self._answers(_SUPERVISORS, "nodes")), None)

    def has_supervisor(self) -> bool:
        """Return whether a `pgm up` of this tree runs here."""
        return self._supervisor() is not None

    def supervise(self, verb: str, node: str, within_s: float) -> None:
        """Start, restart or stop a node by its `pgm up`, and wait until that is done. Raises `ProcessError`."""
        path = self.supervised().get(node)
        if path is None and verb == "stop":
            return  # it has ended by itself
        path = path or self._supervisor()
        if path is None:
            raise ProcessError(f"node {node}: no pgm up runs here any more", remedy="start one: pgm up FILE --here")
        ask_control(path, {"do": verb, "node": node})
        until_s = time.monotonic() + within_s
        while True:
            row = ask_control(path, {"do": "nodes"})
            if row["failed"].get(node):
                raise ProcessError(row["failed"][node], remedy="see the log of pgm up")
            if node not in row["busy"] and (node in row["nodes"]) == (verb != "stop"):
                return
            if time.monotonic() > until_s:
                raise ProcessError(f"node {node} did not {verb} within {within_s:g} s", remedy="see its log")
            time.sleep(_POLL_S)

    def digest_of(self, node: str) -> str:
        """Return the digest of the file that a node reports; empty if it does not answer."""
        try:
            return str(ask_status(self._folder("*.sock") / f"{node.replace('/', '_')}.sock").get("file", ""))
        except ProcessError:
            return ""


def running_file(nodes: HostNodes, topology: str) -> Path:
    """Return the file that the nodes of a tree on this host run. Raises `ProcessError` without any, or for several."""
    files = {one.path: name for name, one in nodes.running().items()}
    if not files:
        raise ProcessError(
            f"no node of {topology} runs on this machine as this user",
            remedy="start the tree with: pgm up FILE; or compare two files: pgm apply NEW.toml --from FILE --dry-run",
        )
    if len(files) > 1:
        named = ", ".join(f"{node} runs {file}" for file, node in files.items())
        raise ProcessError(f"nodes of this host run several files: {named}", remedy="start all of them from one file")
    return Path(next(iter(files)))
