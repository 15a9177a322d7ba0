"""Proofs: the digests of spans of blocks, chained to the proof before, with one Ed25519 signature.

The octets of a proof, big-endian:

    version 1 (1), kind (1), number of spans (2), id of the keys (10), TSI (8), epoch (8), number of the proof from 0 (8),
    BLAKE3 of the whole proof before, or zeros (32),
    for each span: first sqn (8), number of packets (4), digest (32),
    Ed25519 signature of "pgm proof 1", a zero octet and all octets before the signature (64).

Proofs of kind 0 form the chain of a session. A proof of kind 1 has details: the digest of each packet of a span, each as
a span of its own, for receivers that miss a packet of the span or hold a wrong one. Details have number 0, and zeros
for the proof before. In a sealed session the kind has twice the generation of the secret of the last packet added,
modulo 256: a receiver thereby knows that a secret has changed.
"""

from __future__ import annotations

import functools
import struct

import attrs
import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pgm.trust.blocks import DIGEST_OCTETS, SignedSession
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.public_keys import PublicKeys, octets_of_key_id, text_of_key_id

MOST_SPANS = 1024  # of a proof: 44 KiB
SIGNATURE_OCTETS = 64
GENERATIONS = 128  # that a proof tells apart

_VERSION = 1
_DOMAIN = b"pgm proof 1\0"
_HEAD = struct.Struct(">BBH10s8sQQ32s")
_SPAN = struct.Struct(">QI32s")
_MOST_SQN = 1 << 63
_MOST_KEPT = 64  # keys of sources that are kept ready


@attrs.frozen
class Span:
    """Consecutive packets of one block, with their digest."""

    first: int
    count: int
    digest: bytes

    @property
    def end(self) -> int:
        """The sqn after the last."""
        return self.first + self.count


@attrs.frozen
class Proof:
    """Signed digests of a session. Spans ascend and do not overlap."""

    key_id: str
    session: SignedSession
    number: int  # of the proof in the session, from 0
    previous: bytes  # hash of the proof before; zeros for the first one
    spans: tuple[Span, ...]
    has_details: bool = False
    generation: int = 0  # of the secret of the last packet, modulo 128; 0 in a clear session

    def signed_by(self, keys: PrivateKeys) -> bytes:
        """Return the octets of the proof with its signature. Raises `ValueError` for spans that no proof may have."""
        flaw = _flaw(self.spans)
        if flaw:
            raise ValueError(flaw)
        octets = _HEAD.pack(
            _VERSION,
            self.generation % GENERATIONS << 1 | self.has_details,
            len(self.spans),
            octets_of_key_id(self.key_id),
            self.session.tsi,
            self.session.epoch,
            self.number,
            self.previous,
        ) + b"".join(_SPAN.pack(span.first, span.count, span.digest) for span in self.spans)
        return octets + keys.sign(_DOMAIN + octets)


FIRST_PREVIOUS = bytes(DIGEST_OCTETS)


def spans_within(octets: int) -> int:
    """Return how many spans a proof of so many octets has at most."""
    return min(MOST_SPANS, (octets - _HEAD.size - SIGNATURE_OCTETS) // _SPAN.size)


def hash_of_proof(octets: bytes) -> bytes:
    """Return the hash by which the next proof names this one."""
    return blake3.blake3(octets).digest()


def decode_proof_untrusted(octets: bytes) -> Proof | None:
    """Return the proof in these octets, whose signature is not checked; None for other octets. Never raises."""
    size = len(octets) - SIGNATURE_OCTETS
    if size < _HEAD.size:
        return None
    version, kind, count, key_id, tsi, epoch, number, previous = _HEAD.unpack_from(octets)
    if version != _VERSION or size != _HEAD.size + count * _SPAN.size:
        return None
    spans = tuple(Span(*row) for row in _SPAN.iter_unpack(octets[_HEAD.size : size]))
    if _flaw(spans):
        return None
    return Proof(text_of_key_id(key_id), SignedSession(tsi, epoch), number, previous, spans, bool(kind & 1), kind >> 1)


def is_signed_untrusted(octets: bytes, keys: PublicKeys) -> bool:
    """Return whether these keys have signed the octets of a proof. Never raises.

    The caller decodes the proof, and compares its session, number, previous hash and key id with its own.
    """
    try:
        _verifier_of(keys.ed25519).verify(octets[-SIGNATURE_OCTETS:], _DOMAIN + octets[:-SIGNATURE_OCTETS])
    except (InvalidSignature, ValueError):
        return False
    return True


@functools.lru_cache(_MOST_KEPT)
def _verifier_of(ed25519: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(ed25519)


def _flaw(spans: tuple[Span, ...]) -> str:
    """Return the reason why no proof may have these spans, or an empty text."""
    if not 1 <= len(spans) <= MOST_SPANS:
        return f"a proof has 1 to {MOST_SPANS} spans, not {len(spans)}"
    at = 0
    for span in spans:
        if span.first < at or span.count < 1 or span.end > _MOST_SQN:
            return f"the span from {span.first} with {span.count} packets does not ascend"
        at = span.end
    return ""
