"""Requests of `pgm apply` to `pgm up`: starts that fail, and starts that take too long."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from deploy.node.supervised import SupervisedNodes
from deploy.node.supervisor import ChildProcess, Supervisor
from pgm.errors import UsageError


@attrs.define
class SimulatedProcess:
    returncode: int | None = None


@attrs.define
class SimulatedSupervisor:
    """Supervisor whose processes start once `may_start` is set, and end once `may_end` is set."""

    children: dict[str, ChildProcess] = attrs.field(factory=dict)
    starts: list[str] = attrs.field(factory=list)
    stops: list[str] = attrs.field(factory=list)
    may_start: trio.Event = attrs.field(factory=trio.Event)
    may_end: trio.Event = attrs.field(factory=trio.Event)
    error: OSError | None = None

    async def start(self, node: str) -> None:
        self.starts.append(node)
        if self.error is not None:
            raise self.error
        assert node not in self.children, "two processes of one node"
        with trio.CancelScope(shield=True):  # a thread makes the process
            await trio.lowlevel.checkpoint()
        process: Any = SimulatedProcess()
        self.children[node] = ChildProcess(node, process)
        await self.may_start.wait()

    async def stop(self, child: ChildProcess) -> None:
        self.stops.append(child.node)
        await self.may_end.wait()
        child.process.returncode = 0  # type: ignore[misc]


def ask(nodes: SupervisedNodes, verb: str) -> dict[str, Any]:
    return nodes.answer({"do": verb, "node": "desk"}, "a test")


async def test_process_that_cannot_be_made_fails_its_start_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `OSError` of the kernel, such as for lack of memory, ended `pgm up` with all its nodes."""

    def make(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("subprocess.Popen", make)
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(tmp_path / "tree.toml", nursery, None, print)

        async def start(node: str) -> None:
            await supervisor.start(node)

        nodes = SupervisedNodes(supervisor, start, nursery)
        ask(nodes, "start")
        while (row := ask(nodes, "nodes"))["busy"]:
            await trio.lowlevel.checkpoint()
        supervisor.kill_all()
    assert row == {
        "nodes": [],
        "busy": [],
        "failed": {"desk": "node desk: [Errno 11] Resource temporarily unavailable"},
    }


async def test_restart_and_stop_cancel_a_start_that_takes_too_long() -> None:
    """A change that is undone restarts the node again. The new process waits for the end of the old one."""
    supervisor: Any = SimulatedSupervisor()
    async with trio.open_nursery() as nursery:
        nodes = SupervisedNodes(supervisor, supervisor.start, nursery)
        ask(nodes, "restart")
        while not supervisor.starts:
            await trio.lowlevel.checkpoint()
        with pytest.raises(UsageError, match="is starting or stopping"):
            ask(nodes, "start")
        for number in (1, 2):  # the second one comes while the process ends
            ask(nodes, "restart")
            while len(supervisor.stops) < number:
                await trio.lowlevel.checkpoint()
            assert ask(nodes, "nodes")["busy"] == ask(nodes, "nodes")["nodes"] == ["desk"]
        supervisor.may_end.set()
        supervisor.may_start.set()
        while ask(nodes, "nodes")["busy"]:
            await trio.lowlevel.checkpoint()
        assert (len(supervisor.starts), ask(nodes, "nodes")["nodes"]) == (2, ["desk"])
        ask(nodes, "stop")
        while ask(nodes, "nodes")["busy"]:
            await trio.lowlevel.checkpoint()
        assert not supervisor.children
