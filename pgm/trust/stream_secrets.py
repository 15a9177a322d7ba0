"""Secrets of a sealed session: the source makes and replaces them, and receivers open the records of them.

A secret has a generation, from 1, and holds from one sqn to the first sqn of the next generation. Proofs tell the
generation of their packets, so a receiver never decrypts a packet by a secret that was replaced before it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import attrs

from pgm.trust.blocks import SignedSession
from pgm.trust.key_records import SecretHead, members_within, records_for, verify_records_untrusted
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.proofs import GENERATIONS, Proof
from pgm.trust.public_keys import PublicKeys
from pgm.trust.sealing import SECRET_OCTETS, Octets, PayloadCipher, SealTerms
from pgm.trust.session_check import SessionCheck
from pgm.wire.packet_run import Run

Memory = Callable[[int], tuple[Octets, int]]  # returns an array, and the offset of so many octets there to write

_MOST_SECRETS = 16  # of a session that are kept; the oldest is forgotten first
_RANDOM_OCTETS = 32  # of an ephemeral key


@attrs.frozen(eq=False)
class _Generation:
    """One secret of a source, with the groups of members that get it, and the records that were made."""

    head: SecretHead
    secret: bytes = attrs.field(repr=False)
    groups: tuple[tuple[PublicKeys, ...], ...] = attrs.field(repr=False)
    made: list[bytes] = attrs.field(factory=list, repr=False)


class StreamSealer:
    """Secrets of a source's session. The object is neither printed nor pickled.

    `payload_octets` is the length of the longest payload. `random_octets` returns new random octets.
    """

    __slots__ = ("_cipher", "_generations", "_keys", "_members", "_octets", "_random_octets", "_session")

    def __init__(
        self,
        session: SignedSession,
        keys: PrivateKeys,
        members: Sequence[PublicKeys],
        payload_octets: int,
        random_octets: Callable[[int], bytes],
    ) -> None:
        self._session = session
        self._keys = keys
        self._octets = payload_octets
        self._random_octets = random_octets
        self._generations: list[_Generation] = []
        self._cipher = self._begin(members, 0)

    def change(self, members: Sequence[PublicKeys], first_sqn: int) -> None:
        """Seal the packets from a sqn on by a new secret, for these members. Earlier packets keep their secret."""
        self._cipher = self._begin(members, first_sqn)
        del self._generations[:-_MOST_SECRETS]

    def _begin(self, members: Sequence[PublicKeys], first_sqn: int) -> PayloadCipher:
        generation = self._generations[-1].head.terms.generation + 1 if self._generations else 1
        terms = SealTerms.for_payload(self._session, generation, self._octets)
        secret = self._random_octets(SECRET_OCTETS)
        most = members_within(self._octets)
        groups = tuple(tuple(members[at : at + most]) for at in range(0, len(members), most))
        head = SecretHead(self._keys.public.id, terms, first_sqn)
        self._generations.append(_Generation(head, secret, groups))
        return PayloadCipher(secret, terms)

    def seal(self, first_sqn: int, payloads: Octets, into: Octets) -> None:
        """Write the payloads of the next packets, encrypted, into an array, which may be the same."""
        self._cipher.apply(first_sqn, payloads, into)

    def generation_at(self, sqn: int) -> int:
        """Return the generation of the secret of a packet."""
        for one in reversed(self._generations):
            if one.head.first_sqn <= sqn:
                return one.head.terms.generation
        return self._generations[0].head.terms.generation

    def records(self) -> Iterator[bytes]:
        """Yield the signed records of all secrets, the newest first. A record is made when it is taken first."""
        for one in reversed(self._generations):
            for index, members in enumerate(one.groups):
                if index == len(one.made):
                    random_octets = self._random_octets(_RANDOM_OCTETS)
                    one.made.append(records_for(one.head, one.secret, members, random_octets, self._keys))
                yield one.made[index]

    def __repr__(self) -> str:
        return f"StreamSealer({self._session!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets of a stream are never pickled or copied")


@attrs.frozen(eq=False)
class _Opened:
    """One secret that a receiver has opened."""

    first_sqn: int
    cipher: PayloadCipher = attrs.field(repr=False)


class SealedSessionCheck:
    """Check of a sealed session by a reader: proofs, and the records for the reader's own keys."""

    def __init__(
        self,
        proofs: SessionCheck,
        session: SignedSession,
        keys_of: Callable[[str], PublicKeys | None],
        keys: PrivateKeys,
        memory: Memory,
    ) -> None:
        self._wrong_records = 0
        self.unopened = 0  # valid records for the own keys that did not open
        self._proofs = proofs
        self._session = session
        self._keys_of = keys_of
        self._keys = keys
        self._memory = memory
        self._secrets: dict[int, _Opened] = {}  # by generation
        self._wanted: list[tuple[int, int]] = []  # sqns, and the newest generation that packets from there on may have

    def proof_of_untrusted(self, octets: bytes) -> Proof | None:
        """Return a proof that continues the chain, or has details; None for other octets. Never raises."""
        proof = self._proofs.proof_of_untrusted(octets)
        if proof is not None:
            self._note(proof.spans[0].first, proof.generation)
        return proof

    @property
    def wrong_signatures(self) -> int:
        """Return how many proofs and key records had a wrong signature, which was checked."""
        return self._proofs.wrong_signatures + self._wrong_records

    def _note(self, first: int, tag: int) -> None:
        """Note that packets from a sqn on may have the secret of a generation, if that is newer than was told before.

        Details may come in any order, and in place of a proof that was lost.
        """
        wanted = self._wanted
        at = bisect.bisect_right(wanted, first, key=lambda one: one[0])
        if not wanted or (at and 0 < (tag - wanted[at - 1][1]) % GENERATIONS < GENERATIONS // 2):
            wanted.insert(at, (first, tag))
            del wanted[:-_MOST_SECRETS]

    def block_start(self, sqn: int) -> int:
        """Return the first sqn of the block of a packet."""
        return self._proofs.block_start(sqn)

    def digest(self, runs: Sequence[Run]) -> bytes:
        """Return the digest of consecutive runs. Raises `ValueError` for gaps."""
        return self._proofs.digest(runs)

    def take_record_untrusted(self, octets: bytes) -> bool:
        """Take key records. Return whether the source has signed them for the stream's session. Never raises."""
        head = SecretHead.of_untrusted(octets)
        if head is None or head.terms.session != self._session:
            return False
        generation = head.terms.generation
        if generation in self._secrets:
            return True  # nothing depends on them
        source = self._keys_of(head.key_id)
        records = None if source is None else verify_records_untrusted(octets, source)
        if records is None:
            self._wrong_records += source is not None
            return False
        if self._keys.public.id in records.sealed:
            secret = records.secret_for_untrusted(self._keys)
            if secret is None:
                self.unopened += 1
            else:
                self._secrets[generation] = _Opened(head.first_sqn, PayloadCipher(secret, head.terms))
                if len(self._secrets) > _MOST_SECRETS:
                    del self._secrets[min(self._secrets)]
        return True

    def may_open(self, first: int, end: int) -> bool:
        """Return whether the secrets of consecutive packets are there."""
        while first < end:
            secret, first = self._secret_at(first)
            if secret is None:
                return False
        return True

    def openable_from(self, sqn: int) -> int | None:
        """Return the first sqn of the next secret that is here, for packets after `sqn`; None if none is."""
        return min((one.first_sqn for one in self._secrets.values() if one.first_sqn > sqn), default=None)

    def opened(self, run: Run) -> Iterator[Run]:
        """Yield a run whose packets may be opened with payloads in the clear, in other memory."""
        at = run.first
        while self._wanted[1:] and self._wanted[1][0] <= at:
            del self._wanted[0]
        while at < run.end:
            secret, end = self._secret_at(at)
            assert secret is not None
            part = run.part(at, min(end, run.end))
            yield self._decrypted(part, secret.cipher)
            at = part.end

    def _decrypted(self, run: Run, cipher: PayloadCipher) -> Run:
        buffer, at = self._memory(run.octets)
        opened = Run(run.first, run.count, buffer, at, run.stride, run.payload_at)
        opened.rows[:, : run.payload_at] = run.rows[:, : run.payload_at]
        cipher.apply(run.first, run.payloads, opened.payloads)
        return opened

    def _secret_at(self, sqn: int) -> tuple[_Opened | None, int]:
        """Return the secret of a packet, None if it is missing, and the first sqn that may have another secret."""
        tag, end = -1, 1 << 64
        for first, one in reversed(self._wanted):
            tag = one
            if first <= sqn:
                break
            end = first
        generation = max((one for one in self._secrets if one % GENERATIONS == tag), default=0)
        # A proof tells the generation of its last packet: earlier packets may have one before.
        while (secret := self._secrets.get(generation)) is not None and secret.first_sqn > sqn:
            end = min(end, secret.first_sqn)
            generation -= 1
        return secret, end
