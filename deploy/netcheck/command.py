"""`pgm netcheck`: the network between the hosts of a tree."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
import trio

from deploy.doctor.findings import HostFinding, Level, fault
from deploy.doctor.fleet import finding_of_row, host_findings
from deploy.doctor.view import print_findings, rows_of
from deploy.netcheck.probes import LEAST_SHARE
from deploy.netcheck.reports import HostReport
from deploy.netcheck.verdicts import findings_of, summaries
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.fleet_options import FleetAccess, agent_options
from deploy.terminal.options import topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.errors import ProcessError
from pgm.topology.load import load_checked

if TYPE_CHECKING:
    from pgm.fleet.nodes import NodeRecord, TreeView

_NOW = "1s"
_FLOWS = ("sent_octets", "received_octets")


@click.command()
@topology_file
@click.option("--all", "shows_all", is_flag=True, help="Show the checks without a finding as well.")
@click.option(
    "--no-burst", is_flag=True, help="Send no packets at the rate of the streams, and do not judge the bandwidth."
)
@command
@agent_options
def netcheck(file: Path, shows_all: bool, no_burst: bool, as_json: bool, fleet: FleetAccess) -> None:
    """Check the network between all hosts of a topology FILE, by their agents.

    \b
    pgm netcheck tree.toml
    pgm netcheck tree.toml --all            # the good checks as well
    pgm netcheck tree.toml --no-burst       # for a network with other traffic
    pgm netcheck tree.toml --token-file /etc/pgm/token --ca-file ca.pem
    pgm netcheck tree.toml --json | jq '.checks[] | select(.level != "ok")'

    Each host runs pgm agent FILE with --token-file. On each segment each host sends numbered probes to the group, and all
    others tell what arrived: multicast in both directions, loss, order, duplicates, TTL and the MTU of the path. Questions by
    unicast measure the round trip and the clocks. Each source, relay and repairer then sends for a quarter of a second at
    the rate that its streams leave. Agents also listen where a group must not be heard. The interfaces are checked as by pgm doctor.

    Probes have a port of their own (probe_port of [fleet]), so running nodes do not read them. Each line has a verdict,
    and the remedy for it. docs/guide/netcheck.md explains all checks. Ten hosts take some ten seconds.

    The exit status is 0 without a fault, else 1.
    """
    began = time.monotonic()
    say = (lambda _: None) if as_json else warn
    topology = load_checked(file)
    watch = fleet.watch(file)
    view = watch.look()
    hosts = [host for host in view.hosts if not host.problem]
    if not hosts:
        raise _without_agents(view)
    from deploy.netcheck.conductor import Conductor

    def shares(reports: Sequence[HostReport]) -> Mapping[str, float]:
        return {} if no_burst else shares_of(reports, view.nodes)

    result = trio.run(Conductor(watch.client, hosts, say).run, shares)
    findings = [finding for host in view.hosts for finding in host_findings(host)]
    findings += [
        fault("netcheck", name, error.message, "takes part", error.remedy) for name, error in result.problems.items()
    ]
    findings += [one for report in result.reports for row in report.checks for one in finding_of_row(report.name, row)]
    findings += findings_of(result.reports, topology.fleet.probe_port, result.shares)
    _end(findings, result.reports, time.monotonic() - began, as_json=as_json, shows_all=shows_all)


def _without_agents(view: TreeView) -> ProcessError:
    reasons = "; ".join(dict.fromkeys(host.problem for host in view.hosts)) or "the file names no host"
    return ProcessError(
        f"no agent answers: {reasons}",
        remedy="on each host: pgm agent FILE --bind 0.0.0.0 --token-file TOKEN; see docs/guide/netcheck.md",
    )


def shares_of(reports: Iterable[HostReport], nodes: Iterable[NodeRecord]) -> dict[str, float]:
    """Return the part of the streams' rate that is free on each segment. A part that is too small is 0."""
    used: dict[str, float] = {}
    for node in nodes:
        rates: Mapping[str, Any] = (node.snapshot or {}).get("rates", {}) if node.is_up else {}
        flow = max((_per_s(rates.get(name)) for name in _FLOWS), default=0.0)
        for place in node.places:
            used[place.segment] = max(used.get(place.segment, 0.0), flow)
    found: dict[str, float] = {}
    for told in (told for report in reports for told in report.places.values()):
        share = 1 - used.get(told.segment, 0.0) / max(1, told.rate)
        found[told.segment] = share if share >= LEAST_SHARE else 0.0
    return found


def _per_s(windows: Any) -> float:
    value = windows.get(_NOW, {}).get("per_s") if isinstance(windows, dict) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _end(
    findings: Sequence[HostFinding], reports: Sequence[HostReport], took_s: float, *, as_json: bool, shows_all: bool
) -> None:
    has_faults = any(finding.level is Level.FAULT for finding in findings)
    told = summaries(reports)
    if as_json:
        print_json(
            {
                "ok": not has_faults,
                "hosts": [report.name for report in reports],
                "segments": [attrs.asdict(one) for one in told],
                "took_s": round(took_s, 3),
                "checks": rows_of(findings),
            }
        )
    else:
        for one in told:
            print(one.text)
        print_findings(findings, shows_all=shows_all)
    if has_faults:
        sys.exit(EXIT_FAILED)
