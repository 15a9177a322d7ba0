"""Agents of all hosts of a tree, which take part in a change of the topology file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import trio

from pgm.errors import ProcessError, UsageError
from pgm.fleet.agent_client import AgentClient
from pgm.fleet.apply_change import ChangingHost
from pgm.fleet.hosts import FleetHost
from pgm.fleet.paths import APPLY_PATH
from pgm.fleet.watch import ask_hosts, names_of
from pgm.topology.node_plan import Address

STATE_S = 10.0  # for the state of a host: an agent waits 2 s for a node that does not answer
STEP_S = 45.0  # for an answer: a restart takes seconds, and an agent waits 20 s for a node


@attrs.frozen
class AgentHost:
    """Host with an agent."""

    name: str
    address: Address
    client: AgentClient

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the agent. Raises `UsageError` if it refuses, and `ProcessError` without an answer."""
        try:
            return trio.run(self.client.post, self.address, APPLY_PATH, request)
        except UsageError as error:
            raise UsageError(f"host {self.name}: {error.message}", remedy=error.remedy) from None
        except ProcessError as error:
            raise ProcessError(f"host {self.name}: {error.message}", remedy=error.remedy) from None


def changing_hosts(
    client: AgentClient, hosts: Iterable[FleetHost], nodes: Iterable[str]
) -> tuple[list[AgentHost], dict[str, ChangingHost]]:
    """Return all hosts, and the host of each of the nodes.

    Raises `ProcessError` for a host without an answer, and `UsageError` for a node without a host.
    """
    found: list[AgentHost] = []
    host_of: dict[str, ChangingHost] = {}
    answers = trio.run(ask_hosts, attrs.evolve(client, timeout_s=STATE_S), hosts, {})
    for answer, name in zip(answers, names_of(answers), strict=True):
        if answer.state is None:
            problem = answer.problem or ProcessError("no answer")
            raise ProcessError(
                f"host {answer.name} does not take part: {problem.message}",
                remedy=f"{problem.remedy}; all hosts of the tree change together",
            )
        host = AgentHost(name, answer.address, attrs.evolve(client, timeout_s=STEP_S))
        found.append(host)
        rows = answer.state.get("nodes")
        told = [row.get("node") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        host_of |= dict.fromkeys([*answer.host.nodes, *(node for node in told if isinstance(node, str))], host)
    for node in nodes:
        if node not in host_of:
            raise UsageError(
                f"node {node} has no address in the file, and no agent tells of it",
                remedy="give it an address, or start and stop it by its own means",
            )
    return found, host_of
