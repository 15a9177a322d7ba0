"""Members and identities by the topology file of a tree."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pgm.mutual_tls.identity import TlsIdentity, private_keys_of
from pgm.mutual_tls.members import TreeMembers
from pgm.mutual_tls.refusals import Tell, tell_nobody
from pgm.topology.load import load


def members_of_file(file: Path) -> TreeMembers:
    """Read the members of a topology file. Raises `TopologyError`."""
    topology = load(file)
    return TreeMembers(topology.name, dict(topology.keys), dict(topology.revoked))


def identity_of_files(topology: str | Path, key_file: str | Path, tell: Tell = tell_nobody) -> TlsIdentity:
    """Return the identity of the owner of a private file. Raises `TopologyError`, `KeyRefused` and `OSError`."""
    file = Path(topology)
    return TlsIdentity(lambda: members_of_file(file), partial(private_keys_of, Path(key_file)), file, tell)
