"""Tables of `pgm status --fleet`: hosts, nodes of all hosts, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from deploy.terminal.output import remedy, warn
from deploy.terminal.tables import TableColumn, console, table
from pgm.errors import UsageError
from pgm.fleet.nodes import HostRecord, NodeRecord, NodeState, TreeView
from pgm.topology.problems import joined, suggestion

_HOSTS = (
    TableColumn("host"),
    TableColumn("agent", 3),
    TableColumn("answers"),
    TableColumn("nodes up"),
    TableColumn("file", 1),
    TableColumn("version", 4),
)


def only(view: TreeView, nodes: Sequence[str]) -> TreeView:
    """Return a view of the named nodes. Raises `UsageError` for a name that the view lacks."""
    if not nodes:
        return view
    known = {node.name for node in view.nodes}
    for name in nodes:
        if name not in known:
            raise UsageError(f"there is no node {name!r} in this fleet", remedy=suggestion(name, known))
    return attrs.evolve(view, nodes=tuple(node for node in view.nodes if node.name in nodes))


def print_fleet(view: TreeView, print_nodes: Callable[[list[dict[str, object]]], None], *, clear: bool) -> None:
    """Print the hosts, the nodes that run by `print_nodes`, and a line for each thing that is wrong."""
    terminal = console()
    if clear:
        terminal.clear()
    terminal.print(table("hosts", _HOSTS, [_cells(host, view) for host in view.hosts], terminal.width))
    terminal.print()
    up = (node for node in view.nodes if node.is_up and node.snapshot is not None)
    print_nodes([{**(node.snapshot or {}), "node": f"{node.name} @{node.host}"} for node in up])
    for message, advice in problems_of(view):
        warn(message)
        if advice:
            remedy(advice)


def _cells(host: HostRecord, view: TreeView) -> list[str]:
    nodes = [node for node in view.nodes if node.host == host.name]
    answers = f"malformed: {host.problem}" if host.is_malformed else host.problem or f"in {host.took_s * 1000:.0f} ms"
    return [
        host.name,
        host.address,
        answers,
        f"{sum(node.is_up for node in nodes)} of {len(nodes)}",
        _file(host),
        host.version,
    ]


def _file(host: HostRecord) -> str:
    if host.problem:
        return ""
    return f"another ({host.file})" if host.has_other_file else "the same" if host.file else "unknown"


def told_of(host: HostRecord) -> str:
    """Return what is wrong with the answer of a host, which has a problem."""
    return f"{'sends a malformed answer' if host.is_malformed else 'does not answer'}: {host.problem}"


def problems_of(view: TreeView) -> list[tuple[str, str]]:
    """Return each thing that is wrong in a fleet as a message and a remedy."""
    found = [(f"host {host.name} {told_of(host)}", host.remedy) for host in view.hosts if host.problem]
    for host in view.hosts:
        if host.has_other_file:
            found.append((f"host {host.name} has another topology file, {_difference(host, view)}", _COPY))
    for state, text, advice in _STATES:
        names = [_name(node) for node in view.nodes if node.state is state]
        if names:
            found.append((f"{text}: {joined(names)}", advice))
    return found


_COPY = "copy the file to that host, and restart the nodes that differ there"
_STATES = (
    (NodeState.ABSENT, "not running", "start them on their hosts: pgm run FILE --node NAME"),
    (NodeState.STUCK, "running, but not answering", "check for a stopped process or an overloaded host"),
    (NodeState.GONE, "gone", "see the log of the node on its host"),
    (NodeState.UNREACHABLE, "unknown, because the agents of their hosts do not answer", ""),
    (
        NodeState.ELSEWHERE,
        "on no host of the file, and no agent tells of them",
        "list their agents: [fleet] agents = [...]",
    ),
)


def _difference(host: HostRecord, view: TreeView) -> str:
    if host.differing:
        return f"in which these nodes differ: {joined(host.differing)}"
    versions = {other.version for other in view.hosts if other.version}
    return "which another version of pgm reads" if len(versions) > 1 else "in which no node differs"


def _name(node: NodeRecord) -> str:
    return f"{node.name} ({node.host})" if node.host else node.name
