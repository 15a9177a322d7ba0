"""`pgm doctor`: checks of this machine for the nodes of a topology."""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import click

from deploy.doctor.findings import HostFinding, Level, lines_of
from deploy.doctor.machine import check_machine
from deploy.doctor.network import SegmentUse, check_interfaces, check_nodes, has_interface, runs_here, uses_of
from deploy.doctor.probe import probe
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.net.sockets.interfaces import multicast_interfaces
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all, plan_node

_LONGEST_S = 3600.0  # of listening
_MOST_NAMES = 8  # nodes of other machines that a message names


@attrs.frozen
class NodesToCheck:
    """Nodes to check, names of nodes on other machines, and use of each segment."""

    plans: list[NodePlan]
    elsewhere: list[str]
    uses: dict[str, SegmentUse]


def patients_of(file: Path, nodes: tuple[str, ...]) -> NodesToCheck:
    """Return the named nodes of a file, or the nodes that run on this machine.

    A node runs on this machine if the machine has its addresses. Raises `TopologyError`, and `UsageError` without any
    node.
    """
    topology = load_checked(file)
    everybody = plan_all(topology)
    chosen = [plan_node(topology, name) for name in nodes] or list(everybody.values())
    here = [plan for plan in chosen if nodes or runs_here(plan)]
    if not here:
        raise UsageError(
            f"no node of {file} has an address of this machine",
            remedy="name a node with --node to check it here, or run pgm doctor on the nodes' machines",
        )
    names = {plan.name for plan in here}
    uses = uses_of(everybody | {plan.name: plan for plan in here})
    return NodesToCheck(here, [plan.name for plan in chosen if plan.name not in names], uses)


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--node", "nodes", multiple=True, help="Check only this node; may be given several times.")
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
def doctor(
    file: Path | None, nodes: tuple[str, ...], shows_all: bool, probes: bool, listen: float, as_json: bool
) -> None:
    """Check this machine for the nodes of a topology FILE whose addresses this machine has.

    \b
    pgm doctor                              # without a file: only the machine
    pgm doctor tree.toml
    pgm doctor tree.toml --node desk-7 --all
    pgm doctor tree.toml --probe --listen 10 # on several machines
    pgm doctor tree.toml --json | jq '.checks[] | select(.level != "ok")'

    The command opens each node's sockets as the node would, and closes them. The network checks cover interfaces, MTU,
    routes, offloads, pause frames, snooping bridges and reverse path filters. The machine checks cover kernel limits,
    memory, folders, clocks, processors and installed packages. Each line has the reading, the wanted value and the
    command that corrects the reading. With --probe the command sends multicast on the segments. Running nodes count these packets as rejected.
    An advice concerns speed or rare losses. With a fault, a node does not start, or loses packets.

    The exit status is 0 without a fault, else 1.
    """
    if listen and not probes:
        raise UsageError("--listen needs --probe", remedy="for example: pgm doctor tree.toml --probe --listen 10")
    if file is None and (nodes or probes):
        raise UsageError(
            "--node and --probe need a topology file", remedy="for example: pgm doctor tree.toml --node desk-7"
        )
    patients = NodesToCheck([], [], {}) if file is None else patients_of(file, nodes)
    findings = list(check_machine(patients.plans))
    findings += check_nodes(patients.plans, patients.uses) if file else check_interfaces(multicast_interfaces())
    if probes:
        findings += _probed(patients, listen)
    faults = sum(one.level is Level.FAULT for one in findings)
    if as_json:
        print_json(_as_json(patients, findings))
    else:
        _print(patients, findings, shows_all=shows_all)
    if faults:
        sys.exit(EXIT_FAILED)


def _probed(patients: NodesToCheck, listen_s: float) -> list[HostFinding]:
    segments = [one for plan in patients.plans for one in plan.segments]
    found = {one.name: one for one in segments if one.peers is None and has_interface(one)}
    return list(probe({one: patients.uses[name].packet for name, one in found.items()}, listen_s, _heard))


def _heard(segment: str, host: str) -> None:
    warn(f"heard {host} on {segment}")


def _as_json(patients: NodesToCheck, findings: list[HostFinding]) -> dict[str, object]:
    rows = [{**attrs.asdict(one), "level": one.level.value} for one in findings]
    return {
        "ok": all(one.level is not Level.FAULT for one in findings),
        "nodes": [plan.name for plan in patients.plans],
        "elsewhere": patients.elsewhere,
        "checks": rows,
    }


def _print(patients: NodesToCheck, findings: list[HostFinding], *, shows_all: bool) -> None:
    order = (Level.OK, Level.ADVICE, Level.FAULT)
    lines = sorted(lines_of(findings), key=lambda line: order.index(line.finding.level))
    for line in lines:
        one = line.finding
        if one.level is Level.OK and not shows_all:
            continue
        wanted = f"; wanted: {one.wanted}" if one.wanted else ""
        print(f"{one.level.value}: {one.check} ({line.about}): {one.found}{wanted}")
        if one.remedy:
            print(f"  remedy: {one.remedy}")
    counts = {level: sum(line.finding.level is level for line in lines) for level in order}
    print(f"{counts[Level.OK]} ok, advice: {counts[Level.ADVICE]}, faults: {counts[Level.FAULT]}")
    if patients.elsewhere:
        more = len(patients.elsewhere) - _MOST_NAMES
        named = ", ".join(patients.elsewhere[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        warn(f"not checked, because this machine does not have their addresses: {named}")
