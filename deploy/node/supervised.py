"""Control socket of `pgm up`: `pgm apply` starts, restarts and stops single nodes of a running tree by it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from deploy.node.supervisor import Supervisor
from pgm.errors import PgmError, UsageError
from pgm.net.control.status_socket import runtime_dir

StartNode = Callable[[str], Awaitable[None]]  # starts a node of the file as it is now


@attrs.frozen(eq=False)
class _Work:
    """Start or stop of a node in progress."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    over: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class SupervisedNodes:
    """Nodes of one `pgm up`, for requests of `pgm apply`. Each request is answered at once, and done in the nursery."""

    supervisor: Supervisor
    start: StartNode
    nursery: trio.Nursery
    _busy: dict[str, _Work] = attrs.field(init=False, factory=dict)
    _failed: dict[str, str] = attrs.field(init=False, factory=dict)

    def answer(self, request: Mapping[str, Any], _requester: str) -> dict[str, Any]:
        """Answer `nodes`, or begin to `start`, `restart` or `stop` a node. Raises `UsageError`."""
        verb = request.get("do")
        if verb == "nodes":
            running = [name for name, child in self.supervisor.children.items() if child.process.returncode is None]
            return {"nodes": running, "busy": sorted(self._busy), "failed": dict(self._failed)}
        node = request.get("node")
        if verb not in ("start", "restart", "stop") or not isinstance(node, str):
            raise UsageError("no request that pgm up knows", remedy='as in {"do": "restart", "node": "desk-7"}')
        before = self._busy.get(node)
        if before is not None:
            if verb == "start":
                raise UsageError(f"node {node} is starting or stopping", remedy="wait, and ask again")
            before.scope.cancel()  # a start that takes too long
        self._failed.pop(node, None)
        self._busy[node] = work = _Work()
        self.nursery.start_soon(self._do, verb, node, work, before)
        return {"node": node}

    async def _do(self, verb: str, node: str, work: _Work, before: _Work | None) -> None:
        if before is not None:
            await before.over.wait()  # a process that is being made cannot be cancelled
        with work.scope:
            await self._done(verb, node)
        work.over.set()
        if self._busy.get(node) is work:
            del self._busy[node]

    async def _done(self, verb: str, node: str) -> None:
        children = self.supervisor.children
        try:
            child = children.get(node)  # it may have ended by itself
            if child is not None:
                await self.supervisor.stop(child)
                del children[node]  # not before: a stop that is cancelled leaves a process that may still run
            if verb != "stop":
                await self.start(node)
        except (PgmError, OSError) as error:  # an OSError: the kernel makes no process, for lack of memory or files
            self._failed[node] = error.message if isinstance(error, PgmError) else f"node {node}: {error}"
            late = children.pop(node, None)
            if late is not None and late.process.returncode is None:
                late.process.kill()


def supervisor_path(topology: str) -> Path:
    """Return the path of this process's control socket. Several processes may each run a part of a tree."""
    return runtime_dir(topology) / f"up-{os.getpid()}.sup"
