"""Comparison of the topology files of a node and of the sources that it hears, and sources that it does not hear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Notice
from pgm.core.source.source import SourceCore
from pgm.core.status import SessionStatus
from pgm.net.control.outages import report
from pgm.net.driver.node_driver import NodeDriver
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import SECOND

_CHECK_IVL = 5 * SECOND


@attrs.define
class FilesWatch:
    """Watch of one node that hears sources. It has no clock and no socket."""

    node: str
    digest: str  # of the node's own file; empty for a node without a file
    expiry_ns: int
    began_ns: int
    _told: dict[str, str] = attrs.field(factory=dict)  # by session: the digest that an event has named
    _is_unheard: bool = False

    def check(self, sessions: Iterable[SessionStatus], counters: Counters, now_ns: int) -> Iterator[Notice]:
        """Yield an event for each session whose source runs another file, and one if nothing was heard for too long."""
        known: dict[str, str] = {}
        count = 0
        for row in sessions:
            count += 1
            theirs, _, part = row.file.partition(" ")
            if self.digest and theirs not in ("", self.digest):
                known[row.tsi] = theirs
                if self._told.get(row.tsi) != theirs:
                    yield Notice("files-differ", f"session {row.tsi}: {row.source} runs file {theirs} (own part {part}), {self.node} file {self.digest}")  # fmt: skip
        self._told = known
        if count:
            self._is_unheard = False
        elif not self._is_unheard and now_ns - self.began_ns >= self.expiry_ns:
            self._is_unheard = True
            others = f"; {counters.foreign_packets:,} packets of other streams came" if counters.foreign_packets else ""
            yield Notice("unheard", f"{self.node} has heard no source for {self.expiry_ns / SECOND:g} s{others}")


def files_watch_of(plan: NodePlan, now_ns: int) -> FilesWatch | None:
    """Return the watch of a node; None for a source, which hears no other."""
    if plan.role is Role.SOURCE:
        return None
    return FilesWatch(plan.name, plan.digest, plan.parameters.peer_expiry, now_ns)


@attrs.define
class FilesCheck:
    """Check of a running node, every five seconds."""

    watch: FilesWatch | None
    _next_ns: int = 0

    def sample(self, driver: NodeDriver, counters: Counters) -> None:
        """Report what a check finds, if one is due."""
        now_ns = driver.now_ns()
        if self.watch is None or now_ns < self._next_ns:
            return
        self._next_ns = now_ns + _CHECK_IVL
        if driver.plan is not None:
            self.watch.digest = driver.plan.digest  # a change of the file may have been taken in place
        cores = [end.core for end in driver.endpoints if not isinstance(end.core, SourceCore)]
        rows = [row for core in cores for row in core.status(now_ns)]
        report(driver, self.watch.check(rows, counters, now_ns))
