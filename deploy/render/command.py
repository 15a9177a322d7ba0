"""The command `pgm render`: files for other programs from a topology."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import click

from deploy.render.grafana import grafana_files
from deploy.render.kubernetes import kubernetes_files
from deploy.render.prometheus import prometheus_files
from deploy.render.systemd import agent_unit_name, agent_unit_text, systemd_files
from deploy.terminal.completion import node_names
from deploy.terminal.options import FOLDER, topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.topology.check import load_checked
from pgm.topology.node_plan import Role
from pgm.topology.plan import plan_all, plan_node

_SYSTEMD, _PROMETHEUS, _GRAFANA, _KUBERNETES, _MULTUS = (
    "systemd", "prometheus", "grafana", "kubernetes", "kubernetes-multus"
)  # fmt: skip
_CHECKS = {
    _SYSTEMD: "check the units with: systemd-analyze verify {0}/*.service",
    _PROMETHEUS: "check the rules with: promtool check rules {0}/pgm-alarms.yml",
    _GRAFANA: "import the dashboard: Dashboards, New, Import",
    _KUBERNETES: "check the manifests with: kubectl apply --dry-run=server -f {0}",
    _MULTUS: "check the manifests with: kubectl apply --dry-run=server -f {0}",
}


def _own_command() -> str:
    """Return the path of this command: the script beside the interpreter, or else the path of this call."""
    beside = Path(sys.executable).with_name("pgm")
    return str(beside if beside.exists() else Path(sys.argv[0]).resolve())


def _own_image() -> str:
    return f"pgm:{importlib.metadata.version('pgm-repair-network')}"


@click.command()
@topology_file
@click.option(
    "--format", "form", type=click.Choice(list(_CHECKS)), default=_SYSTEMD, show_default=True, help="Kind of files."
)
@click.option(
    "--node", "nodes", multiple=True, shell_complete=node_names, help="Only the unit of this node; may be repeated."
)
@click.option("--out", "output", type=FOLDER, help="Write files into this folder instead of printing them.")
@click.option("--output", "former", type=FOLDER, hidden=True)
@click.option(
    "--command",
    "executable",
    default=_own_command,
    show_default="this one",
    metavar="PATH",
    help="Path of the pgm command on the hosts, for units.",
)
@click.option(
    "--image", default=_own_image, show_default="pgm:VERSION", help="Container image with the pgm command, for pods."
)
@click.option(
    "--runbooks",
    default="docs/guide/alarms.md",
    show_default=True,
    metavar="URL",
    help="Address of the page of alarms, for rules.",
)
@command
def render(
    file: Path,
    form: str,
    nodes: tuple[str, ...],
    output: Path | None,
    former: Path | None,
    as_json: bool,
    **words: str,
) -> None:
    """Write files for other programs that run or watch the nodes of a topology FILE.

    \b
    pgm render tree.toml --node floor-2-repairer
    pgm render tree.toml --out units && systemd-analyze verify units/*.service
    pgm render tree.toml --format prometheus --out /etc/prometheus
    pgm render tree.toml --format kubernetes | kubectl apply -f -

    systemd: a unit for each element and receiver, one for the agent of each host, and the kernel settings. Sources are usually applications, so
    that a source has no unit unless it is named with --node. The unit of a receiver counts and logs messages; an
    application uses pgm.open_receiver instead. The topology file must have the same path on all hosts.

    prometheus: alarms over the series of pgm monitor and pgm agent. grafana: a dashboard of the same series.

    kubernetes: a DaemonSet that runs on each host the nodes with an address of that host, in the network of the host.
    kubernetes-multus: the same with an own interface of the pods in each segment.
    """
    if former is not None:
        warn("the option --output is now --out")
    output = output or former
    files = _files(file, form, nodes, words)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (output / name).write_text(text)
        count = f"{len(files)} files" if len(files) != 1 else "1 file"
        warn(f"wrote {count} to {output}; {_CHECKS[form].format(output)}")
    if as_json:
        print_json(files if output is None else {"written": [str(output / name) for name in files]})
    elif output is None and len(files) == 1:
        print(*files.values())
    elif output is None:
        for name, text in files.items():
            print(f"### {name}\n{text}")


def _files(file: Path, form: str, nodes: tuple[str, ...], words: dict[str, str]) -> dict[str, str]:
    """Return the files of a format by name. Raises `UsageError`."""
    topology = load_checked(file)
    if nodes and form != _SYSTEMD:
        raise UsageError(f"--node does not apply to --format {form}", remedy="omit --node")
    if form == _PROMETHEUS:
        return prometheus_files(words["runbooks"])
    if form == _GRAFANA:
        return grafana_files()
    if form in (_KUBERNETES, _MULTUS):
        own = form == _MULTUS
        return kubernetes_files(topology, plan_all(topology), file, words["image"], has_own_networks=own)
    plans = [plan_node(topology, node) for node in nodes] or [
        plan for plan in plan_all(topology).values() if plan.role is not Role.SOURCE
    ]
    if not plans:
        raise UsageError(f"{file} has nothing but sources", remedy="name them with --node")
    absolute, executable = file.resolve(), words["executable"]
    units = systemd_files(plans, absolute, executable)
    if nodes:
        return units
    everybody = plan_all(topology).values()
    return units | {agent_unit_name(topology.name): agent_unit_text(everybody, topology.name, absolute, executable)}
