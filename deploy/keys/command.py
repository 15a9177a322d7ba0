"""The command `pgm keys`: make, check, show, rotate and revoke the keys of nodes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from deploy.keys.changes import KeyChange, apply, finished_rotation, new_keys, next_keys, revocation
from deploy.keys.inspection import KeyReport, NodeReport, half_secured, inspect_nodes
from deploy.terminal.completion import node_names
from deploy.terminal.exit_codes import EXIT_FAILED
from deploy.terminal.options import FOLDER, option, topology_file
from deploy.terminal.output import command, print_json, warn
from pgm.errors import UsageError
from pgm.net.keys.key_directory import KeyPlace, place_of
from pgm.net.keys.start_check import today
from pgm.topology.load import load
from pgm.topology.model import Topology
from pgm.topology.plan import check_node_name
from pgm.trust.public_keys import KeyState

_DAYS = 730
_MOST_DAYS = 36_500
# Options with the actions that read them.
_READ_BY = {"finish": ("rotate",), "key_id": ("revoke",), "reason": ("revoke",), "write": ("new", "rotate", "revoke")}
_SPELLING = {"finish": "--finish", "key_id": "--key", "reason": "--reason", "write": "--write"}


@click.command()
@click.argument("action", type=click.Choice(["new", "check", "show", "rotate", "revoke"]))
@topology_file
@click.option(
    "--node",
    shell_complete=node_names,
    help="Name of the node in the file, or of one node of a pattern, such as desk-7.",
)
@click.option("--write", is_flag=True, help="Change FILE, instead of printing the lines to paste.")
@click.option("--key-dir", type=FOLDER, help="Folder of the private files, instead of the usual one.")
@option("--days", type=click.IntRange(1, _MOST_DAYS), default=_DAYS, help="new, rotate: validity in days, from today.")
@click.option("--finish", is_flag=True, help="rotate: remove the former keys, once all hosts have the file with both.")
@click.option("--key", "key_id", metavar="ID", help="revoke: the keys with this id.")
@click.option("--reason", help="revoke: a text for the file.")
@command
def keys(action: str, file: Path, as_json: bool, **options: Any) -> None:
    """Make and manage the keys of the nodes of a topology FILE.

    \b
    pgm keys new tree.toml --node exchange --write      # on the node's host
    pgm keys check tree.toml                            # all nodes
    pgm keys check tree.toml --node exchange            # its private file is here
    pgm keys show tree.toml --node exchange
    pgm keys rotate tree.toml --node exchange --write
    pgm keys rotate tree.toml --node exchange --finish --write
    pgm keys revoke tree.toml --node desk-7 --reason stolen --write

    A node has an Ed25519 key to sign and an X25519 key to agree on secrets. `new` writes the private file with mode 0600
    on this host, and the public line into FILE. FILE is the authority: copy it to all hosts after each change.
    `rotate` adds the next keys, which are valid beside the current ones, and `rotate --finish` removes the former ones.
    `revoke` moves keys to the table of revoked keys: a node that has no others does not start.

    Private files lie in --key-dir, $PGM_KEY_DIR, `key_directory` of FILE, or ~/.config/pgm/keys. A file that other
    users can read is refused. The command needs pip install 'pgm-repair-network[trust]'. See docs/guide/security.md.

    Exits with 1 if `check` finds a fault, with 2 for a wrong file or wrong usage.
    """
    for name, actions in _READ_BY.items():
        if options[name] and action not in actions:
            raise UsageError(
                f"{_SPELLING[name]} is an option of `{'`, `'.join(actions)}`, not of `{action}`",
                remedy=f"leave out {_SPELLING[name]}",
            )
    # A file that breaks a rule is taken, too: a signed stream whose source has no keys yet breaks one.
    topology = load(file)
    if action in ("check", "show"):
        reports = inspect_nodes(topology, options["node"], options["key_dir"], today())
        lacking = half_secured(topology) if options["node"] is None else []
        sys.exit(_tell(topology, reports, lacking, action, as_json=as_json))
    _change(topology, file, action, options, as_json=as_json)


def _change(topology: Topology, file: Path, action: str, options: dict[str, Any], *, as_json: bool) -> None:
    place = None
    if action == "revoke":
        change = revocation(topology, options["node"], options["key_id"], options["reason"] or "", today())
    else:
        place = _place(topology, options)
        if options["finish"]:
            change = finished_rotation(topology, place.node)
        else:
            make = new_keys if action == "new" else next_keys
            change = make(topology, place, options["days"], today())
    path = apply(change, file, place, write=options["write"])
    if as_json:
        print_json(_as_json(action, topology, change, path, is_written=options["write"]))
        return
    if path is not None:
        print(f"private file: {path}")
    if options["write"]:
        print(f"{file}: {_said(action, change)}; copy the file to all hosts")
    else:
        print("\n".join(change.paste))
        warn(f"{file} is unchanged: paste the lines above, or repeat the command with --write")


def _place(topology: Topology, options: dict[str, Any]) -> KeyPlace:
    """Return the private files of the named node. Raises `UsageError`, and `TopologyError` for an unknown node."""
    if options["node"] is None:
        raise UsageError(f"{topology.path} has many nodes", remedy="name one with --node NAME")
    check_node_name(topology, options["node"])
    return place_of(topology.name, options["node"], topology.key_directory, options["key_dir"])


def _said(action: str, change: KeyChange) -> str:
    if change.keys is not None:
        kind = "keys" if action == "new" else "next keys"
        return f"{kind} {change.keys.id} of {change.node}, until {change.keys.end_day}"
    verb = "revoked" if action == "revoke" else "removed"
    return f"{verb} {', '.join(change.removed)} of {change.node or 'no listed node'}"


def _as_json(
    action: str, topology: Topology, change: KeyChange, path: Path | None, *, is_written: bool
) -> dict[str, Any]:
    made = change.keys
    return {
        "action": action,
        "topology": topology.name,
        "node": change.node,
        "id": made and made.id,
        "line": made and made.line,
        "first_day": made and str(made.first_day),
        "end_day": made and str(made.end_day),
        "private_file": path and str(path),
        "removed": list(change.removed),
        "paste": list(change.paste),
        "written": is_written,
    }


def _tell(topology: Topology, reports: list[NodeReport], lacking: list[str], action: str, *, as_json: bool) -> int:
    """Print the reports, and return the exit code: `show` judges nothing."""
    is_good = not lacking and not any(report.faults for report in reports)
    code = 0 if is_good or action == "show" else EXIT_FAILED
    if as_json:
        rows = [report.row() for report in reports]
        print_json({"ok": is_good, "topology": topology.name, "half_secured": lacking, "nodes": rows})
        return code
    for report in reports:
        if action == "show":
            _show(report)
        else:
            _judge(report)
    if action == "show":
        return code
    if lacking:
        print(f"half-secured: sources and elements without keys: {', '.join(lacking)}")
    elif not topology.keys:
        print(f"{topology.path}: no node has keys; make some with: pgm keys new {topology.path} --node NAME --write")
    else:
        print(f"{topology.path}: {'good' if is_good else 'has faults'}")
    return code


def _show(report: NodeReport) -> None:
    """Print the lines of a node, ready to paste, and the paths of its private files."""
    if not report.keys:
        print(f"# {report.node}: no keys")
        return
    print(f'"{report.node}" = [')
    for one in report.keys:
        where = "no private file here" if one.private is None else str(one.private)
        public = None if one.state is KeyState.REVOKED else one.public
        line = f"  # {one.id}" if public is None else f'  "{public.line}",'
        print(f"{line}  # {one.state.value}; {one.flaw or where}")
    print("]")


def _judge(report: NodeReport) -> None:
    head = f"{report.node} ({report.role.value})"
    print(f"{head}: {'; '.join(map(_spelled, report.keys)) or 'no keys'}")
    for text in report.faults:
        print(f"  fault: {text}")
    for text in report.advice:
        print(f"  advice: {text}")


def _spelled(one: KeyReport) -> str:
    until = "" if one.public is None else f" until {one.public.end_day}"
    return f"{one.id} {one.state.value}{until}, private file {'here' if one.private else 'elsewhere'}"
