"""One host's part of a change of the topology file: check, put the file in place, act on nodes, and go back.

The same object serves an agent and a command on one host. A change has an id. Until `finish` or `go_back`, the old file
lies beside the new one, and a host that hears nothing more for `LEASE_S` goes back by itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import PgmError, ProcessError, UsageError
from pgm.fleet.change_files import ChangeFiles
from pgm.fleet.fingerprint import file_digest
from pgm.fleet.local_nodes import HostNodes, LocalNodes
from pgm.net.control.reload import MOST_FILE_OCTETS
from pgm.telemetry.logger import log_line
from pgm.topology.load import load_checked

LEASE_S = 60.0  # a coordinator that says nothing for so long has gone: the longest step, a start of a node, takes less
SETTLE_S = 20.0  # until a node reports the new file: an interpreter starts within seconds on a busy machine
_POLL_S = 0.1
_MOST_RETURNS = 5  # of nodes that fail to return: then a person has to act, and may apply another file


@attrs.define
class _Change:
    """Change in progress: its files, and what must be undone."""

    files: ChangeFiles
    done: list[tuple[str, str]] = attrs.field(factory=list)  # verb and node
    forgotten: list[str] = attrs.field(factory=list)  # nodes whose former state is not known
    failures: int = 0  # of returns by itself

    @property
    def id(self) -> str:
        """Return the id of the change."""
        return self.files.id


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
        self._returned = ""  # id of the last change that was undone
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
            try:
                return verbs[verb](request)
            except OSError as error:
                folder = self._file.parent
                raise ProcessError(
                    f"{verb}: {error}",
                    remedy=f"make room in {folder}, or let this process write there: a unit needs ReadWritePaths={folder}",
                ) from error
            finally:  # a lease begins with the answer: a step may take longer than a lease
                if self._change is not None and request.get("id") == self._change.id:
                    self._renew()

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check the new file, the old one, and the nodes that run here. Keep the new file beside the old one."""
        if self._change is not None:
            raise UsageError(
                f"change {self._change.id} is in progress on this host",
                remedy=f"wait until it ends, or {self._lease_s:g} s after its command has gone",
            )
        id_, text, expected = (_text(request, key) for key in ("id", "text", "old_digest"))
        _require_id(id_)
        octets = text.encode()
        if len(octets) > MOST_FILE_OCTETS:
            raise UsageError(f"a file of more than {MOST_FILE_OCTETS >> 20} MiB", remedy="use patterns of nodes")
        digest = file_digest(self._file)
        if digest != expected:
            raise UsageError(
                f"{self._file} on this host is another file ({digest}) than the one to change ({expected})",
                remedy="bring all hosts to one file first: pgm status FILE --fleet names those that differ",
            )
        files = ChangeFiles.written(self._file, id_, octets)
        new = files.path("new")
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
                row = self._nodes.ask(node, {"do": "check", "old": str(files.path("old")), "new": str(new)})
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
            files.end()
            raise
        self._change = _Change(files)
        return {"running": sorted(running)}

    def _put(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Put the new file in place of the old one, in one step."""
        self._of(request).files.put()
        return {}

    def _act(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Change, start, restart or stop nodes of this host. Each must succeed."""
        change = self._of(request)
        verb, nodes = _text(request, "verb"), _names(request, "nodes")
        if verb != "change" and verb not in _OPPOSITE:
            raise UsageError(
                f"{verb[:32]!r} is nothing that a node can do", remedy=f"use change, {', '.join(_OPPOSITE)}"
            )
        running = self._nodes.running()
        for node in nodes:
            change.done.append((verb, node))
            if verb != "change":
                self._nodes.supervise(verb, node, self._settle_s)
            elif node in running:
                self._nodes.ask(node, {"do": "reload", "old": str(change.files.path("old"))})
        return {}

    def _hold(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for further steps: the coordinator works on another host."""
        self._of(request)
        return {}

    def _verify(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until the nodes of this host report the new file. Raises `ProcessError` for one that does not."""
        change = self._of(request)
        self._await(_names(request, "nodes"), change.files.new_digest)
        return {}

    def _back(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return to the old file and to the old state of all nodes. `back` is false for an unknown change."""
        id_ = _text(request, "id")
        _require_id(id_)
        if id_ == self._returned:
            return {"back": True}  # by itself, or the answer was lost
        change = self._change
        if change is None or change.id != id_:
            files = ChangeFiles.found(self._file, id_)
            if files is None:
                return {"back": False}
            self._change = change = _Change(files)
            if not files.path("forth").exists():
                change.forgotten += [name for verb in _OPPOSITE for name in _names(request, verb)]
                change.done += [("change", name) for name in self._nodes.running() if name not in change.forgotten]
        failed = self._go_back(change)
        if change.forgotten:
            named = ", ".join(change.forgotten)
            failed.append(f"this host has forgotten what was done to {named}: its agent was started again")
        if failed:
            raise ProcessError("; ".join(failed), remedy="see the logs of these nodes, and restart them")
        by_hand = change.files.by_hand
        return {"back": True} if by_hand is None else {"back": True, "by_hand": str(by_hand)}

    def _finish(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the new file, and forget the old one."""
        if self._finished == request.get("id"):
            return {}  # the answer was lost
        change = self._of(request)
        self._finished = change.id
        self._end(change)
        return {}

    # Going back

    def _go_back(self, change: _Change) -> list[str]:
        """Undo what was done, the last first. Return what failed; the rest is undone all the same.

        The change ends unless something failed: what failed can be tried again. Raises `OSError` if the file stays.
        """
        failed: list[str] = []
        change.files.go_back()
        if change.done:
            new, left = str(change.files.path("new")), []
            try:
                running = set(self._nodes.running())
            except ProcessError:  # one node does not answer; each of the others is asked all the same
                running = {node for _, node in change.done}
            while change.done:
                verb, node = change.done[-1]
                before = len(failed)
                with _noting(failed, node):
                    if verb == "change":
                        if node in running:
                            self._nodes.ask(node, {"do": "reload", "old": new, "back": True})
                    else:
                        self._nodes.supervise(_OPPOSITE[verb], node, self._settle_s)
                change.done.pop()
                if len(failed) > before:
                    left.append((verb, node))
            change.done = left[::-1]
        if not failed:
            self._end(change)
            self._returned = "" if change.forgotten else change.id
        return failed

    def _end(self, change: _Change) -> None:
        self._change = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        change.files.end()

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
            if self._change is not change or self._timer is not threading.current_thread():
                return  # a request came meanwhile
            try:
                failed = self._go_back(change)
            except (PgmError, OSError) as error:
                failed = [str(error)]
            finally:
                if self._change is change:
                    self._renew()
            by_hand = change.files.by_hand
            if not failed:
                kept = "" if by_hand is None else f"; an edit by hand is kept in {by_hand}"
                log_line("apply-back", f"no more word of change {change.id}: {self._file} is the old one again{kept}")
                return
            change.failures += 1
            log_line("apply-back-failed", f"change {change.id} is not undone yet: {'; '.join(failed)}")
            if change.failures >= _MOST_RETURNS and not change.files.is_put:
                log_line("apply-back-failed", f"change {change.id}: the old file is back, and these nodes are left")
                self._end(change)

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


def _require_id(id_: str) -> None:
    if not (id_.isascii() and id_.isalnum()) or len(id_) > 32:
        raise UsageError(f"{id_[:32]!r} is no id of a change", remedy="use letters and digits")


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
