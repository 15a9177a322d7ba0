"""Identity of a node of this host for TLS, by its name and the folder of its private files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pgm.errors import KeyRefused
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import need_cryptography
from pgm.net.keys.start_check import keys_on, today
from pgm.topology.load import load
from pgm.trust.node_identity import NodeIdentity

if TYPE_CHECKING:
    from pgm.mutual_tls.identity import TlsIdentity
    from pgm.mutual_tls.members import TreeMembers
    from pgm.mutual_tls.refusals import Tell
    from pgm.trust.private_keys import PrivateKeys


def node_identity(topology: str | Path, node: str, tell: Tell | None = None) -> TlsIdentity:
    """Return the identity of a node of a topology file. Its private file is on this host.

    Raises `TopologyError`, `KeyRefused`, `OSError`, and `UsageError` without the packages of the extra.
    """
    need_cryptography()
    from pgm.mutual_tls.identity import TlsIdentity
    from pgm.mutual_tls.refusals import tell_nobody
    from pgm.mutual_tls.tree_file import members_of_file

    file = Path(topology)
    directory = load(file).key_directory

    def own(members: TreeMembers) -> PrivateKeys:
        identity = NodeIdentity(members.keys.get(node, ()), frozenset(members.revoked), directory)
        keys = keys_on(identity, place_of(members.tree, node, directory), today())
        if keys is None:
            raise KeyRefused(
                f"{node} has no keys in {file}", remedy=f"make keys: pgm keys new {file} --node {node} --write"
            )
        return keys

    return TlsIdentity(lambda: members_of_file(file), own, file, tell or tell_nobody)
