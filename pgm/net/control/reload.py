"""Changes of the topology file by a running node: on SIGHUP, or on a request to its control socket.

A node takes in place what `pgm.topology.changes` permits. On SIGHUP the node compares the file with its own plan, and
tells what needs a restart. A request names the file from before, and is refused if anything needs a restart.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from pgm.core.effects import Notice
from pgm.core.element.element import ElementCore
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.errors import PgmError, UsageError
from pgm.impairments import Impairment
from pgm.net.control.settings import answers_of
from pgm.net.core_factory import neighbours_of
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.link.permitted import sender_lists
from pgm.net.plan_digest import plan_digest
from pgm.topology.changes.differences import Difference, differences, merged
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role, StreamPlan
from pgm.topology.plan import plan_node
from pgm.topology.problems import joined
from pgm.units import format_fraction, format_rate
from pgm.wire.options import SourceFile

MOST_FILE_OCTETS = 1 << 22  # of a topology file in a request: a thousand nodes take 200 KiB
_TAPED = "a tape is kept, which has no change of the file"


class RunningPlan:
    """Plan of a running node: that of its start, with all that was taken in place since."""

    def __init__(self, start: NodePlan, driver: NodeDriver) -> None:
        self._start = start
        self._driver = driver

    @property
    def plan(self) -> NodePlan:
        """The plan in force."""
        return self._driver.plan or self._start

    # Requests

    def answer(self, request: Mapping[str, Any], requester: str) -> dict[str, Any]:
        """Answer `file`, `check` or `reload`. The last two name the file `old`, and perhaps another `new` one.

        Raises `TopologyError` for a file that breaks rules, and `UsageError` for a change that needs a restart.
        """
        verb = request["do"]
        if verb == "file":
            return self._row()
        old, new = self._files(request)
        before, after = (plan_node(load_checked(path), self.plan.name) for path in (old, new))
        is_return = request.get("back") is True
        fixed, in_place = self._fixed_and_in_place(before, after, is_return=is_return)
        if verb == "reload":
            if fixed:
                named = ", ".join(one.name for one in fixed)
                raise UsageError(
                    f"{self.plan.name} cannot take {named} in place: {fixed[0].why_restart}",
                    remedy="restart the node, or leave the value as it is",
                )
            self._take(merged(before, after, self.plan, is_return=is_return))
            self._set_from(after, requester)
            self._tell(Notice("reloaded", f"{self.plan.file}: taken in place: {_named(in_place)}, by {requester}"))
        return {**self._row(), "restart": [one.text for one in fixed], "in_place": [one.text for one in in_place]}

    def _row(self) -> dict[str, Any]:
        plan = self.plan
        row = {"topology": plan.topology, "node": plan.name, "role": plan.role.value}
        return {**row, "file": str(Path(plan.file).resolve()), "digest": plan.digest}

    def _files(self, request: Mapping[str, Any]) -> tuple[Path, Path]:
        """Return the files of a request. Only bounded files of the node's own folder are read."""
        old, new = request.get("old"), request.get("new", self.plan.file)
        if not isinstance(old, str) or not isinstance(new, str):
            raise UsageError(
                "`old` or `new` is no path", remedy='as in {"do": "check", "old": "tree.toml", "new": "new.toml"}'
            )
        own = Path(self.plan.file).resolve()
        return _beside(own, old), _beside(own, new)

    def _fixed_and_in_place(
        self, old: NodePlan, new: NodePlan, *, is_return: bool = False
    ) -> tuple[list[Difference], list[Difference]]:
        """Return what needs a restart, and what does not."""
        plan = self.plan
        if old.role is not plan.role:
            raise UsageError(
                f"{plan.name} runs as {plan.role.value}, and the file has it as {old.role.value}",
                remedy="restart the program of this node",
            )
        found = differences(old, new, is_return=is_return)
        if plan.tape and found:
            found = [attrs.evolve(one, why_restart=one.why_restart or _TAPED) for one in found]
        return [one for one in found if one.why_restart], [one for one in found if not one.why_restart]

    # Taking

    def _take(self, plan: NodePlan) -> None:
        """Bring all endpoints to a plan that differs in nothing but values that they take in place."""
        driver, before = self._driver, self.plan
        for endpoint in driver.endpoints or (driver,):
            core = endpoint.core
            assert isinstance(core, (SourceCore, ReceiverCore, ElementCore))
            parameters, streams = plan.parameters, plan.streams
            if isinstance(core, SourceCore):
                stream = next(one for one in plan.streams if one.data_port == core.setup.data_port)
                parameters, streams = plan.parameters_of(stream), (stream,)
                if core.setup.file is not None:
                    core.tell_file(SourceFile.of(plan.digest, plan_digest(plan)))
            if not plan.tape:
                core.change(neighbours_of(plan, streams), parameters, endpoint.now_ns())
            endpoint.plan = plan
        lists = sender_lists(plan)
        if lists != sender_lists(before):
            for link in driver.links:
                link.permit(lists)

    def _set_from(self, wanted: NodePlan, requester: str) -> int:
        """Set rates and losses to those of the file. Return how many have changed."""
        changes = 0
        for request in self._requests(wanted):
            answer = answers_of(self.plan, self._driver)(request, requester)
            changes += sum(change["old"] != change["new"] for change in answer["changed"])
        return changes

    def _requests(self, wanted: NodePlan) -> Iterator[Mapping[str, Any]]:
        """Yield the requests of `pgm ctl` that set what the file says now."""
        plan, driver = self.plan, self._driver
        rates = {stream.name: wanted.parameters_of(stream).txw_max_rte for stream in wanted.streams}
        for stream in plan.streams if plan.role is Role.SOURCE else ():
            rate = rates.get(stream.name)
            if rate is not None and rate <= plan.parameters_of(stream).txw_max_rte and self._is_sent(stream):
                yield {"do": "set", "settings": {"rate": format_rate(rate)}, "stream": stream.name}
        losses = {segment.name: segment.impairment for segment in wanted.segments}
        for link in driver.links:
            if link.injector is not None and link.plan.name in losses:
                yield {"do": "set", "settings": _spelled(losses[link.plan.name]), "segment": link.plan.name}

    def _is_sent(self, stream: StreamPlan) -> bool:
        sent = {one.data_port for end in self._driver.endpoints for one in (end.plan or self.plan).streams}
        return stream.data_port in sent

    # SIGHUP

    def reload(self) -> None:
        """Read the node's topology file again, take what can be taken in place, and tell what needs a restart."""
        for notice in self._reloaded():
            self._tell(notice)

    def _reloaded(self) -> Iterator[Notice]:
        """Yield the results of a reload. Settings that change have notices of their own."""
        plan = self.plan
        try:
            wanted = plan_node(load_checked(plan.file), plan.name)
            fixed, in_place = self._fixed_and_in_place(plan, wanted)
            if not (plan.tape and fixed):  # a taped core takes nothing of the file, so its plan and digest stay, too
                self._take(merged(plan, wanted))
            changes = self._set_from(wanted, "a reload of the file")
        except (PgmError, OSError) as error:
            told = f"{error.message}; {error.remedy}" if isinstance(error, PgmError) else str(error)
            yield Notice("reload-failed", f"{plan.file}: {told}".replace("\n", "; "))
            return
        if fixed:
            yield Notice("reload-restart", f"{plan.file}: a restart is needed for {_named(fixed)}")
        yield Notice("reloaded", f"{plan.file}: settings changed: {changes}; taken in place: {_named(in_place)}")

    def _tell(self, notice: Notice) -> None:
        self._driver.perform([notice])


_VERBS = ("file", "check", "reload")


def answers_with_file(plan: NodePlan, driver: NodeDriver) -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """Return the function that answers all requests for a node: settings, and changes of the file."""
    settings, running = answers_of(plan, driver), RunningPlan(plan, driver)

    def answer(request: Mapping[str, Any], requester: str) -> dict[str, Any]:
        return (running.answer if request.get("do") in _VERBS else settings)(request, requester)

    return answer


def _beside(own: Path, name: str) -> Path:
    """Return the path of a bounded regular file in the folder of `own`, which a reader cannot block on.

    Every other path has one answer, which does not tell whether the path exists. Raises `UsageError`.
    """
    try:
        path = Path(name).resolve()
        if path.parent == own.parent:
            found = path.stat()
            if stat.S_ISREG(found.st_mode) and found.st_size <= MOST_FILE_OCTETS:
                return path
    except (OSError, ValueError, RuntimeError):  # also a loop of links, and a null character
        pass
    raise UsageError(
        f"{name[:80]!r} is no file of at most {MOST_FILE_OCTETS >> 20} MiB beside {own.name}",
        remedy=f"name a topology file in {own.parent}",
    )


def _named(found: list[Difference]) -> str:
    return joined(sorted({one.name for one in found})) or "nothing"


def _spelled(impairment: Impairment) -> dict[str, str]:
    shares = {name: format_fraction(getattr(impairment, name)) for name in ("loss", "burst_loss")}
    return {**shares, "burst_length": f"{impairment.burst_length:g}"}
