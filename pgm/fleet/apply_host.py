"""One host's part of a change of the topology file: check, put the file in place, act on nodes, and go back.

The same object serves an agent and a command on one host. A change has an id. Until `finish` or `go_back`, the old file
lies beside the new one, and a host that hears nothing more for `LEASE_S` goes back by itself.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import PgmError, ProcessError, UsageError
from pgm.fleet.fingerprint import file_digest
from pgm.fleet.local_nodes import HostNodes, LocalNodes
from pgm.topology.load import load_checked

LEASE_S = 60.0  # a coordinator that says nothing for so long has gone: the longest step, a start of a node, takes less
SETTLE_S = 20.0  # until a node reports the new file: an interpreter starts within seconds on a busy machine
MOST_OCTETS = 1 << 22  # of a topology file: a thousand nodes take 200 KiB
_POLL_S = 0.1


@attrs.frozen
class _Change:
    """Change in progress: its files, and what was done so far."""

    id: str
    file: Path
    old: Path
    new: Path
    old_digest: str
    new_digest: str
    done: list[tuple[str, str]] = attrs.field(factory=list)  # verb and node


class HostChange:
    """Changes of one host's file and nodes, one at a time. `file` is the file that its nodes run."""

    def __init__(
        self,
        topology: str,
        file: Path,
        nodes: HostNodes | None = None,
        *,
        lease_s: float = LEASE_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._topology = topology
        self._nodes: HostNodes = nodes or LocalNodes(topology)
        self._file = file.resolve()
        self._lease_s = lease_s
        self._settle_s = settle_s
        self._change: _Change | None = None
        self._finished = ""  # id of the last change that was kept
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None

    # Requests

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of the coordinator.

        Raises `UsageError` to refuse the change, and `ProcessError` for a step that failed.
        """
        verbs = {
            "prepare": self._prepare,
            "put": self._put,
            "act": self._act,
            "hold": self._hold,
            "verify": self._verify,
            "back": self._back,
            "finish": self._finish,
        }
        verb = request.get("do")
        if verb not in verbs:
            raise UsageError(f"{verb!r} is no step of a change", remedy=f"the steps are {', '.join(verbs)}")
        with self._lock:
            if self._change is not None and request.get("id") == self._change.id:
                self._renew()
            return verbs[verb](request)

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check the new file, the old one, and the nodes that run here. Keep the new file beside the old one."""
        if self._change is not None:
            raise UsageError(
                f"change {self._change.id} is in progress on this host",
                remedy=f"wait until it ends, or {self._lease_s:g} s after its command has gone",
            )
        id_, text, expected = (_text(request, key) for key in ("id", "text", "old_digest"))
        if not id_.isalnum() or len(id_) > 32:
            raise UsageError(f"{id_[:32]!r} is no id of a change", remedy="use letters and digits")
        if len(text) > MOST_OCTETS:
            raise UsageError(f"a file of more than {MOST_OCTETS >> 20} MiB", remedy="use patterns of nodes")
        digest = file_digest(self._file)
        if digest != expected:
            raise UsageError(
                f"{self._file} on this host is another file ({digest}) than the one to change ({expected})",
                remedy="bring all hosts to one file first: pgm status FILE --fleet names those that differ",
            )
        self._require_no_other()
        old, new = (self._file.with_name(f".{self._file.name}.{kind}-{id_}") for kind in ("old", "new"))
        _write(new, text.encode())
        try:
            topology = load_checked(new)
            if topology.name != self._topology:
                raise UsageError(
                    f"the new file is of the tree {topology.name!r}, and {self._topology!r} runs here",
                    remedy="a tree keeps its name",
                )
            running = self._running(expected)
            managed = self._nodes.supervised()
            leaving = {*_names(request, "restart"), *_names(request, "stop")}
            for node in [name for name in running if name not in leaving]:
                row = self._nodes.ask(node, {"do": "check", "old": str(self._file), "new": str(new)})
                if row["restart"]:
                    raise UsageError(
                        f"node {node} says that a restart is needed for {', '.join(row['restart'])}",
                        remedy="leave that value as it is, or restart the node by its own program",
                    )
            for verb in ("restart", "stop"):
                for node in _names(request, verb):
                    if node in running and node not in managed:
                        raise UsageError(
                            f"node {node} must {verb}, and no pgm up of this host runs it",
                            remedy="run the nodes of this host by pgm up FILE --here; or stop the node by its own "
                            "means (systemctl, or Ctrl-C), and apply again",
                        )
            starting = [node for node in _names(request, "start") if node not in running]
            if starting and not self._nodes.has_supervisor():
                raise UsageError(
                    f"node {starting[0]} must start here, and no pgm up of this tree runs on this host",
                    remedy="start one: pgm up FILE --here; or leave the node out of the change",
                )
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        self._change = _Change(id_, self._file, old, new, digest, topology.digest)
        self._renew()
        return {"running": sorted(running), "managed": sorted(managed), "digest": topology.digest}

    def _put(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Put the new file in place of the old one, in one step."""
        change = self._of(request)
        _write(change.old, change.file.read_bytes())
        os.chmod(change.new, change.file.stat().st_mode & 0o777)
        os.replace(change.new, change.file)
        _sync(change.file.parent)
        return {"digest": change.new_digest}

    def _act(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Change, start, restart or stop nodes of this host. Each must succeed."""
        change = self._of(request)
        verb, nodes = _text(request, "verb"), _names(request, "nodes")
        running = self._nodes.running()
        for node in nodes:
            change.done.append((verb, node))
            if verb != "change":
                self._nodes.supervise(verb, node, self._settle_s)
            elif node in running:
                self._nodes.ask(node, {"do": "reload", "old": str(change.old)})
        return {"done": nodes}

    def _hold(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for further steps: the coordinator works on another host."""
        return {"id": self._of(request).id}

    def _verify(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until the nodes of this host report the new file. Raises `ProcessError` for one that does not."""
        change = self._of(request)
        self._await(_names(request, "nodes"), change.new_digest)
        return {"digest": change.new_digest}

    def _back(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return to the old file and to the old state of all nodes. Without a change there is nothing to do."""
        change = self._change
        if change is None or change.id != request.get("id"):
            return {"back": False}
        failed = self._go_back(change)
        if failed:
            raise ProcessError("; ".join(failed), remedy="see the logs of these nodes, and restart them")
        return {"back": True}

    def _finish(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the new file, and forget the old one."""
        if self._finished == request.get("id"):
            return {"id": self._finished}  # the answer was lost
        change = self._of(request)
        self._end(change)
        self._finished = change.id
        return {"id": change.id}

    def _require_no_other(self) -> None:
        """Raise `UsageError` if another process changes the file, or was killed while it did."""
        left = [path for kind in ("new", "old") for path in self._file.parent.glob(f".{self._file.name}.{kind}-*")]
        if left:
            raise UsageError(
                f"another change of {self._file} is in progress, or its command was killed: it left {left[0].name}",
                remedy="wait for its end; if no pgm apply runs, compare both files, keep the right one, and remove the other",
            )

    # Going back

    def _go_back(self, change: _Change) -> list[str]:
        """Undo what was done, the last first. Return what failed; the rest is undone all the same."""
        failed: list[str] = []
        if change.old.exists():
            _write(change.new, change.file.read_bytes())
            os.replace(change.old, change.file)
            _sync(change.file.parent)
            running = self._nodes.running()
            for verb, node in reversed(change.done):
                with _noting(failed, node):
                    if verb == "change":
                        if node in running:
                            self._nodes.ask(node, {"do": "reload", "old": str(change.new), "back": True})
                    else:
                        self._nodes.supervise(_OPPOSITE[verb], node, self._settle_s)
        self._end(change)
        return failed

    def _end(self, change: _Change) -> None:
        for path in (change.old, change.new):
            path.unlink(missing_ok=True)
        self._change = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _renew(self) -> None:
        """Give the coordinator of the change another lease."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._change is not None:
            self._timer = threading.Timer(self._lease_s, self._expire, (self._change,))
            self._timer.daemon = True
            self._timer.start()

    def _expire(self, change: _Change) -> None:
        with self._lock:
            if self._change is change:
                self._go_back(change)

    # Nodes

    def _of(self, request: Mapping[str, Any]) -> _Change:
        if self._change is None or self._change.id != request.get("id"):
            raise ProcessError(
                f"change {request.get('id')!r} is not in progress on this host", remedy="apply the file again"
            )
        return self._change

    def _running(self, expected: str) -> list[str]:
        """Return the nodes that run here. Raises `UsageError` if one runs another file."""
        running = self._nodes.running()
        for node, file in running.items():
            if file.path != str(self._file):
                raise UsageError(
                    f"node {node} runs from {file.path}, and this host has {self._file}",
                    remedy="start all nodes of a host from one file",
                )
            if file.digest != expected:
                raise UsageError(
                    f"node {node} runs file {file.digest}, and {self._file} is {expected} now",
                    remedy="restart the node, or let it read the file again by SIGHUP, and see its log",
                )
        return list(running)

    def _await(self, nodes: Sequence[str], digest: str) -> None:
        """Wait until nodes report a file. Raises `ProcessError`."""
        until_s = time.monotonic() + self._settle_s
        for node in nodes:
            while (told := self._nodes.digest_of(node)) != digest:
                if time.monotonic() > until_s:
                    state = f"runs file {told}" if told else "does not answer"
                    raise ProcessError(
                        f"node {node} {state} {self._settle_s:g} s after the change", remedy="see the log of the node"
                    )
                time.sleep(_POLL_S)


_OPPOSITE: Mapping[str, str] = {"start": "stop", "stop": "start", "restart": "restart"}


@contextlib.contextmanager
def _noting(failed: list[str], node: str) -> Iterator[None]:
    try:
        yield
    except (PgmError, OSError) as error:
        failed.append(f"{node}: {error.message if isinstance(error, PgmError) else error}")


def _write(path: Path, octets: bytes) -> None:
    """Write a file that only this user may read, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(octets)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Wait until a renamed file has its name on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise UsageError(f"`{key}` is missing or no text", remedy="apply by pgm apply, of the version of this host")
    return value


def _names(request: Mapping[str, Any], key: str) -> list[str]:
    value = request.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise UsageError(f"`{key}` is no list of names", remedy="apply by pgm apply, of the version of this host")
    return value
