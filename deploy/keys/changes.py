"""Changes of a node's keys: new ones, rotation and revocation, as an edit of the topology file and a private file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from deploy.keys.topology_edit import quoted, replace_file, with_keys, with_revoked
from pgm.errors import KeyRefused, UsageError
from pgm.net.keys.key_directory import KeyPlace
from pgm.net.keys.key_files import need_cryptography, read_private_file, write_private_file
from pgm.own_files import forbid_core_dumps
from pgm.topology.model import Topology
from pgm.trust.public_keys import PublicKeys, is_key_id

if TYPE_CHECKING:
    from pgm.trust.private_keys import PrivateFile

Edit = Callable[[str], str]


@attrs.frozen
class KeyChange:
    """One change: the edit of the topology file, the text to paste instead, and the new private file, if any."""

    node: str
    edit: Edit
    paste: tuple[str, ...]  # lines for the topology file, with comments that say where they go
    keys: PublicKeys | None = None  # the new keys
    removed: tuple[str, ...] = ()  # ids of keys that the node no longer lists
    private: PrivateFile | None = attrs.field(default=None, repr=False)


def new_keys(topology: Topology, place: KeyPlace, days: int, day: date) -> KeyChange:
    """Make the first keys of a node. Raises `UsageError` for a node with keys, or with private files without a line."""
    listed = topology.keys.get(place.node, ())
    if listed:
        raise UsageError(
            f"{place.node} has keys: {', '.join(keys.id for keys in listed)}",
            remedy=f"replace them with: pgm keys rotate FILE --node {place.node} --write",
        )
    forgotten = sorted(set(place.held()) - set(topology.revoked))
    if forgotten:
        raise UsageError(
            f"{place.node} has the private file {place.path_of(forgotten[0])}, which no line of the file names",
            remedy=f"paste its line from: pgm keys show FILE --node {place.node}; or remove the file",
        )
    private = _made(place, days, day)
    return _with_private(place.node, (), private)


def next_keys(topology: Topology, place: KeyPlace, days: int, day: date) -> KeyChange:
    """Make the next keys of a node, which are valid beside the current ones. Raises `UsageError`."""
    listed = _listed(topology, place.node)
    if len(listed) > 1:
        raise UsageError(
            f"a rotation of {place.node} is under way: {listed[0].id} to {listed[1].id}",
            remedy="end it with --finish, once all hosts have the file with both keys",
        )
    held = place.held()
    if listed[0].id not in held:
        raise UsageError(
            f"the private keys {listed[0].id} of {place.node} are not in {place.directory}",
            remedy="run the command on the node's host; lost keys are replaced by: pgm keys revoke, then pgm keys new",
        )
    read_private_file(place, held[listed[0].id])
    return _with_private(place.node, listed, _made(place, days, day))


def finished_rotation(topology: Topology, node: str) -> KeyChange:
    """Remove the former keys of a node, so that the next ones are the current ones. Raises `UsageError`."""
    listed = _listed(topology, node)
    if len(listed) < 2:
        raise UsageError(
            f"{node} has no next keys", remedy=f"make them with: pgm keys rotate FILE --node {node} --write"
        )
    left = (listed[1].line,)
    return KeyChange(
        node,
        lambda text: with_keys(text, node, left),
        ("# in the table [keys], in place of the entry:", *_entry(node, left)),
        removed=(listed[0].id,),
    )


def revocation(topology: Topology, node: str | None, key_id: str | None, reason: str, day: date) -> KeyChange:
    """Revoke the only keys of a node, or keys by their id. Raises `UsageError`."""
    owner, key_id = _to_revoke(topology, node, key_id)
    if key_id in topology.revoked:
        raise UsageError(f"the keys {key_id} are revoked: {topology.revoked[key_id]}", remedy="nothing is left to do")
    about = f"{day} {owner or 'unknown node'}" + (f": {reason}" if reason else "")
    left = tuple(keys.line for keys in topology.keys.get(owner, ()) if keys.id != key_id)
    is_listed = any(keys.id == key_id for keys in topology.keys.get(owner, ()))

    def edit(text: str) -> str:
        return with_revoked(with_keys(text, owner, left) if is_listed else text, key_id, about)

    paste = ["# in the table [revoked]:", f"{key_id} = {quoted(about)}"]
    if is_listed:
        kept = _entry(owner, left) if left else ["# (none: remove the entry)"]
        paste += [f"# in the table [keys], in place of the entry of {owner}:", *kept]
    return KeyChange(owner, edit, tuple(paste), removed=(key_id,))


def apply(change: KeyChange, file: Path, place: KeyPlace | None, *, write: bool) -> Path | None:
    """Write the private file of a change, if it has one, and then the topology file if asked. Return the former's path.

    The edit is made first, so that a file that cannot be edited leaves no private file. Raises `UsageError`,
    `KeyRefused`, `ProcessError` and `OSError`.
    """
    before = file.read_bytes()
    after = change.edit(before.decode()).encode() if write else before
    if write and not os.access(file.resolve().parent, os.W_OK):
        raise UsageError(f"{file}: its folder is not writable", remedy="leave out --write, and paste the lines")
    path = None
    if change.private is not None and place is not None:
        path = write_private_file(place, change.private)
    if write:
        replace_file(file, before, after)
    return path


def _listed(topology: Topology, node: str) -> tuple[PublicKeys, ...]:
    listed = topology.keys.get(node, ())
    if not listed:
        raise UsageError(f"{node} has no keys", remedy=f"make them with: pgm keys new FILE --node {node} --write")
    return listed


def _to_revoke(topology: Topology, node: str | None, key_id: str | None) -> tuple[str, str]:
    """Return the owner of the keys to revoke, or an empty name, and their id."""
    if key_id is None:
        if node is None:
            raise UsageError("nothing to revoke is named", remedy="name a node with --node, or keys with --key ID")
        listed = _listed(topology, node)
        if len(listed) > 1:
            ids = " or ".join(keys.id for keys in listed)
            raise UsageError(f"{node} has two pairs of keys", remedy=f"choose one with --key: {ids}")
        return node, listed[0].id
    if not is_key_id(key_id):
        raise UsageError(f"--key {key_id} is no id of keys", remedy="the id is the second word of their line")
    owner = next((name for name, lines in topology.keys.items() if any(keys.id == key_id for keys in lines)), "")
    if node is not None and owner not in ("", node):
        raise KeyRefused(f"the keys {key_id} are those of {owner}, not of {node}", remedy=f"write --node {owner}")
    return owner or node or "", key_id


def _made(place: KeyPlace, days: int, day: date) -> PrivateFile:
    need_cryptography()
    from pgm.trust.private_keys import SECRET_OCTETS, PrivateFile, PrivateKeys

    forbid_core_dumps()
    keys = PrivateKeys.of_secret(secrets.token_bytes(SECRET_OCTETS), day, day + timedelta(days=days))
    return PrivateFile(place.tree, place.node, keys)


def _with_private(node: str, listed: tuple[PublicKeys, ...], private: PrivateFile) -> KeyChange:
    lines = (*(keys.line for keys in listed), private.keys.public.line)
    where = "in place of the entry" if listed else "which comes last in the file if it is missing"
    return KeyChange(
        node,
        lambda text: with_keys(text, node, lines),
        (f"# in the table [keys], {where}:", *_entry(node, lines)),
        keys=private.keys.public,
        private=private,
    )


def _entry(node: str, lines: tuple[str, ...]) -> list[str]:
    return [f'"{node}" = [', *(f'  "{line}",' for line in lines), "]"]
