"""Change of the topology file on all hosts: all take the new file, or none does.

The coordinator asks each host in the same way, whether an agent answers or this process itself. First every host checks
the new file and its own nodes. Then each puts the file in place, and the steps follow in their order. At last all nodes
report the new file. After any failure every host returns to the old file, with its nodes as before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import attrs

from pgm.errors import PgmError, ProcessError, UsageError
from pgm.topology.changes.steps import Action, ChangePlan, stages


class ChangingHost(Protocol):
    """A host that takes part in a change."""

    @property
    def name(self) -> str:
        """Return the name of the host for people."""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the host.

        Raises `UsageError` if the host refuses, and `ProcessError` if it fails or does not answer.
        """


Tell = Callable[[str, str], None]  # code and text of a step, for people


@attrs.define
class FileChange:
    """One change, from `old_digest` to a text. `host_of` has the host of each node of both files."""

    plan: ChangePlan
    text: str
    old_digest: str
    hosts: Sequence[ChangingHost]
    host_of: Mapping[str, ChangingHost]
    tell: Tell
    id: str = attrs.field(factory=lambda: secrets.token_hex(8))

    def run(self) -> None:
        """Bring all hosts to the new file, or leave all as they were.

        Raises `UsageError` if a host refuses, before anything has changed. Raises `ProcessError` after a failure: all hosts
        are as before then, except those that the error names.
        """
        prepared: list[ChangingHost] = []
        running: dict[str, ChangingHost] = {}
        try:
            for host in self.hosts:
                prepared.append(host)  # a request without an answer may have been heard
                answer = host.ask({"do": "prepare", "text": self.text, "old_digest": self.old_digest, **self._of(host)})
                running |= dict.fromkeys(answer["running"], host)
                self.tell(
                    "prepared", f"{host.name}: {len(answer['running'])} nodes run here, and all can take the file"
                )
            for host in self.hosts:
                host.ask({"do": "put", "id": self.id})
            self._act(running)
            self._verify(running)
            self.tell("verified", "all nodes run the new file")
        except (PgmError, KeyboardInterrupt) as error:
            left = self._back(prepared)
            raise _failure(error, left) from error
        for host in self.hosts:
            host.ask({"do": "finish", "id": self.id})

    def _of(self, host: ChangingHost) -> dict[str, Any]:
        """Return the id, and the nodes of a host by what happens to them."""
        lists: dict[str, Any] = {"start": [], "restart": [], "stop": []}
        for step in self.plan.steps:
            if step.action is not Action.CHANGE and self.host_of[step.node] is host:
                lists[_VERBS[step.action]].append(step.node)
        return {"id": self.id, **lists}

    def _act(self, running: Mapping[str, ChangingHost]) -> None:
        stepping = {step.node for step in self.plan.steps}
        rest = [name for name in running if name not in stepping]  # these nodes learn the digest of the file
        for stage in (*stages(self.plan.steps), None):
            if stage is None:
                nodes, verb, where = rest, "change", running
            else:
                nodes, verb = [step.node for step in stage], _VERBS[stage[0].action]
                where = {**self.host_of, **running}
                if verb == "change":
                    nodes = [name for name in nodes if name in running]
                self.tell(verb, _named(nodes))
            for host, own in _by_host(nodes, where):
                host.ask({"do": "act", "id": self.id, "verb": verb, "nodes": own})

    def _verify(self, running: Mapping[str, ChangingHost]) -> None:
        stopped = {step.node for step in self.plan.steps if step.action is Action.STOP}
        started = {step.node: self.host_of[step.node] for step in self.plan.steps if step.action is Action.START}
        where = {**running, **started}
        for host, nodes in _by_host([name for name in where if name not in stopped], where):
            host.ask({"do": "verify", "id": self.id, "nodes": nodes})

    def _back(self, prepared: Sequence[ChangingHost]) -> list[str]:
        """Return the hosts to the old file, the last first. Return what is not as before."""
        left: list[str] = []
        for host in reversed(prepared):
            try:
                if host.ask({"do": "back", "id": self.id}).get("back"):
                    self.tell("back", f"{host.name} has the old file again")
            except PgmError as error:
                left.append(f"{host.name}: {error.message}")
        return left


_VERBS = {Action.START: "start", Action.CHANGE: "change", Action.RESTART: "restart", Action.STOP: "stop"}
_MOST_NAMED = 8


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _by_host(nodes: Sequence[str], where: Mapping[str, ChangingHost]) -> Iterator[tuple[ChangingHost, list[str]]]:
    """Yield neighbouring nodes of one host together, in their order."""
    group: list[str] = []
    for node in nodes:
        if group and where[node] is not where[group[0]]:
            yield where[group[0]], group
            group = []
        group.append(node)
    if group:
        yield where[group[0]], group


def _failure(error: BaseException, left: Sequence[str]) -> PgmError:
    """Return the error of a change that was undone."""
    message = error.message if isinstance(error, PgmError) else "interrupted"
    remedy = error.remedy if isinstance(error, PgmError) else "apply the file again"
    if left:
        return ProcessError(
            f"{message}. These hosts are not as before: {'; '.join(left)}",
            remedy=f"{remedy}; a host goes back by itself when it hears nothing more for a minute",
        )
    told = f"{message}. All hosts are as before"
    return UsageError(told, remedy=remedy) if isinstance(error, UsageError) else ProcessError(told, remedy=remedy)
