"""Key records: the secret of a stream, sealed for each member, in one signed message of the companion stream.

The octets of a message, big-endian:

    version 1 (1), zero (1), number of members (2), id of the source's keys (10), TSI (8), epoch (8),
    generation of the secret (4), blocks of a packet (2), first sqn under the secret (8), ephemeral X25519 key (32),
    for each member: id of its keys (10), secret sealed by HPKE (48),
    Ed25519 signature of "pgm key records 1", a zero octet and all octets before the signature (64).

The info of HPKE is "pgm key records 1", a zero octet and the octets before the ephemeral key, without the number of
members. A record that is moved to another session or generation therefore does not open.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pgm.trust.blocks import SignedSession
from pgm.trust.hpke import ENC_OCTETS, TAG_OCTETS, Sealer, open_untrusted
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.proofs import SIGNATURE_OCTETS
from pgm.trust.public_keys import PublicKeys, octets_of_key_id, text_of_key_id
from pgm.trust.sealing import SECRET_OCTETS, SealTerms

MOST_MEMBERS = 512  # of a message of 30 KB; a stream with more members has several messages

_VERSION = 1
_DOMAIN = b"pgm key records 1\0"
_HEAD = struct.Struct(">BBH10s8sQIHQ")
_ID_OCTETS = 10
_ENTRY_OCTETS = _ID_OCTETS + SECRET_OCTETS + TAG_OCTETS


@attrs.frozen
class SecretHead:
    """Statement of a source about a secret: its own keys, the terms, and the first sqn that the secret seals."""

    key_id: str
    terms: SealTerms
    first_sqn: int

    def octets(self, members: int) -> bytes:
        """Return the head of a message."""
        terms = self.terms
        session = terms.session
        number = octets_of_key_id(self.key_id)
        return _HEAD.pack(
            _VERSION, 0, members, number, session.tsi, session.epoch, terms.generation, terms.blocks, self.first_sqn
        )

    @classmethod
    def of_untrusted(cls, octets: bytes) -> SecretHead | None:
        """Return the head of a message, whose signature is not checked; None for other octets. Never raises."""
        size = len(octets) - _HEAD.size - ENC_OCTETS - SIGNATURE_OCTETS
        if size < 0:
            return None
        version, zero, members, number, tsi, epoch, generation, blocks, first_sqn = _HEAD.unpack_from(octets)
        if (version, zero) != (_VERSION, 0) or not 1 <= members <= MOST_MEMBERS or not blocks:
            return None
        if size != members * _ENTRY_OCTETS:
            return None
        key_id = text_of_key_id(number)
        return cls(key_id, SealTerms(SignedSession(tsi, epoch), generation, blocks), first_sqn)

    @property
    def info(self) -> bytes:
        """Return the info of HPKE."""
        return _DOMAIN + self.octets(0)


@attrs.frozen
class KeyRecords:
    """Records of one message, whose signature was checked. `sealed` has the sealed secret by the id of the member's keys."""

    head: SecretHead
    enc: bytes
    sealed: dict[str, bytes]

    def secret_for_untrusted(self, keys: PrivateKeys) -> bytes | None:
        """Return the secret if the message has a record for these keys that opens, else None. Never raises."""
        sealed = self.sealed.get(keys.public.id)
        secret = None if sealed is None else open_untrusted(keys, self.enc, sealed, self.head.info)
        return secret if secret is not None and len(secret) == SECRET_OCTETS else None


def members_within(octets: int) -> int:
    """Return how many members a message of so many octets has at most."""
    return min(MOST_MEMBERS, (octets - _HEAD.size - ENC_OCTETS - SIGNATURE_OCTETS) // _ENTRY_OCTETS)


def records_for(
    head: SecretHead, secret: bytes, members: Sequence[PublicKeys], random_octets: bytes, keys: PrivateKeys
) -> bytes:
    """Return a signed message with the secret for each member. `random_octets` are 32, used once.

    Raises `ValueError` for too many or equal members, or for a member's key of low order.
    """
    if not 1 <= len(members) <= MOST_MEMBERS or len({member.x25519 for member in members}) < len(members):
        raise ValueError(f"{len(members)} members: a message has 1 to {MOST_MEMBERS} different ones")
    sealer = Sealer(random_octets, head.info)
    entries = [member.id_octets + sealer.seal(member.x25519, secret) for member in members]
    octets = head.octets(len(members)) + sealer.enc + b"".join(entries)
    return octets + keys.sign(_DOMAIN + octets)


def verify_records_untrusted(octets: bytes, source: PublicKeys) -> KeyRecords | None:
    """Return the records in these octets if these keys of the source have signed them, else None. Never raises."""
    head = SecretHead.of_untrusted(octets)
    if head is None or head.key_id != source.id:
        return None
    begin, size = _HEAD.size + ENC_OCTETS, len(octets) - SIGNATURE_OCTETS
    try:
        public = Ed25519PublicKey.from_public_bytes(source.ed25519)
        public.verify(octets[size:], _DOMAIN + octets[:size])
    except (InvalidSignature, ValueError):
        return None
    entries = [octets[at : at + _ENTRY_OCTETS] for at in range(begin, size, _ENTRY_OCTETS)]
    sealed = {text_of_key_id(one[:_ID_OCTETS]): one[_ID_OCTETS:] for one in entries}
    return KeyRecords(head, octets[_HEAD.size : begin], sealed)
