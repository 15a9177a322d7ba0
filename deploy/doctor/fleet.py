"""Findings of `pgm doctor --fleet`: those of each host's own checks, and those between hosts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from deploy.doctor.findings import HostFinding, Level, advice, fault, ok
from pgm.errors import ProcessError
from pgm.fleet.nodes import HostRecord
from pgm.topology.problems import joined

if TYPE_CHECKING:
    from pgm.fleet.watch import FleetWatch

_MOST_AHEAD_S = 1.0  # of a host's clock: events of two hosts are then hard to compare


def fleet_findings(fleet: FleetWatch) -> list[HostFinding]:
    """Ask all agents, and return the findings of all hosts."""
    view = fleet.look()
    found = [finding for host in view.hosts for finding in host_findings(host)]
    for name, rows in fleet.doctor(view).items():
        if isinstance(rows, ProcessError):
            found.append(fault("agent", name, rows.message, "an answer of the agent", rows.remedy))
        else:
            found += [finding for row in rows for finding in finding_of_row(name, row)]
    return found


def host_findings(host: HostRecord) -> Iterator[HostFinding]:
    """Yield the findings about the agent of a host: its answer, its topology file and its clock."""
    if host.problem:
        found = f"malformed answer: {host.problem}" if host.is_malformed else host.problem
        yield fault("agent", host.name, found, "an answer of the agent", host.remedy)
        return
    yield ok("agent", host.name, f"answers in {host.took_s * 1000:.0f} ms")
    if host.has_other_file:
        text = f"another file; nodes that differ: {joined(host.differing) or 'none'}"
        yield fault(
            "topology file", host.name, text, "the same file on all hosts", "copy the file, and restart the nodes"
        )
    else:
        yield ok("topology file", host.name, "the same")
    if abs(host.ahead_s) > _MOST_AHEAD_S:
        text = f"{abs(host.ahead_s):.1f} s {'ahead of' if host.ahead_s > 0 else 'behind'} this one"
        yield advice("clock of host", host.name, text, f"at most {_MOST_AHEAD_S:g} s", "run NTP or PTP on all hosts")
    else:
        yield ok("clock of host", host.name, f"{host.ahead_s * 1000:+.0f} ms")


def finding_of_row(host: str, row: Any) -> Iterator[HostFinding]:
    """Yield the finding in a row of an agent, whose subject gets the name of the host."""
    levels = {level.value: level for level in Level}
    level = row.get("level") if isinstance(row, dict) else None
    if not isinstance(level, str) or level not in levels:
        return
    check, subject, found, wanted, remedy = (
        str(row.get(key, "")) for key in ("check", "subject", "found", "wanted", "remedy")
    )
    subject = f"{host}: {subject}" if subject else host
    yield HostFinding(check, subject, levels[level], found, wanted, remedy)
