"""Encryption of payloads by AES-256 in counter mode, such that each packet decrypts alone.

The key comes from a secret of the stream by HKDF-SHA256 (RFC 5869). Its info, big-endian: "pgm seal 1" and a zero octet,
TSI (8), epoch (8), generation of the secret (4), blocks of a packet (2). The counter of a packet's first block of 16
octets is its 64-bit sqn times the blocks of a packet, so no part of the key stream is used twice. A session has a new
TSI and epoch with each run, and a new secret has a new generation.

Counter mode hides and does not protect: a changed packet decrypts to changed text. Blocks of sealed packets are signed.
"""

from __future__ import annotations

from typing import NoReturn

import attrs
import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from pgm.trust.blocks import SignedSession

SECRET_OCTETS = 32
MOST_BLOCKS = 0xFFFF

_DOMAIN = b"pgm seal 1\0"
_BLOCK_OCTETS = 16
_NONCE_OCTETS = 16
_KEY_OCTETS = 32
_SCRATCH_OCTETS = 1 << 18  # that are worked on at a time, and stay in the second cache of a processor

Octets = npt.NDArray[np.uint8]


@attrs.frozen
class SealTerms:
    """Terms of a secret in a session: its generation, and the blocks of 16 octets that a packet may take."""

    session: SignedSession
    generation: int
    blocks: int

    @classmethod
    def for_payload(cls, session: SignedSession, generation: int, octets: int) -> SealTerms:
        """Return the terms for packets with payloads of at most `octets` octets."""
        return cls(session, generation, -(-octets // _BLOCK_OCTETS))

    def info(self) -> bytes:
        """Return the octets that bind a key to the terms."""
        head = _DOMAIN + self.session.tsi + self.session.epoch.to_bytes(8, "big")
        return head + self.generation.to_bytes(4, "big") + self.blocks.to_bytes(2, "big")


class PayloadCipher:
    """Encryption and decryption under one secret and its terms; both are the same operation.

    Raises `ValueError` for a secret of another length, or for blocks out of range. The object is neither printed nor pickled.
    """

    __slots__ = ("_context", "_scratch", "terms")

    def __init__(self, secret: bytes, terms: SealTerms) -> None:
        if len(secret) != SECRET_OCTETS or not 1 <= terms.blocks <= MOST_BLOCKS:
            raise ValueError(f"{len(secret)} octets of a secret, {terms.blocks} blocks of a packet")
        self.terms = terms
        key = HKDF(SHA256(), _KEY_OCTETS, None, terms.info()).derive(secret)
        # One context for all trains: a new one costs more than a packet, and a new nonce costs nearly nothing.
        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(_NONCE_OCTETS)))
        self._context: CipherContext = cipher.encryptor()
        room = max(_SCRATCH_OCTETS, terms.blocks * _BLOCK_OCTETS)
        self._scratch = np.zeros(room + _BLOCK_OCTETS, np.uint8)  # the library wants room for one block more

    def applied(self, first_sqn: int, payloads: Octets) -> Octets:
        """Return the (count, length) payloads of consecutive packets, encrypted or decrypted, in new memory.

        Raises `ValueError` for payloads that are longer than the terms allow.
        """
        result = np.empty(payloads.shape, np.uint8)
        self.apply(first_sqn, payloads, result)
        return result

    def apply(self, first_sqn: int, payloads: Octets, into: Octets) -> None:
        """Write the payloads of consecutive packets, encrypted or decrypted, into an array, which may be the same.

        Raises `ValueError` for payloads that are longer than the terms allow.
        """
        count, length = payloads.shape
        stride = self.terms.blocks * _BLOCK_OCTETS
        if length > stride:
            raise ValueError(f"a payload of {length} octets is longer than {stride}")
        scratch = self._scratch
        most = (len(scratch) - _BLOCK_OCTETS) // stride
        self._context.reset_nonce((first_sqn * self.terms.blocks).to_bytes(_NONCE_OCTETS, "big"))
        for at in range(0, count, most):
            end = min(count, at + most)
            rows = scratch[: (end - at) * stride].reshape(end - at, stride)
            rows[:, :length] = payloads[at:end]
            # Whole rows before other ones, so that the counter goes on; the rest of the last row is not needed.
            used = len(rows) * stride - (stride - length if end == count else 0)
            self._context.update_into(scratch.data[:used], scratch.data)
            into[at:end] = rows[:, :length]

    def __repr__(self) -> str:
        return f"PayloadCipher({self.terms!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys of a stream are never pickled or copied")
