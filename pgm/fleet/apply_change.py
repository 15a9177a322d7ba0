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
from pgm.topology.problems import joined


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
    _prepared: list[ChangingHost] = attrs.field(init=False, factory=list)

    def run(self, on_verified: Callable[[], None] = lambda: None) -> None:
        """Bring all hosts to the new file, or leave all as they were.

        `on_verified` is called when all nodes run the new file. No interrupt may come after it: all hosts finish.

        Raises `UsageError` if a host refuses, before anything has changed. Raises `ProcessError` after a failure: all hosts
        are as before then, except those that the error names.
        """
        running: dict[str, ChangingHost] = {}
        try:
            for host, answer in zip(self.hosts, self._prepare(), strict=True):
                running |= dict.fromkeys(answer["running"], host)
                self.tell("prepared", f"{host.name}: {len(answer['running'])} nodes run, and each can take the file")
            self._ask_all(lambda _: {"do": "put", "id": self.id})
            self._act(running)
            self._verify(running)
            on_verified()
            self.tell("verified", f"{len(self.hosts)} hosts: all nodes run the new file")
        except BaseException as error:
            left = self._back()
            if not isinstance(error, (PgmError, KeyboardInterrupt)):
                raise
            raise _failure(error, left) from error
        self._finish()

    def _finish(self) -> None:
        """Let all hosts keep the new file. Raises `ProcessError` for hosts that do not answer, after some tries."""
        left: list[ChangingHost] = list(self.hosts)
        for _ in range(_TRIES):
            answers = self._answers(left, lambda _: {"do": "finish", "id": self.id})
            left = [host for host, answer in zip(left, answers, strict=True) if isinstance(answer, PgmError)]
            if not left:
                return
        raise ProcessError(
            f"all nodes run the new file, but these hosts may return to the old one: {', '.join(host.name for host in left)}",
            remedy="see their files with pgm status FILE --fleet in a minute, and apply again",
        )

    def _prepare(self) -> list[dict[str, Any]]:
        """Let all hosts check the file. Note those that can: each of them knows the change from then on."""
        base = {"do": "prepare", "text": self.text, "old_digest": self.old_digest}
        answers = self._answers(self.hosts, lambda host: {**base, **self._of(host)})
        self._prepared += [one for one, answer in zip(self.hosts, answers, strict=True) if isinstance(answer, dict)]
        return _without_errors(answers)

    def _ask(self, host: ChangingHost, request: dict[str, Any]) -> None:
        """Ask one host. Raises its error."""
        _without_errors(self._answers([host], lambda _: request))

    def _ask_all(self, request: Callable[[ChangingHost], dict[str, Any]]) -> list[dict[str, Any]]:
        """Ask all hosts at once, and return their answers in order. Raises the error of the first that has one."""
        return _without_errors(self._answers(self.hosts, request))

    def _answers(
        self, hosts: Sequence[ChangingHost], request: Callable[[ChangingHost], dict[str, Any]]
    ) -> list[dict[str, Any] | PgmError]:
        """Ask hosts at once, in threads: an interrupt reaches the main thread alone, and a step of a host ends first."""
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(hosts))) as askers:
            asked = [askers.submit(host.ask, request(host)) for host in hosts]
            wait(asked)
        errors = [one.exception() for one in asked]
        return [
            error if isinstance(error, PgmError) else one.result() for one, error in zip(asked, errors, strict=True)
        ]

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
                self.tell(verb, f"{joined(nodes) or 'nothing'}; {len(rest)} nodes only read the file")
                nodes += rest
            elif nodes:
                self.tell(verb, joined(nodes))
            for host, own in _by_host(nodes, where):
                self._ask(host, {"do": "act", "id": self.id, "verb": verb, "nodes": own})
                self._ask_all(lambda _: {"do": "hold", "id": self.id})

    def _verify(self, running: Mapping[str, ChangingHost]) -> None:
        stopped = {step.node for step in self.plan.steps if step.action is Action.STOP}
        started = {step.node: self.host_of[step.node] for step in self.plan.steps if step.action is Action.START}
        where = {**running, **started}
        for host, nodes in _by_host([name for name in where if name not in stopped], where):
            self._ask(host, {"do": "verify", "id": self.id, "nodes": nodes})
            self._ask_all(lambda _: {"do": "hold", "id": self.id})

    def _back(self) -> list[str]:
        """Return all hosts to the old file. Return what is not as before."""
        left: list[str] = []
        answers = self._answers(self.hosts, lambda host: {"do": "back", **self._of(host)})
        for host, answer in zip(self.hosts, answers, strict=True):
            if isinstance(answer, PgmError):
                left.append(f"{host.name}: {answer.message}")
            elif answer.get("back"):
                kept = f"; an edit by hand is kept in {answer['by_hand']}" if "by_hand" in answer else ""
                self.tell("back", f"{host.name} has the old file again{kept}")
            elif host in self._prepared:
                left.append(f"{host.name}: it has forgotten the change, so its state is not known")
        return left


_VERBS = {Action.START: "start", Action.CHANGE: "change", Action.RESTART: "restart", Action.STOP: "stop"}
_TRIES = 3  # to finish: from then on no host may go back
_MOST_IN_ONE = 16  # nodes of one request, whose answer comes within the time of a request
_MOST_AT_ONCE = 64  # hosts asked at a time


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


def _without_errors(answers: Sequence[dict[str, Any] | PgmError]) -> list[dict[str, Any]]:
    """Return answers. Raises the first that is an error."""
    found: list[dict[str, Any]] = []
    for answer in answers:
        if isinstance(answer, PgmError):
            raise answer
        found.append(answer)
    return found


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
