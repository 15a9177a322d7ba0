"""The command `pgm render`: systemd units and kernel settings from a topology."""

from __future__ import annotations

import importlib.resources
import re
import sys
from pathlib import Path
from string import Template

import click

from deploy.terminal.exit_codes import EXIT_USAGE
from deploy.terminal.options import FOLDER, topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_all, plan_node
from pgm.units import MIB, SECOND

_BASE_OCTETS = 192 * MIB  # interpreter, libraries, socket buffers and the first chunks of the arena
_RECORDER_OCTETS = 256 * MIB  # the process that writes an archive, with Arrow
_STOP_SLACK_S = 10
_STATE = "/var/lib/"  # systemd creates folders below it for a service without a permanent user


def _template(name: str) -> Template:
    return Template(importlib.resources.files("deploy").joinpath("templates", name).read_text())


def memory_of(plan: NodePlan) -> int:
    """Return the memory in octets that a node needs at most by its limits, for the unit's MemoryMax."""
    parameters = plan.parameters
    if plan.role is Role.SOURCE:
        lasts_ns = parameters.txw_secs + parameters.txw_adv_secs
        held = parameters.txw_bytes or parameters.txw_max_rte * lasts_ns // SECOND
    elif plan.role is Role.RECEIVER:
        # One session per stream with a full receive window behind a gap, and one message in reassembly.
        held = parameters.inbox_bytes + len(plan.streams) * (parameters.rxw_bytes + parameters.max_apdu)
    else:
        held = parameters.cache_bytes if plan.role is Role.REPAIRER else parameters.relay_cache_bytes
    if plan.record_directory is not None:
        held += _RECORDER_OCTETS + parameters.record_queue_bytes + parameters.record_batch_bytes
    return _BASE_OCTETS + held + held // 4


def unit_name(plan: NodePlan) -> str:
    """Return the file name of a node's unit."""
    return f"pgm-{plan.topology}-{plan.name}.service"


def unit_text(plan: NodePlan, file: Path, executable: str) -> str:
    """Return the text of the systemd unit of one node."""
    stop_s = _STOP_SLACK_S + (plan.parameters.txw_secs // SECOND if plan.role is Role.SOURCE else 0)
    needs_raw = any(segment.transport == "ip" for segment in plan.segments)
    verb = "record" if plan.role is Role.RECEIVER and plan.record_directory is not None else "run"
    return _template("node.service").substitute(
        node=plan.name,
        topology=plan.topology,
        role=plan.role.value,
        file=file,
        command=" ".join(_quoted(word) for word in (executable, verb, str(file), "--node", plan.name)),
        capabilities="CAP_NET_RAW" if needs_raw else "",
        private_users="no" if needs_raw else "yes",  # a capability of a user namespace opens no raw socket
        home="read-only" if _is_at_home(executable, str(file)) else "yes",
        watchdog=plan.parameters.watchdog_ivl // SECOND,
        usage=EXIT_USAGE,
        stop_s=stop_s,
        memory=f"{memory_of(plan) // MIB + 1}M",
        folders=_folders_of(plan),
    )


def _is_at_home(*paths: str) -> bool:
    """Return whether a path lies where `ProtectHome` hides everything."""
    return any(path.startswith(("/home/", "/root/", "/run/user/")) for path in paths)


def _folders_of(plan: NodePlan) -> str:
    """Return the unit's lines about the folders of archives, telemetry, the cache file and the private keys."""
    lines = []
    for folder in filter(None, (plan.record_directory, plan.telemetry, plan.cache_directory)):
        if folder.startswith(_STATE):
            lines.append(f"StateDirectory={_quoted(folder.removeprefix(_STATE))}")
        else:
            lines.append(f"ReadWritePaths={_quoted(folder)}")
    identity = plan.identity
    if identity.listed and identity.directory.startswith(_STATE):  # systemd makes the unit's user its owner
        lines.append(f"StateDirectory={_quoted(identity.directory.removeprefix(_STATE))}")
    return "\n".join(lines)


def _quoted(word: str) -> str:
    """Quote a word of a command line for systemd, with percent and dollar signs doubled."""
    word = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _own_command() -> str:
    """Return the path of this command: the script beside the interpreter, or else the path of this call."""
    beside = Path(sys.executable).with_name("pgm")
    return str(beside if beside.exists() else Path(sys.argv[0]).resolve())


def sysctl_text(plans: list[NodePlan], file: Path) -> str:
    """Return the kernel settings for the largest socket buffers of the nodes."""
    return _template("sysctl.conf").substitute(
        topology=plans[0].topology,
        file=file,
        rmem=max(plan.parameters.so_rcvbuf for plan in plans),
        wmem=max(plan.parameters.so_sndbuf for plan in plans),
    )


@click.command()
@topology_file
@click.option("--node", "nodes", multiple=True, help="Only this node; may be repeated.")
@click.option("--output", type=FOLDER, help="Write files into this folder instead of printing them.")
@click.option(
    "--command",
    "executable",
    default=_own_command,
    show_default="this one",
    metavar="PATH",
    help="Path of the pgm command on the hosts.",
)
@command
def render(file: Path, nodes: tuple[str, ...], output: Path | None, executable: str, as_json: bool) -> None:
    """Write a systemd unit for each element and receiver of a topology FILE, and the kernel settings for all.

    \b
    pgm render tree.toml --node floor-2-repairer
    pgm render tree.toml --output units && systemd-analyze verify units/*.service

    Sources are usually applications, so that a source has no unit unless it is named with --node. The unit of a receiver
    counts and logs messages; an application uses pgm.open_receiver instead. The topology file must have the same path on
    all hosts.
    """
    topology = load_checked(file)
    plans = [plan_node(topology, node) for node in nodes] or [
        plan for plan in plan_all(topology).values() if plan.role is not Role.SOURCE
    ]
    if not plans:
        raise UsageError(f"{file} has nothing but sources", remedy="name them with --node")
    absolute = file.resolve()
    files = {unit_name(plan): unit_text(plan, absolute, executable) for plan in plans}
    files["60-pgm.conf"] = sysctl_text(plans, absolute)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (output / name).write_text(text)
        warn(f"wrote {len(files)} files to {output}; check the units with: systemd-analyze verify {output}/*.service")
    if as_json:
        print_json(files if output is None else {"written": [str(output / name) for name in files]})
    elif output is None:
        for name, text in files.items():
            print(f"### {name}\n{text}")
