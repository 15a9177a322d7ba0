"""Systemd units and kernel settings of the nodes of a topology."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from string import Template

from deploy.terminal.exit_codes import EXIT_USAGE
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import MIB, SECOND

_BASE_OCTETS = 192 * MIB  # interpreter, libraries, socket buffers and the first chunks of the arena
_RECORDER_OCTETS = 256 * MIB  # the process that writes an archive, with Arrow
_STOP_SLACK_S = 10
_SECRETS = "/etc/pgm"  # folder of the token and the certificate of an agent
_CREDENTIALS = (("--token-file", "token"), ("--tls-cert", "agent.pem"), ("--tls-key", "agent-key.pem"))
_STATE = "/var/lib/"  # systemd creates folders below it for a service without a permanent user


def template(name: str) -> Template:
    """Return a file of deploy/templates."""
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


def stop_seconds(plan: NodePlan) -> int:
    """Return how long a node may take to stop: a source serves repairs for a while before it leaves."""
    return _STOP_SLACK_S + (plan.parameters.txw_secs // SECOND if plan.role is Role.SOURCE else 0)


def unit_name(plan: NodePlan) -> str:
    """Return the file name of a node's unit."""
    return f"pgm-{plan.topology}-{plan.name}.service"


def unit_text(plan: NodePlan, file: Path, executable: str) -> str:
    """Return the text of the systemd unit of one node."""
    needs_raw = any(segment.transport == "ip" for segment in plan.segments)
    verb = "record" if plan.role is Role.RECEIVER and plan.record_directory is not None else "run"
    return template("node.service").substitute(
        node=plan.name,
        topology=plan.topology,
        role=plan.role.value,
        file=file,
        command=" ".join(_quoted(word) for word in (executable, verb, str(file), "--node", plan.name)),
        sandbox=_sandbox(executable, file, needs_raw=needs_raw),
        watchdog=plan.parameters.watchdog_ivl // SECOND,
        usage=EXIT_USAGE,
        stop_s=stop_seconds(plan),
        memory=f"{memory_of(plan) // MIB + 1}M",
        folders=_folders_of(plan),
    )


def agent_unit_name(topology: str) -> str:
    """Return the file name of the unit of a host's agent."""
    return f"pgm-agent-{topology}.service"


def agent_unit_text(plans: Iterable[NodePlan], topology: str, file: Path, executable: str) -> str:
    """Return the text of the systemd unit of a host's agent.

    An agent that other hosts reach gets its token and certificate as credentials, because they are root's. An agent of
    a tree on loopback needs none.
    """
    addresses = [ip_address(seat.address) for plan in plans for seat in plan.segments if seat.address is not None]
    is_local = bool(addresses) and all(address.is_loopback for address in addresses)
    words = [_quoted(word) for word in (executable, "agent", str(file))]
    if not is_local:
        words += ["--bind", "::" if any(address.version == 6 for address in addresses) else "0.0.0.0"]
        words += [word for option, name in _CREDENTIALS for word in (option, f"%d/{name}")]
    loaded = "" if is_local else "\n".join(f"LoadCredential={name}:{_SECRETS}/{name}" for _, name in _CREDENTIALS)
    return template("agent.service").substitute(
        topology=topology,
        file=file,
        command=" ".join(words),
        credentials=loaded,
        usage=EXIT_USAGE,
        sandbox=_sandbox(executable, file, needs_raw=False),
    )


def _sandbox(executable: str, file: Path, *, needs_raw: bool) -> str:
    """Return the unit's lines about rights, without the last newline."""
    text = template("sandbox.txt").substitute(
        capabilities="CAP_NET_RAW" if needs_raw else "",
        private_users="no" if needs_raw else "yes",  # a capability of a user namespace opens no raw socket
        home="read-only" if _is_at_home(executable, str(file)) else "yes",
    )
    return text.rstrip("\n")


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


def sysctl_text(plans: Sequence[NodePlan], file: Path) -> str:
    """Return the kernel settings for the largest socket buffers of the nodes."""
    return template("sysctl.conf").substitute(
        topology=plans[0].topology,
        file=file,
        rmem=max(plan.parameters.so_rcvbuf for plan in plans),
        wmem=max(plan.parameters.so_sndbuf for plan in plans),
    )


def systemd_files(plans: Sequence[NodePlan], file: Path, executable: str) -> dict[str, str]:
    """Return the units of nodes and the kernel settings, by file name."""
    units = {unit_name(plan): unit_text(plan, file, executable) for plan in plans}
    return units | {"60-pgm.conf": sysctl_text(plans, file)}
