"""Nodes of a fleet: what the agents of all hosts tell, as one view."""

from __future__ import annotations

import ssl
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import urlencode

import attrs
import trio

from pgm.errors import ProcessError, UsageError, WireError
from pgm.fleet.agent_client import AgentClient
from pgm.fleet.fingerprint import Fingerprint, fingerprint_of
from pgm.fleet.hosts import FleetHost, hosts_of
from pgm.fleet.nodes import MOST_NODES, HostRecord, NodeRecord, NodeState, TreeView, order_of, planned
from pgm.fleet.paths import CONTROL_PATH, DOCTOR_PATH, FLIGHT_PATH, STATE_PATH
from pgm.fleet.snapshot_form import flaw_of_control_untrusted, flaw_of_untrusted
from pgm.flight.contents import RingContents, from_json_untrusted
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_all

_MOST_AT_ONCE = 64  # hosts asked at a time: handshakes of more hold each other up until they time out
_DOCTOR_S = 30.0  # for all checks of a host
_FLIGHT_S = 10.0  # for reading the recorders of a host, 16 MiB each
_MOST_DIFFERING = 64  # entries of a file
_SILENT_S = 10.0  # between questions to silent hosts, because each takes the full time of a request
_STATES = {state.name.lower(): state for state in NodeState}
_MOST_LEFT_OUT = 1 << 32  # nodes: more than any host has
_MOST_S = 1e11  # of a time since 1970 in seconds: the year 5138
_SAME_VERSION = "run the same version of pgm on that host, and look at the log of its agent"


@attrs.frozen
class HostAnswer:
    """Answer of a host's agent: its state and the address that answered, or the reason why there is none."""

    host: FleetHost
    address: str
    took_s: float
    state: Mapping[str, Any] | None = None
    problem: ProcessError | None = None
    at_s: float = 0.0  # clock of this host at the answer

    @property
    def name(self) -> str:
        """Return the name of the host, as its agent tells it."""
        told = "" if self.state is None else str(self.state.get("host") or "")[:64]
        return told or self.host.name

    @property
    def found(self) -> FleetHost:
        """Return the host with the address that answered alone, which the next request needs."""
        return self.host if self.state is None else attrs.evolve(self.host, addresses=(self.address,))


async def ask_host(client: AgentClient, host: FleetHost) -> HostAnswer:
    """Ask the agent of a host at all of its addresses at once, and return the first answer."""
    began = trio.current_time()
    found: list[tuple[str, Mapping[str, Any]]] = []
    problems: dict[str, ProcessError] = {}

    async def ask(address: str, scope: trio.CancelScope) -> None:
        try:
            state = await client.get(address, STATE_PATH)
        except (ProcessError, UsageError) as error:
            problems[address] = ProcessError(error.message, remedy=error.remedy)
        else:
            found.append((address, state))
            scope.cancel()

    async with trio.open_nursery() as nursery:
        for address in host.addresses:
            nursery.start_soon(ask, address, nursery.cancel_scope)
    took_s = trio.current_time() - began
    if found:
        return HostAnswer(host, found[0][0], took_s, found[0][1], at_s=time.time())
    first = host.addresses[0]
    return HostAnswer(host, first, took_s, problem=problems[first])


async def ask_hosts(
    client: AgentClient, hosts: Iterable[FleetHost], known: Mapping[FleetHost, HostAnswer]
) -> list[HostAnswer]:
    """Ask the agents of all hosts at once, within bounds, except those with a known answer.

    Return one answer for each agent, and the reasons of those that do not answer.
    """
    limit = trio.CapacityLimiter(_MOST_AT_ONCE)
    answers: dict[str, HostAnswer] = {}

    async def ask(host: FleetHost) -> None:
        async with limit:
            answers[host.name] = known.get(host) or await ask_host(client, host)

    hosts = list(hosts)
    async with trio.open_nursery() as nursery:
        for host in hosts:
            nursery.start_soon(ask, host)
    return _merged([answers[host.name] for host in hosts])


def _merged(answers: Iterable[HostAnswer]) -> list[HostAnswer]:
    """Return one answer for each agent: a host with several addresses may look like several hosts in the file."""
    merged: dict[str, HostAnswer] = {}
    for answer in answers:
        agent = answer.address if answer.state is None else str(answer.state.get("agent"))
        known = merged.get(agent)
        if known is not None:
            host = attrs.evolve(known.host, nodes=(*known.host.nodes, *answer.host.nodes))
            answer = attrs.evolve(known, host=host)
        merged[agent] = answer
    return list(merged.values())


def names_of(answers: Sequence[HostAnswer]) -> list[str]:
    """Return a name for each host. Hosts that were never given names of their own get their addresses, too."""
    names = Counter(answer.name for answer in answers)
    return [one.name if names[one.name] == 1 else f"{one.name} ({one.address})" for one in answers]


class FleetWatch:
    """Nodes of all hosts of a topology file, asked by their agents.

    `version` is that of this command: plans of the file are compared only with agents of the same version. Raises
    `TopologyError` for an invalid file.
    """

    def __init__(self, file: Path, version: str, token: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        topology = load_checked(file)
        self.client = AgentClient(topology.fleet.port, token, tls)
        self._version = version
        self._silent: dict[FleetHost, HostAnswer] = {}
        self._asked_silent_s = 0.0
        self.name = topology.name
        self._plans = plan_all(topology)
        self.hosts = hosts_of(topology, self._plans)
        self._found = self.hosts  # one entry for each agent that answered last time
        self._file, self._digest = file, topology.digest
        self._own: Fingerprint | None = None  # made for the first host with another file
        now = time.monotonic()
        self._records = {name: planned(plan, NodeState.ELSEWHERE, now) for name, plan in self._plans.items()}

    def expect(self, file: str) -> None:
        """Do nothing: the view keeps the file of its start."""

    def look(self) -> TreeView:
        """Ask the agents of all hosts and return the nodes. Call it in a thread without an event loop."""
        return trio.run(self.ask)

    def control(self, node: NodeRecord, view: TreeView, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a node of a view to a request of `pgm ctl`.

        Raises `UsageError` if the node refuses, and `ProcessError` if the node or its agent does not answer.
        """
        address = next(host.address for host in view.hosts if host.name == node.host)
        answer = trio.run(self.client.post, address, CONTROL_PATH, {"node": node.name, "request": request})
        flaw = flaw_of_control_untrusted(answer)
        if flaw:
            raise ProcessError(f"host {node.host} sends a malformed answer: answer{flaw}", remedy=_SAME_VERSION)
        return answer

    def doctor(self, view: TreeView) -> dict[str, list[dict[str, Any]] | ProcessError]:
        """Return the findings of `pgm doctor` of each host whose agent answers, by the host's name."""
        return trio.run(self._doctor, [host for host in view.hosts if not host.problem])

    async def _doctor(self, hosts: Sequence[HostRecord]) -> dict[str, list[dict[str, Any]] | ProcessError]:
        client = attrs.evolve(self.client, timeout_s=_DOCTOR_S)
        found: dict[str, list[dict[str, Any]] | ProcessError] = {}

        async def ask(host: HostRecord) -> None:
            try:
                found[host.name] = _list((await client.get(host.address, DOCTOR_PATH)).get("checks"))
            except (ProcessError, UsageError) as error:
                found[host.name] = ProcessError(error.message, remedy=error.remedy)

        async with trio.open_nursery() as nursery:
            for host in hosts:
                nursery.start_soon(ask, host)
        return {host.name: found[host.name] for host in hosts}

    def flight(
        self, view: TreeView, query: Mapping[str, Sequence[str]]
    ) -> dict[str, list[RingContents] | ProcessError]:
        """Return the recorders of each host whose agent answers, by the host's name, in the excerpt of a query."""
        return trio.run(self._flight, [host for host in view.hosts if not host.problem], query)

    async def _flight(
        self, hosts: Sequence[HostRecord], query: Mapping[str, Sequence[str]]
    ) -> dict[str, list[RingContents] | ProcessError]:
        client = attrs.evolve(self.client, timeout_s=_FLIGHT_S)
        path = f"{FLIGHT_PATH}?{urlencode(query, doseq=True)}"
        found: dict[str, list[RingContents] | ProcessError] = {}
        limit = trio.CapacityLimiter(_MOST_AT_ONCE)

        async def ask(host: HostRecord) -> None:
            try:
                async with limit:
                    rings = _list((await client.get(host.address, path)).get("rings"))
                found[host.name] = [from_json_untrusted(ring) for ring in rings]
            except (ProcessError, UsageError) as error:
                found[host.name] = ProcessError(error.message, remedy=error.remedy)
            except WireError as error:
                found[host.name] = ProcessError(f"the agent of {host.name} sends no recorders: {error.reason}")

        async with trio.open_nursery() as nursery:
            for host in hosts:
                nursery.start_soon(ask, host)
        return found

    async def ask(self) -> TreeView:
        """Ask the agents of all hosts and return the nodes."""
        began = time.monotonic()
        if began - self._asked_silent_s > _SILENT_S:
            self._silent, self._asked_silent_s = {}, began
        answers = await ask_hosts(self.client, self._found, self._silent)
        if any(answer.state is None and answer.host not in self.hosts for answer in answers):
            # the agent may answer at another address of the file
            answers = await ask_hosts(self.client, self.hosts, self._silent)
        self._found = [answer.found for answer in answers]
        self._silent = {answer.host: answer for answer in answers if answer.state is None}
        return self.merge(answers, began, time.monotonic())

    def merge(self, answers: Iterable[HostAnswer], began_s: float, now_s: float) -> TreeView:
        """Return the nodes that `answers` tell of, and those of the file that no answer tells of."""
        hosts: list[HostRecord] = []
        nodes: list[NodeRecord] = []
        silent: list[tuple[HostAnswer, HostRecord]] = []
        left_out = 0
        answers = list(answers)
        for answer, host in zip(answers, names_of(answers), strict=True):
            record = attrs.evolve(self._host(answer), name=host)
            if answer.state is None:
                silent.append((answer, record))
                continue
            hosts.append(record)
            told, flaw = _records_untrusted(answer.state, record.name, now_s)
            hosts[-1] = attrs.evolve(record, problem=flaw, remedy=_SAME_VERSION, is_malformed=True) if flaw else record
            nodes += [node for node in told if node.topology == self.name]
            left_out += _whole(answer.state.get("left_out"))
            seen = {node.name for node in nodes}
            # An agent in bad form may have told of them.
            state = NodeState.UNREACHABLE if flaw else NodeState.ABSENT
            nodes += [self._unheard(name, record.name, state, now_s) for name in answer.host.nodes if name not in seen]
        seen = {node.name for node in nodes}
        for answer, record in silent:
            unseen = [name for name in answer.host.nodes if name not in seen]
            if unseen or not answer.host.nodes:  # else another address of the same host has told of all
                hosts.append(record)
                nodes += [self._unheard(name, record.name, NodeState.UNREACHABLE, now_s) for name in unseen]
        seen = {node.name for node in nodes}
        nodes += [self._unheard(name, "", NodeState.ELSEWHERE, now_s) for name in self._plans if name not in seen]
        self._records = {node.name: node for node in nodes}
        return TreeView(tuple(sorted(nodes, key=order_of)), now_s, now_s - began_s, left_out, tuple(hosts))

    def _unheard(self, name: str, host: str, state: NodeState, now_s: float) -> NodeRecord:
        """Return a node that no agent tells of, with its last numbers if there are any."""
        known = self._records.get(name)
        if known is None or (known.state is NodeState.ELSEWHERE and known.snapshot is None):
            known = planned(self._plans[name], state, now_s)
        since_s = known.since_s if known.state is state else now_s
        return attrs.evolve(known, state=state, since_s=since_s, unseen=state, host=host)

    def _host(self, answer: HostAnswer) -> HostRecord:
        if answer.state is None:
            assert answer.problem is not None
            problem, remedy = answer.problem.message, answer.problem.remedy
            return HostRecord(answer.name, answer.address, problem, remedy, took_s=answer.took_s)
        version = str(answer.state.get("version", ""))[:64]
        told_s = answer.state.get("time_s")
        ahead_s = told_s - answer.at_s + answer.took_s / 2 if _is_seconds(told_s) else 0.0
        record = HostRecord(answer.name, answer.address, version=version, took_s=answer.took_s, ahead_s=ahead_s)
        try:
            theirs = Fingerprint.of_row(answer.state["topology"])
        except (KeyError, TypeError, AttributeError):
            return record
        if theirs.file == self._digest:
            return attrs.evolve(record, file=theirs.file)
        self._own = self._own or fingerprint_of(self._file)
        differing = self._own.differing(theirs) if version == self._version else []
        return attrs.evolve(record, file=theirs.file, has_other_file=True, differing=tuple(differing[:_MOST_DIFFERING]))


def _records_untrusted(state: Mapping[str, Any], host: str, now_s: float) -> tuple[list[NodeRecord], str]:
    """Return the nodes that an agent tells of in good form, and the first flaw of its answer or an empty text."""
    rows = state.get("nodes")
    if not isinstance(rows, list):
        return [], "`nodes` is no list"
    if len(rows) > MOST_NODES:
        return [], f"`nodes` has more than {MOST_NODES:,} rows"
    found: list[NodeRecord] = []
    first = ""
    for at, row in enumerate(rows):
        record, flaw = _record_untrusted(row, host, now_s)
        if record is not None:
            found.append(record)
        first = first or (flaw and f"nodes[{at}]{flaw}")
    return found, first


def _record_untrusted(row: Any, host: str, now_s: float) -> tuple[NodeRecord | None, str]:
    """Return the record of a node that an agent tells of, or none and the flaw of the row."""
    if not isinstance(row, dict):
        return None, ": no table"
    told = row.get("state")
    state, snapshot = _STATES.get(told) if isinstance(told, str) else None, row.get("snapshot")
    if state is None:
        return None, ".state: unknown"
    if snapshot is not None or state is NodeState.UP:
        flaw = flaw_of_untrusted(snapshot)
        if flaw:
            return None, f".snapshot{flaw}"
    names = [row.get(key) for key in ("topology", "node", "role")]
    if not all(isinstance(name, str) for name in names):
        return None, ": no names"
    topology, name, role = (str(name)[:256] for name in names)
    for_s = row.get("for_s")
    since_s = now_s - (for_s if _is_seconds(for_s) else 0.0)
    return NodeRecord(topology, name, role, state, since_s, snapshot, unseen=state, host=host), ""


def _is_seconds(value: Any) -> TypeGuard[int | float]:
    """Return whether a value is a number of seconds that can be computed with."""
    return type(value) in (int, float) and abs(value) < _MOST_S


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < _MOST_LEFT_OUT else 0
