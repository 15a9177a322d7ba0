"""Check of Ed25519 signatures against the public keys of some nodes. The module needs `cryptography`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pgm.trust.public_keys import KeyState, PublicKeys, octets_of_key_id


class SignatureCheck:
    """Public keys of the nodes that may sign, without the revoked ones. Each counts on the days of its validity."""

    def __init__(self, signers: Iterable[PublicKeys], today: Callable[[], date]) -> None:
        self._today = today
        self._keys = {keys.id_octets: (keys, Ed25519PublicKey.from_public_bytes(keys.ed25519)) for keys in signers}

    def keys_of(self, key_id: str) -> PublicKeys | None:
        """Return the keys with an id if they are valid today."""
        known = self._keys.get(octets_of_key_id(key_id))
        return known[0] if known is not None and known[0].state_on(self._today()) is KeyState.VALID else None

    def __call__(self, key_id: bytes, signature: bytes, octets: bytes) -> bool:
        """Return whether the keys with this id are valid today and have signed the octets."""
        known = self._keys.get(key_id)
        if known is None or known[0].state_on(self._today()) is not KeyState.VALID:
            return False
        try:
            known[1].verify(signature, octets)
        except InvalidSignature:
            return False
        return True
