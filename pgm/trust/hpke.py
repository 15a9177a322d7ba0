"""Sealing of a short secret for the owners of X25519 keys: HPKE, RFC 9180, base mode, one message for each context.

The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM. `cryptography` has the same suite; `Sealer` seals for
thousands of members with one ephemeral key, three times as fast. Each result is a message of RFC 9180 by itself: keys
and nonces depend on the member's key, so members of one ephemeral key must be different ones.
"""

from __future__ import annotations

import hmac
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pgm.trust.private_keys import PrivateKeys

ENC_OCTETS = 32  # of the ephemeral public key
TAG_OCTETS = 16

_VERSION = b"HPKE-v1"
_KEM = b"KEM" + struct.pack(">H", 0x0020)
_SUITE = b"HPKE" + struct.pack(">HHH", 0x0020, 0x0001, 0x0001)
_KEY_OCTETS, _NONCE_OCTETS, _SECRET_OCTETS = 16, 12, 32


class Sealer:
    """Ephemeral key for messages to different members, made of 32 random octets that are used once."""

    __slots__ = ("_info_hash", "_private", "enc")

    def __init__(self, random_octets: bytes, info: bytes) -> None:
        self._private = X25519PrivateKey.from_private_bytes(random_octets)
        self._info_hash = _extract(_SUITE, b"", b"info_hash", info)
        self.enc = self._private.public_key().public_bytes_raw()

    def seal(self, x25519: bytes, message: bytes) -> bytes:
        """Return the sealed message for the owner of a key. Raises `ValueError` for a key of low order."""
        shared = self._private.exchange(X25519PublicKey.from_public_bytes(x25519))
        key, nonce = _schedule(shared, self.enc, x25519, self._info_hash)
        return AESGCM(key).encrypt(nonce, message, None)


def open_untrusted(keys: PrivateKeys, enc: bytes, sealed: bytes, info: bytes) -> bytes | None:
    """Return the message that was sealed for these keys, or None. Never raises."""
    try:
        shared = keys.agree(enc)
        info_hash = _extract(_SUITE, b"", b"info_hash", info)
        key, nonce = _schedule(shared, enc, keys.public.x25519, info_hash)
        return AESGCM(key).decrypt(nonce, sealed, None)
    except (InvalidTag, ValueError):
        return None


def _schedule(shared: bytes, enc: bytes, x25519: bytes, info_hash: bytes) -> tuple[bytes, bytes]:
    """Return key and nonce of the only message of a context: sections 4.1 and 5.1 of the RFC."""
    agreed = _extract(_KEM, b"", b"eae_prk", shared)
    secret = _expand(_KEM, agreed, b"shared_secret", enc + x25519, _SECRET_OCTETS)
    context = b"\0" + _PSK_ID_HASH + info_hash
    scheduled = _extract(_SUITE, secret, b"secret", b"")
    key = _expand(_SUITE, scheduled, b"key", context, _KEY_OCTETS)
    return key, _expand(_SUITE, scheduled, b"base_nonce", context, _NONCE_OCTETS)


def _extract(suite: bytes, salt: bytes, label: bytes, octets: bytes) -> bytes:
    return hmac.digest(salt, _VERSION + suite + label + octets, "sha256")


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    """Return at most 32 octets, which one step of HKDF-Expand gives."""
    return hmac.digest(key, struct.pack(">H", size) + _VERSION + suite + label + info + b"\1", "sha256")[:size]


_PSK_ID_HASH = _extract(_SUITE, b"", b"psk_id_hash", b"")
