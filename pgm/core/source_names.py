"""Names of the nodes that sessions come from.

A source of a topology file derives its global source id from the names of stream, node and topology. A node of the same
file thus knows the source of a session by its TSI, also behind relays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import attrs

from pgm.wire.formats import Tsi, tsi_text

GSI_OCTETS = 6


def gsi_of(name: str) -> bytes:
    """Return the global source id of a name: the last six octets of its MD5 (W-13)."""
    return hashlib.md5(name.encode(), usedforsecurity=False).digest()[-GSI_OCTETS:]


class NamedTsi(bytes):
    """TSI with the name of its source; `node` is empty for a source that no topology names.

    Its text is the usual spelling: six decimal octets, and the data-source port.
    """

    node: str

    @classmethod
    def of(cls, tsi: Tsi, node: str) -> NamedTsi:
        """Return a TSI with the name of its source."""
        named = cls(tsi)
        named.node = node
        return named

    def __str__(self) -> str:
        return tsi_text(self)

    __repr__ = __str__


def node_of(tsi: Tsi) -> str:
    """Return the name of a session's source, or "" if no topology names it."""
    return tsi.node if isinstance(tsi, NamedTsi) else ""


def source_of(tsi: Tsi) -> str:
    """Return the name of a session's source, or else its global source id, spelled as in a TSI."""
    return node_of(tsi) or tsi_text(tsi).rpartition(".")[0]


@attrs.frozen
class SourceNames:
    """Sources that a node knows from its topology: by global source id, or as the only source of a data port."""

    by_gsi: Mapping[bytes, str] = attrs.Factory(dict)
    by_port: Mapping[int, str] = attrs.Factory(dict)

    def named(self, tsi: Tsi, data_port: int) -> NamedTsi:
        """Return a TSI with the name of its source."""
        return NamedTsi.of(tsi, self.by_gsi.get(tsi[:GSI_OCTETS]) or self.by_port.get(data_port, ""))


NO_NAMES = SourceNames()


class FromSession:
    """Item of a session, which has a source."""

    __slots__ = ()
    tsi: Tsi

    @property
    def source(self) -> str:
        """Return the name of the source node, also behind relays; for a source without a topology its GSI."""
        return source_of(self.tsi)
