"""Which nodes run on this machine, and what each has last said: found by their status sockets, asked all at once.

The table is bounded by `MOST_NODES`. Who has answered once and does not any more is kept as gone for `GONE_KEPT_S`, or until it
runs again, be it elsewhere.
"""

from __future__ import annotations

import enum
import re
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

from deploy.node.runtime_folders import OWN_LIMITS, folder_of, sockets_in, tree_folders
from pgm.errors import ProcessError, UsageError
from pgm.net.control.status_socket import ask_status
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.check import load_checked
from pgm.topology.plan import plan_all

MOST_NODES = 1024  # asked at once; those over it are counted
GONE_KEPT_S = 600.0  # longer than an alarm takes to notice
_ASKERS = 32  # threads, each with a socket: a node that hangs holds one of them for two seconds
_SHARE = 4  # of the files that this process may open, the part that they may take: the screen opens some as well
_SOCKETS = "*.sock"
_MOST_NAMES = 10  # in a message
_ROLES = ("source", "aggregator", "repairer", "receiver")  # down the tree


class NodeState(enum.Enum):
    """How a node stands."""

    UP = "up"
    STUCK = "stuck"  # its socket is there, and it does not answer
    GONE = "gone"  # it has answered once
    ABSENT = "not running"  # a topology file names it, and it has never answered


@attrs.frozen
class NodeAddress:
    """A node's place on one segment. `side` is up, down or both, as the segment lies for the node; `address` may not be known."""

    segment: str
    side: str
    address: str | None


@attrs.define
class NodeRecord:
    """One node. `since_s` is when it came to its state, on the monotonic clock; `snapshot` the last that it gave."""

    topology: str
    name: str
    role: str = ""  # empty until it has answered, or a file has told
    state: NodeState = NodeState.ABSENT
    since_s: float = 0.0
    snapshot: Snapshot | None = None
    planned_parents: tuple[str, ...] = ()  # addresses, where a file tells
    planned_places: tuple[NodeAddress, ...] = ()

    @property
    def is_up(self) -> bool:
        """Whether `snapshot` is of now."""
        return self.state is NodeState.UP

    @property
    def places(self) -> tuple[NodeAddress, ...]:
        """Where it sits, on each of its segments."""
        if self.snapshot is None:
            return self.planned_places
        rows = self.snapshot["segments"]
        return tuple(NodeAddress(one["segment"], one.get("side", "both"), one["address"]) for one in rows)

    @property
    def parents(self) -> tuple[str, ...]:
        """Addresses of those whom it asks for repairs: first whom it does ask, then whom it may."""
        asked = () if self.snapshot is None else (one["parent"] for one in self.snapshot["sessions"] if one["parent"])
        return tuple(dict.fromkeys((*asked, *self.planned_parents)))


@attrs.frozen
class TreeView:
    """All nodes at one moment, by topology and name. `left_out` were found and not asked, over `MOST_NODES`."""

    nodes: tuple[NodeRecord, ...]
    at_s: float
    took_s: float
    left_out: int = 0

    @property
    def snapshots(self) -> list[Snapshot]:
        """What `pgm status --json` says of the nodes that answer."""
        return [one.snapshot for one in self.nodes if one.is_up and one.snapshot is not None]


class NodeWatch:
    """The nodes of some topologies, or of all that run here; `look` asks them.

    `wanted` are topology files, or names of topologies that run. Raises `TopologyError` for a wrong file, `UsageError` for a
    name of nothing that runs, and `ProcessError` for folders that other users can change.
    """

    def __init__(self, wanted: Sequence[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folders: list[Path] | None = [] if wanted else None
        self._seen: dict[Path, NodeRecord] = {}  # by socket
        self._expected: set[Path] = set()
        for one in wanted:
            self._want(one)
        if not wanted:
            tree_folders()  # raises at once if they are not to be trusted

    def _want(self, wanted: str) -> None:
        assert self._folders is not None
        if Path(wanted).is_file() or wanted.endswith(".toml"):
            topology = load_checked(Path(wanted))
            folder = folder_of(topology.name, _SOCKETS)
            for name, plan in plan_all(topology).items():
                path = _socket(folder, name)
                self._expected.add(path)
                self._seen[path] = NodeRecord(
                    topology.name,
                    name,
                    plan.role.value,
                    since_s=self._clock(),
                    planned_parents=plan.parents,
                    planned_places=tuple(NodeAddress(one.name, one.side, one.address) for one in plan.segments),
                )
        else:
            folder = folder_of(wanted, _SOCKETS)
            if not folder.is_dir():
                running = ", ".join(sorted({one.name for one in tree_folders()})[:_MOST_NAMES]) or "none"
                raise UsageError(
                    f"{wanted} is neither a topology file nor a topology that runs here; of those there are: {running}",
                    remedy="give the file, or name none to see everything that runs here as this user",
                )
        self._folders.append(folder)

    def look(self) -> TreeView:
        """Ask every node; returns when all have answered, or two seconds were too short for the last of them.

        Raises `OSError` where this process has no room for more files and sockets, and `ProcessError` for folders that
        other users can change by now.
        """
        began = self._clock()
        folders = tree_folders() if self._folders is None else self._folders
        found = sorted({path for folder in folders for path in sockets_in(folder, _SOCKETS)})
        asked = found[:MOST_NODES]
        with ThreadPoolExecutor(max(1, min(_most_askers(), len(asked)))) as pool:
            answers = dict(zip(asked, pool.map(_ask, asked), strict=True))
        now = self._clock()
        for path, answer in answers.items():
            self._note(path, answer, now)
        for path, node in self._seen.items():
            if path not in answers and node.state in (NodeState.UP, NodeState.STUCK):
                node.state, node.since_s = NodeState.GONE, now
        self._forget(now)
        nodes = sorted(map(attrs.evolve, self._seen.values()), key=_order)
        return TreeView(tuple(nodes), now, now - began, left_out=len(found) - len(asked))

    def _note(self, path: Path, answer: Snapshot | NodeState, now: float) -> None:
        node = self._seen.get(path)
        if isinstance(answer, NodeState):
            if node is None and answer is NodeState.GONE:
                return  # a socket that a process left behind long ago
            if node is None:
                node = self._seen[path] = NodeRecord(path.parent.name, path.stem, since_s=now)
            state = NodeState.ABSENT if answer is NodeState.GONE and node.snapshot is None else answer
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
            # Who is stuck has a socket still, and would be found again as somebody new.
            is_over = (node.topology, node.name) in up or now - node.since_s > GONE_KEPT_S  # it runs again, elsewhere
            if at < excess or (is_over and node.state is not NodeState.STUCK):
                del self._seen[path]


def _most_askers() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ASKERS if soft == resource.RLIM_INFINITY else min(_ASKERS, soft // _SHARE)


def _order(node: NodeRecord) -> tuple[str, int, list[tuple[int, str]]]:
    """By topology and role, and by name so that 10 stands behind 9."""
    role = _ROLES.index(node.role) if node.role in _ROLES else len(_ROLES)
    parts = re.split(r"([0-9]+)", node.name)
    return node.topology, role, [(int(part) if part.isdigit() else 0, part) for part in parts]


def _socket(folder: Path, node: str) -> Path:
    return folder / f"{node.replace('/', '_')}.sock"


def _ask(path: Path) -> Snapshot | NodeState:
    try:
        snapshot = ask_status(path)
    except ProcessError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in OWN_LIMITS:
            raise error.__cause__ from None  # it says nothing of the node
        return NodeState.STUCK if isinstance(error.__cause__, TimeoutError) else NodeState.GONE
    return snapshot if isinstance(snapshot, dict) and {"topology", "node", "role"} <= set(snapshot) else NodeState.STUCK
