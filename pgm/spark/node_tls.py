"""Mutual TLS between the jobs of Spark and range services, by the keys of nodes. The driver sends public keys alone to executors."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from pgm.errors import KeyRefused, PgmError
from pgm.mutual_tls.members import TreeMembers
from pgm.spark.errors import BadOption

if TYPE_CHECKING:
    from pgm.mutual_tls.identity import TlsIdentity, TlsMaterial

_INSTALL = "pip install 'pgm-repair-network[trust]'"

_lock = threading.Lock()
_identities: dict[NodeTls, TlsIdentity] = {}


@attrs.frozen
class NodeTls:
    """Nodes that may be services, and the path of a private file that each executor has."""

    members: TreeMembers = attrs.field(eq=False)
    services: tuple[str, ...]
    key_file: str
    key_ids: frozenset[str]  # of the members; they tell two versions of a file apart

    @classmethod
    def of_file(cls, topology: Path, services: tuple[str, ...], key_file: str) -> NodeTls:
        """Read a topology file on the driver, whose private file is there, too.

        Raises `TopologyError`, `KeyRefused`, `OSError`, `UsageError`, and `ImportError` without the packages of the extra.
        """
        from pgm.mutual_tls.identity import private_keys_of
        from pgm.mutual_tls.tree_file import members_of_file

        members = members_of_file(topology)
        members.require(services)
        own = private_keys_of(Path(key_file), members)
        node = members.by_id[own.public.id][0]
        members = members.only((*services, node)) if services else members
        return cls(members, services, key_file, frozenset((*members.by_id, *members.revoked)))

    def material(self) -> TlsMaterial:
        """Return the certificate of this process and the authorities of the services. Raises `BadOption`."""
        try:
            from pgm.mutual_tls.identity import TlsIdentity

            with _lock:
                if self not in _identities:
                    _identities[self] = TlsIdentity.of_members(self.members, self.key_file)
                return _identities[self].material(self.services)
        except KeyRefused as error:
            raise BadOption(f"option keys: {error.message}", remedy=error.remedy) from None
        except ImportError as error:
            raise BadOption(f"option mutualTls: an executor lacks {error.name}", remedy=_INSTALL) from None


def node_tls_of(topology: str, services: tuple[str, ...], key_file: str) -> NodeTls:
    """Return the keys of options. Raises `ValueError` with the reason."""
    try:
        return NodeTls.of_file(Path(topology), services, key_file)
    except (PgmError, OSError) as error:
        raise ValueError(str(error)) from None
    except ImportError as error:
        raise ValueError(f"the driver lacks {error.name}; install it there and on all executors: {_INSTALL}") from None
