"""Hosts with simulated nodes, and real files, for changes of the topology file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from pgm.errors import ProcessError, UsageError
from pgm.fleet.apply_change import ChangingHost, FileChange
from pgm.fleet.apply_host import HostChange
from pgm.fleet.fingerprint import file_digest
from pgm.fleet.local_nodes import RunningFile
from pgm.topology.changes.steps import Action
from pgm.topology.load import loads
from tests.unit.topology.changes.trees import DEMO, change, with_second_repairer

NEW = with_second_repairer(DEMO).replace("36Mbit/s", "72Mbit/s").replace("count = 4", "count = 5", 1)
OLD = loads(DEMO)
PLAN = change(DEMO, NEW)
NODES = {**{step.node: 0 for step in PLAN.steps if step.action is not Action.START}, **dict.fromkeys(PLAN.unchanged, 0)}


@attrs.define
class SimulatedNodes:
    """Nodes of one host: the digest of the file of each. The call number `fails_at` fails, and none after it."""

    file: Path
    digests: dict[str, str]
    supervised_ones: set[str]
    fails_at: int = -1
    stubborn: str = ""  # a node that reports no new file
    broken: str = ""  # a node that fails all that is asked of it
    calls: int = 0

    def _call(self, node: str, what: str) -> None:
        self.calls += 1
        if self.calls - 1 == self.fails_at or node == self.broken:
            raise ProcessError(f"{node}: {what} failed", remedy="try again")

    def running(self) -> dict[str, RunningFile]:
        return {name: RunningFile(str(self.file), digest) for name, digest in self.digests.items()}

    def ask(self, node: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self._call(node, request["do"])
        assert Path(request["old"]).exists()
        if request["do"] == "reload":
            self.digests[node] = file_digest(self.file)
        return {"restart": [], "in_place": []}

    def supervised(self) -> dict[str, Path]:
        return dict.fromkeys(self.supervised_ones, self.file)

    def has_supervisor(self) -> bool:
        return True

    def supervise(self, verb: str, node: str, within_s: float) -> None:
        self._call(node, verb)
        if verb == "stop":
            self.digests.pop(node, None)
        else:
            self.digests[node] = file_digest(self.file)

    def digest_of(self, node: str) -> str:
        return OLD.digest if node == self.stubborn else self.digests.get(node, "")


@attrs.define
class SimulatedHost:
    """Host with an agent. The request number `silent_at` is done, and its answer lost; `-1` answers all."""

    name: str
    change: HostChange
    nodes: SimulatedNodes
    refuses: str = ""
    silent_at: int = -1
    asked: int = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == self.refuses:
            self.refuses = ""
            raise UsageError(f"{self.name} refuses to {request['do']}", remedy="do something else")
        answer = self.change.answer(request)
        self.asked += 1
        if self.asked - 1 == self.silent_at:
            raise ProcessError(f"{self.name}: no answer", remedy="start the agent")
        return answer

    @property
    def state(self) -> tuple[str, dict[str, str], list[str]]:
        """Return the text of the file, the nodes with their digests, and the files of the folder."""
        names = sorted(path.name for path in self.nodes.file.parent.iterdir())
        return self.nodes.file.read_text(), dict(sorted(self.nodes.digests.items())), names


def change_of(hosts: Sequence[ChangingHost], told: list[str] | None = None) -> FileChange:
    """Return the change to `NEW`: the first host has the east of the tree, and the last one all else."""
    host_of = {
        name: hosts[0 if name.startswith("east") else -1] for name in (*NODES, *(step.node for step in PLAN.steps))
    }
    lines: list[str] = [] if told is None else told
    return FileChange(PLAN, NEW, OLD.digest, hosts, host_of, lambda code, text: lines.append(f"{code}: {text}"))


def host_with(
    folder: Path, name: str, nodes: list[str], *, lease_s: float = 60.0, file: str = "tree.toml"
) -> SimulatedHost:
    """Return a host whose nodes run the old file."""
    folder = folder / name
    folder.mkdir()
    path = (folder / file).resolve()
    path.write_text(DEMO)
    ones = SimulatedNodes(path, dict.fromkeys(nodes, OLD.digest), set(nodes))
    return SimulatedHost(name, HostChange(OLD.name, path, ones, lease_s=lease_s, settle_s=0.0), ones)


def two_hosts(folder: Path) -> list[SimulatedHost]:
    """Return a host with the east of the tree, and one with all other nodes."""
    east = [name for name in NODES if name.startswith("east")]
    return [host_with(folder, "east", east), host_with(folder, "rest", [one for one in NODES if one not in east])]
