"""Admission of the other end of a connection, by the first name of its certificate."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pgm.errors import PeerRefused
from pgm.mutual_tls.members import TlsPeer
from pgm.mutual_tls.names import key_id_of_untrusted
from pgm.mutual_tls.refusals import Refusals

if TYPE_CHECKING:
    from pgm.mutual_tls.identity import TlsIdentity

_MOST_SHOWN = 80  # characters of a wrong name in a message


class PeerGate:
    """Nodes that may connect: those with `names` or patterns, or all nodes of the file. Refusals are counted."""

    def __init__(self, identity: TlsIdentity, names: tuple[str, ...] = (), refusals: Refusals | None = None) -> None:
        """Raise `UsageError` for a name that no node with keys has."""
        identity.ring().members.require(names)
        self.names = names
        self.refusals = Refusals() if refusals is None else refusals
        self.identity = identity

    def admit_untrusted(self, name: str) -> TlsPeer:
        """Return the node of a certificate that has been verified, by its first name. Raises `PeerRefused`."""
        key_id = key_id_of_untrusted(name)
        if key_id is not None:
            return self._peer_untrusted(key_id)
        error = PeerRefused(
            "unnamed",
            f"a certificate begins with the name {name[:_MOST_SHOWN]!r}, which is not that of its keys",
            remedy="let pgm make the certificate (docs/guide/security.md)",
        )
        self.refusals.add(error)
        raise error

    def still_admits(self, peer: TlsPeer) -> bool:
        """Return whether a peer may go on: the file as it is now has its keys, and they are valid."""
        try:
            self._peer_untrusted(peer.key_id)
        except PeerRefused:
            return False
        return True

    def _peer_untrusted(self, key_id: str) -> TlsPeer:
        try:
            return self.identity.ring().members.peer_of_untrusted(key_id, datetime.now(UTC).date(), self.names)
        except PeerRefused as error:
            self.refusals.add(error)
            raise

    def refuse_handshake(self, reason: str, detail: str) -> None:
        """Count a handshake that failed."""
        text = f"a TLS handshake failed: {detail or reason.lower().replace('_', ' ')}"
        remedy = "both ends need keys in the same topology file: pgm keys check FILE"
        self.refusals.add(PeerRefused("handshake", text, remedy=remedy))
