"""Nodes of one view, and those that run on this machine, with their last snapshots.

Nodes are found by their status sockets and asked in parallel. The table is bounded by `MOST_NODES`. A node that stops
answering is kept as gone for `GONE_KEPT_S`, or until it runs again anywhere on this machine.
"""

from __future__ import annotations

import enum
import re
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import attrs

from pgm.errors import ProcessError, UsageError
from pgm.fleet.runtime_folders import OWN_LIMITS, folder_of, sockets_in, tree_folders
from pgm.net.control.status_socket import ask_status
from pgm.net.sockets.interfaces import is_own_address
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all

MOST_NODES = 1024  # asked at once; further nodes are only counted
GONE_KEPT_S = 600.0  # longer than an alarm takes to notice
_ASKERS = 32  # threads with one socket each; a node that hangs holds a thread for two seconds
_SHARE = 4  # 1/4 of this process's files at most for status sockets, because the screen opens files as well
_SOCKETS = "*.sock"
_MOST_NAMES = 10  # in a message
_ROLES = ("source", "aggregator", "repairer", "receiver")  # down the tree


class NodeState(enum.Enum):
    """State of a node."""

    UP = "up"
    STUCK = "stuck"  # the socket exists, and the node does not answer
    GONE = "gone"  # the node has answered before
    ABSENT = "not running"  # a topology file places the node on this host, and it has never answered
    ELSEWHERE = "elsewhere"  # a topology file places the node on no address of this host, and it has never answered
    UNREACHABLE = "unreachable"  # of a fleet: the agent of the node's host does not answer


@attrs.frozen
class NodeAddress:
    """Place of a node on one segment. `side` is "up", "down" or "both"; `address` is None if unknown."""

    segment: str
    side: str
    address: str | None


@attrs.define
class NodeRecord:
    """Node with its state, its last snapshot, and the monotonic time `since_s` of the last change of state."""

    topology: str
    name: str
    role: str = ""  # empty until a snapshot or a topology file gives the role
    state: NodeState = NodeState.ABSENT
    since_s: float = 0.0
    snapshot: Snapshot | None = None
    planned_parents: tuple[str, ...] = ()  # addresses, from a topology file
    planned_places: tuple[NodeAddress, ...] = ()
    unseen: NodeState = NodeState.ABSENT  # the state until the first answer
    host: str = ""  # of a fleet: name of the host

    @property
    def is_up(self) -> bool:
        """Return whether `snapshot` is current."""
        return self.state is NodeState.UP

    @property
    def places(self) -> tuple[NodeAddress, ...]:
        """Return the node's place on each of its segments."""
        if self.snapshot is None:
            return self.planned_places
        rows = self.snapshot["segments"]
        return tuple(NodeAddress(row["segment"], row.get("side", "both"), row["address"]) for row in rows)

    @property
    def parents(self) -> tuple[str, ...]:
        """Return the addresses of the node's parents: those that the node asks now, then planned ones."""
        asked = (
            ()
            if self.snapshot is None
            else (session["parent"] for session in self.snapshot["sessions"] if session["parent"])
        )
        return tuple(dict.fromkeys((*asked, *self.planned_parents)))


@attrs.frozen
class HostRecord:
    """Host of a fleet. `problem` is the reason why its agent does not answer, or the flaw of its answer if `is_malformed`; empty if all is well.

    `ahead_s` is the clock of the host less that of this one. `differing` has the entries of the topology file whose plans are others on that host. `file` is the digest of its file.
    """

    name: str
    address: str
    problem: str = ""
    remedy: str = ""
    version: str = ""
    file: str = ""
    has_other_file: bool = False
    differing: tuple[str, ...] = ()
    took_s: float = 0.0
    ahead_s: float = 0.0  # of the host's clock, less half of `took_s`
    is_malformed: bool = False  # the answer has not the form of an agent's answer

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **attrs.asdict(self),
            "differing": list(self.differing),
            "took_s": round(self.took_s, 4),
            "ahead_s": round(self.ahead_s, 3),
        }


@attrs.frozen
class TreeView:
    """All nodes at one moment, by topology and name. `left_out` counts nodes beyond `MOST_NODES`, never asked."""

    nodes: tuple[NodeRecord, ...]
    at_s: float
    took_s: float
    left_out: int = 0
    hosts: tuple[HostRecord, ...] = ()  # of a fleet

    @property
    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of nodes that answer, as `pgm status --json` prints them."""
        return [node.snapshot for node in self.nodes if node.is_up and node.snapshot is not None]

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON: snapshots, names of nodes by state, and of a fleet the hosts."""
        others = {
            state.name.lower(): [[node.topology, node.name] for node in self.nodes if node.state is state]
            for state in NodeState
            if state is not NodeState.UP and (self.hosts or state is not NodeState.UNREACHABLE)
        }
        if not self.hosts:
            return {"nodes": self.snapshots, **others, "left_out": self.left_out}
        up = [node for node in self.nodes if node.is_up and node.snapshot is not None]
        nodes = [{**(node.snapshot or {}), "host": node.host} for node in up]
        return {"nodes": nodes, **others, "left_out": self.left_out, "hosts": [host.row() for host in self.hosts]}


class Watch(Protocol):
    """Nodes of this host, or of a fleet."""

    def look(self) -> TreeView:
        """Ask every node and return the table."""

    def expect(self, file: str) -> None:
        """Expect the nodes of a topology file as it is now."""


class NodeWatch:
    """Table of the nodes of some topologies, or of all topologies that run here.

    `look` asks the nodes. `wanted` has topology files, or names of running topologies. Raises `TopologyError` for an
    invalid file, `UsageError` for a name that does not run, and `ProcessError` for folders that other users can change.
    """

    def __init__(self, wanted: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folders: list[Path] | None = [] if wanted else None
        self._seen: dict[Path, NodeRecord] = {}  # by socket
        self._expected: set[Path] = set()
        self._askers = ThreadPoolExecutor(max(1, _most_askers()))  # kept: new threads cost more than the questions
        for topology in wanted:
            self._add_wanted(topology)
        if not wanted:
            tree_folders()  # raises at once if other users can change the folders

    def _add_wanted(self, wanted: str) -> None:
        assert self._folders is not None
        if Path(wanted).is_file() or wanted.endswith(".toml"):
            topology = load_checked(Path(wanted))
            folder = folder_of(topology.name, _SOCKETS)
            for name, plan in plan_all(topology).items():
                path = _socket(folder, name)
                self._expected.add(path)
                unseen = NodeState.ABSENT if is_here(plan) else NodeState.ELSEWHERE
                self._seen[path] = planned(plan, unseen, self._clock())
        else:
            folder = folder_of(wanted, _SOCKETS)
            if not folder.is_dir():
                running = ", ".join(sorted({one.name for one in tree_folders()})[:_MOST_NAMES]) or "none"
                raise UsageError(
                    f"{wanted} is neither a topology file nor a topology that runs here; running topologies: {running}",
                    remedy="give a file, or give no name to see all nodes of this user",
                )
        self._folders.append(folder)

    def expect(self, file: str) -> None:
        """Expect the nodes of a topology file as it is now. Nodes that it no longer has are forgotten once they end."""
        for path in self._expected:
            if not self._seen[path].is_up:
                del self._seen[path]
        up, self._expected = dict(self._seen), set()
        self._add_wanted(file)
        self._seen |= up
        if self._folders is not None:
            self._folders = list(dict.fromkeys(self._folders))

    def look(self) -> TreeView:
        """Ask every node and return the table.

        A node that does not answer costs two seconds. Raises `OSError` if this process has no room for more files and
        sockets, and `ProcessError` for folders that other users can change.
        """
        began = self._clock()
        folders = tree_folders() if self._folders is None else self._folders
        paths = sorted({path for folder in folders for path in sockets_in(folder, _SOCKETS)})
        asked = paths[:MOST_NODES]
        answers = dict(zip(asked, self._askers.map(_ask, asked), strict=True))
        now = self._clock()
        for path, answer in answers.items():
            self._note(path, answer, now)
        for path, node in self._seen.items():
            if path not in answers and node.state in (NodeState.UP, NodeState.STUCK):
                node.state, node.since_s = NodeState.GONE, now
        self._forget(now)
        nodes = sorted(map(attrs.evolve, self._seen.values()), key=order_of)
        return TreeView(tuple(nodes), now, now - began, left_out=len(paths) - len(asked))

    def _note(self, path: Path, answer: Snapshot | NodeState, now: float) -> None:
        node = self._seen.get(path)
        if isinstance(answer, NodeState):
            if node is None and answer is NodeState.GONE:
                return  # a process left this socket behind long ago
            if node is None:
                node = self._seen[path] = NodeRecord(path.parent.name, path.stem, since_s=now)
            state = node.unseen if answer is NodeState.GONE and node.snapshot is None else answer
        else:
            if node is None:
                node = self._seen[path] = NodeRecord(answer["topology"], answer["node"], since_s=now)
            node.topology, node.name, node.role = answer["topology"], answer["node"], answer["role"]
            node.snapshot = answer
            state = NodeState.UP
        if state is not node.state:
            node.state, node.since_s = state, now

    def _forget(self, now: float) -> None:
        away = [path for path, node in self._seen.items() if not node.is_up and path not in self._expected]
        away.sort(key=lambda path: self._seen[path].since_s)
        up = {(node.topology, node.name) for node in self._seen.values() if node.is_up}
        excess = len(self._seen) - len(self._expected) - MOST_NODES
        for at, path in enumerate(away):
            node = self._seen[path]
            # A stuck node still has a socket, and would be found again as a new node.
            is_over = (node.topology, node.name) in up or now - node.since_s > GONE_KEPT_S  # it runs again elsewhere
            if at < excess or (is_over and node.state is not NodeState.STUCK):
                del self._seen[path]


def planned(plan: NodePlan, state: NodeState, since_s: float) -> NodeRecord:
    """Return the record of a node that has never answered."""
    return NodeRecord(
        plan.topology,
        plan.name,
        plan.role.value,
        state,
        since_s=since_s,
        planned_parents=plan.parents,
        planned_places=tuple(NodeAddress(one.name, one.side, one.address) for one in plan.segments),
        unseen=state,
    )


def _most_askers() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ASKERS if soft == resource.RLIM_INFINITY else min(_ASKERS, soft // _SHARE)


def order_of(node: NodeRecord) -> tuple[str, int, list[tuple[int, str]]]:
    """Return a sort key by topology, role and name, with 9 before 10 in names."""
    role = _ROLES.index(node.role) if node.role in _ROLES else len(_ROLES)
    parts = re.split(r"([0-9]+)", node.name)
    return node.topology, role, [(int(part) if part.isdigit() else 0, part) for part in parts]


def is_here(plan: NodePlan) -> bool:
    """Return whether an address of a node is one of this host's. A node without an address may run on any host."""
    return any(one.address is not None and is_own_address(one.address) for one in plan.segments)


def _socket(folder: Path, node: str) -> Path:
    return folder / f"{node.replace('/', '_')}.sock"


def _ask(path: Path) -> Snapshot | NodeState:
    try:
        snapshot = ask_status(path)
    except ProcessError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in OWN_LIMITS:
            raise error.__cause__ from None  # this process's limit says nothing about the node
        return NodeState.STUCK if isinstance(error.__cause__, TimeoutError) else NodeState.GONE
    return snapshot if isinstance(snapshot, dict) and {"topology", "node", "role"} <= set(snapshot) else NodeState.STUCK
