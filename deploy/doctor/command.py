"""`pgm doctor`: checks of this machine for the nodes of a topology."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import click

from deploy.doctor.findings import HostFinding, Level
from deploy.doctor.fleet import fleet_findings
from deploy.doctor.machine import check_machine
from deploy.doctor.network import SegmentUse, check_interfaces, check_nodes, has_interface, runs_here, uses_of
from deploy.doctor.probe import probe
from deploy.doctor.view import print_findings, rows_of
from deploy.terminal.completion import node_names
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.fleet_options import FleetAccess, fleet_options
from deploy.terminal.options import PATH
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.net.sockets.interfaces import multicast_interfaces
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all, plan_node
from pgm.topology.problems import joined

_LONGEST_S = 3600.0  # of listening


@attrs.frozen
class NodesToCheck:
    """Nodes to check, names of nodes on other machines, and use of each segment."""

    plans: list[NodePlan]
    elsewhere: list[str]
    uses: dict[str, SegmentUse]


def nodes_to_check(file: Path, nodes: tuple[str, ...]) -> NodesToCheck:
    """Return the named nodes of a file, or the nodes that run on this machine.

    A node runs on this machine if the machine has its addresses. Raises `TopologyError`, and `UsageError` without any
    node.
    """
    topology = load_checked(file)
    all_plans = plan_all(topology)
    chosen = [plan_node(topology, name) for name in nodes] or list(all_plans.values())
    here = [plan for plan in chosen if nodes or runs_here(plan)]
    if not here:
        raise UsageError(
            f"no node of {file} has an address of this machine",
            remedy="name a node with --node to check it here, or run pgm doctor on the nodes' machines",
        )
    names = {plan.name for plan in here}
    uses = uses_of(all_plans | {plan.name: plan for plan in here})
    return NodesToCheck(here, [plan.name for plan in chosen if plan.name not in names], uses)


@click.command()
@click.argument("file", type=PATH, required=False)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    shell_complete=node_names,
    help="Check only this node; may be given several times.",
)
@click.option("--all", "shows_all", is_flag=True, help="Show the checks without a finding as well.")
@click.option(
    "--probe", "probes", is_flag=True, help="Also send a few packets on each segment, and check that they return."
)
@click.option(
    "--listen",
    type=click.FloatRange(0, _LONGEST_S),
    default=0.0,
    metavar="SECONDS",
    help="With --probe: listen for this long, or until Ctrl-C, and report other machines that run --probe meanwhile.",
)
@command
@fleet_options()
def doctor(
    file: Path | None,
    nodes: tuple[str, ...],
    shows_all: bool,
    probes: bool,
    listen: float,
    as_json: bool,
    fleet: FleetAccess | None,
) -> None:
    """Check this machine for the nodes of a topology FILE whose addresses this machine has.

    \b
    pgm doctor                              # without a file: only the machine
    pgm doctor tree.toml
    pgm doctor tree.toml --node desk-7 --all
    pgm doctor tree.toml --probe --listen 10 # on several machines
    pgm doctor tree.toml --fleet            # on all hosts that run pgm agent
    pgm doctor tree.toml --json | jq '.checks[] | select(.level != "ok")'

    The command opens each node's sockets as the node would, and closes them. The network checks cover interfaces, MTU,
    routes, offloads, pause frames, snooping bridges and reverse path filters. The machine checks cover kernel limits,
    memory, folders, clocks, processors and installed packages. Each line has the reading, the wanted value and the
    command that corrects the reading. With --probe the command sends multicast on the segments. Running nodes count these packets as rejected.
    An advice concerns speed or rare losses. With a fault, a node does not start, or loses packets.

    With --fleet the agents of all hosts run these checks, and a host that does not answer, has another topology file or
    another time is a finding too.

    The exit status is 0 without a fault, else 1.
    """
    if fleet is not None:
        if file is None or nodes or probes:
            raise UsageError("--fleet needs a file, and no --node or --probe", remedy="pgm doctor tree.toml --fleet")
        found = fleet_findings(fleet.watch(file))
        _end(NodesToCheck([], [], {}), found, as_json=as_json, shows_all=shows_all)
        return
    if listen and not probes:
        raise UsageError("--listen needs --probe", remedy="for example: pgm doctor tree.toml --probe --listen 10")
    if file is None and (nodes or probes):
        raise UsageError(
            "--node and --probe need a topology file", remedy="for example: pgm doctor tree.toml --node desk-7"
        )
    checked = NodesToCheck([], [], {}) if file is None else nodes_to_check(file, nodes)
    findings = list(check_machine(checked.plans))
    findings += check_nodes(checked.plans, checked.uses) if file else check_interfaces(multicast_interfaces())
    if probes:
        findings += _run_probe(checked, listen)
    _end(checked, findings, as_json=as_json, shows_all=shows_all)


def _end(checked: NodesToCheck, findings: list[HostFinding], *, as_json: bool, shows_all: bool) -> None:
    faults = sum(finding.level is Level.FAULT for finding in findings)
    if as_json:
        print_json(_as_json(checked, findings))
    else:
        _print(checked, findings, shows_all=shows_all)
    if faults:
        sys.exit(EXIT_FAILED)


def _run_probe(checked: NodesToCheck, listen_s: float) -> list[HostFinding]:
    segments = [segment for plan in checked.plans for segment in plan.segments]
    segments_by_name = {
        segment.name: segment for segment in segments if segment.peers is None and has_interface(segment)
    }
    return list(
        probe({segment: checked.uses[name].packet for name, segment in segments_by_name.items()}, listen_s, _heard)
    )


def _heard(segment: str, host: str) -> None:
    warn(f"heard {host} on {segment}")


def _as_json(checked: NodesToCheck, findings: list[HostFinding]) -> dict[str, object]:
    rows = rows_of(findings)
    return {
        "ok": all(finding.level is not Level.FAULT for finding in findings),
        "nodes": [plan.name for plan in checked.plans],
        "elsewhere": checked.elsewhere,
        "checks": rows,
    }


def _print(checked: NodesToCheck, findings: list[HostFinding], *, shows_all: bool) -> None:
    print_findings(findings, shows_all=shows_all)
    if checked.elsewhere:
        warn(f"not checked, because this machine does not have their addresses: {joined(checked.elsewhere)}")
