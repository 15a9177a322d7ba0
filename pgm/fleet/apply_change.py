"""Change of the topology file on all hosts: all take the new file, or none does.

The coordinator asks each host in the same way, whether an agent answers or this process itself. First every host checks
the new file and its own nodes. Then each puts the file in place, and the steps follow in their order. At last all nodes
report the new file. After any failure every host returns to the old file, with its nodes as before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol

import attrs

from pgm.errors import PgmError, ProcessError, UsageError
from pgm.topology.changes.steps import Action, ChangePlan, is_first, stages


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
        running: dict[str, ChangingHost] = {}
        try:
            base = {"do": "prepare", "text": self.text, "old_digest": self.old_digest}
            answers = self._ask_all(lambda host: {**base, **self._of(host)})
            for host, answer in zip(self.hosts, answers, strict=True):
                running |= dict.fromkeys(answer["running"], host)
                self.tell("prepared", f"{host.name}: {len(answer['running'])} nodes run, and each can take the file")
            self._ask_all(lambda _: {"do": "put", "id": self.id})
            self._act(running)
            self._verify(running)
            self.tell("verified", f"{len(self.hosts)} hosts: all nodes run the new file")
        except BaseException as error:
            left = self._back()
            if not isinstance(error, (PgmError, KeyboardInterrupt)):
                raise
            raise _failure(error, left) from error
        self._finish()

    def _finish(self) -> None:
        """Let all hosts keep the new file. Raises `ProcessError` for hosts that do not answer, after some tries."""
        left: dict[str, PgmError] = {}
        for _ in range(_TRIES):
            left = {}
            for host in self.hosts:
                try:
                    host.ask({"do": "finish", "id": self.id})
                except PgmError as error:
                    left[host.name] = error
            if not left:
                return
        raise ProcessError(
            f"all nodes run the new file, but these hosts may return to the old one: {', '.join(left)}",
            remedy="see their files with pgm status FILE --fleet in a minute, and apply again",
        )

    def _ask_all(self, request: Callable[[ChangingHost], dict[str, Any]]) -> list[dict[str, Any]]:
        """Ask all hosts at once, and return their answers in order. Raises the error of the first that has one."""
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(self.hosts))) as askers:
            asked = [askers.submit(host.ask, request(host)) for host in self.hosts]
            wait(asked)
        return [one.result() for one in asked]

    def _of(self, host: ChangingHost) -> dict[str, Any]:
        """Return the id, and the nodes of a host by what happens to them."""
        lists: dict[str, Any] = {"start": [], "restart": [], "stop": []}
        for step in self.plan.steps:
            if step.action is not Action.CHANGE and self.host_of[step.node] is host:
                lists[_VERBS[step.action]].append(step.node)
        return {"id": self.id, **lists}

    def _act(self, running: Mapping[str, ChangingHost]) -> None:
        stepping = {step.node for step in self.plan.steps if step.action is not Action.START}
        rest = [name for name in running if name not in stepping]  # these nodes learn the digest of the file
        groups = stages(self.plan.steps)
        if not any(stage[0].action is Action.CHANGE for stage in groups):
            at = sum(is_first(stage[0]) for stage in groups)
            groups.insert(at, [])
        where = {**self.host_of, **running}
        for stage in groups:
            verb = _VERBS[stage[0].action] if stage else "change"
            # A node that does not run reads the file when it starts. A new one may run already, of a pattern.
            nodes = [step.node for step in stage if (step.node in running) == (verb != "start")]
            if verb == "change":
                self.tell(verb, f"{_named(nodes) or 'nothing'}; {len(rest)} nodes only read the file")
                nodes += rest
            elif nodes:
                self.tell(verb, _named(nodes))
            for host, own in _by_host(nodes, where):
                host.ask({"do": "act", "id": self.id, "verb": verb, "nodes": own})
                self._ask_all(lambda _: {"do": "hold", "id": self.id})

    def _verify(self, running: Mapping[str, ChangingHost]) -> None:
        stopped = {step.node for step in self.plan.steps if step.action is Action.STOP}
        started = {step.node: self.host_of[step.node] for step in self.plan.steps if step.action is Action.START}
        where = {**running, **started}
        for host, nodes in _by_host([name for name in where if name not in stopped], where):
            host.ask({"do": "verify", "id": self.id, "nodes": nodes})
            self._ask_all(lambda _: {"do": "hold", "id": self.id})

    def _back(self) -> list[str]:
        """Return the hosts to the old file, the last first. Return what is not as before."""
        left: list[str] = []
        for host in reversed(self.hosts):
            try:
                if host.ask({"do": "back", "id": self.id}).get("back"):
                    self.tell("back", f"{host.name} has the old file again")
            except PgmError as error:
                left.append(f"{host.name}: {error.message}")
        return left


_VERBS = {Action.START: "start", Action.CHANGE: "change", Action.RESTART: "restart", Action.STOP: "stop"}
_MOST_NAMED = 8
_TRIES = 3  # to finish: from then on no host may go back
_MOST_IN_ONE = 16  # nodes of one request, whose answer comes within the time of a request
_MOST_AT_ONCE = 64  # hosts asked at a time


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _by_host(nodes: Sequence[str], where: Mapping[str, ChangingHost]) -> Iterator[tuple[ChangingHost, list[str]]]:
    """Yield neighbouring nodes of one host together, in their order."""
    group: list[str] = []
    for node in nodes:
        if group and (where[node] is not where[group[0]] or len(group) == _MOST_IN_ONE):
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
