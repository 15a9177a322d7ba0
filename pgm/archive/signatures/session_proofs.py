"""Proofs of one recorded session: checked against the keys that count, and turned into spans."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs
import pyarrow as pa

from pgm.archive.signatures.authority import counts_on, session_day
from pgm.trust.blocks import SignedSession
from pgm.trust.proofs import Proof, decode_proof_untrusted
from pgm.trust.public_keys import PublicKeys
from pgm.trust.verifier import ProofChain, ProofReject

_MOST_REASONS = 16  # different reasons that are counted apart
_OTHER_REASON = "other reasons"
_LOOK_AHEAD = 2048  # proofs: at one a millisecond two seconds, in which requested details have come
_MOST_DETAILS = 1 << 16  # packets whose digests wait for their span
_NARROW = 64  # proofs that are read in order, at the end of a search
_PROBE = 16  # proofs that are read at a time in a search

ReadProofs = Callable[[int, int], Iterator[pa.RecordBatch]]  # rows of the sqns from the first to before the second


@attrs.frozen(eq=False)
class ProvenSpan:
    """Span of a proof that counts, or of one by revoked keys."""

    first: int
    end: int
    digest: bytes
    session: SignedSession
    is_revoked: bool = False
    last: int = 0  # packet of the whole proof
    generation: int = 0  # of the secret of that packet, as `Proof.generation`
    details: Mapping[int, bytes] = attrs.field(factory=dict)  # digests of single packets by sqn, where they came


def tsi_octets(tsi: str) -> bytes:
    """Return the eight octets of a TSI."""
    *gsi, port = map(int, tsi.split("."))
    return bytes(gsi) + port.to_bytes(2, "big")


@attrs.define(eq=False)
class SessionProofs:
    """Proofs of the session with a TSI and an epoch, by `keys` and `revoked` of an `Authority`.

    `rejects` counts proofs that do not count, by reason. `missing` counts proofs that lack in the chain.
    """

    tsi: bytes
    epoch_us: int | None
    keys: Mapping[str, PublicKeys]
    revoked: Mapping[str, str]
    used: Counter[str] = attrs.field(factory=Counter)  # proofs by the id of their keys
    rejects: Counter[str] = attrs.field(factory=Counter)
    missing: int = 0
    _chain: ProofChain | None = None
    _details: dict[int, bytes] = attrs.field(factory=dict)
    _least: int = 0  # the sqn after the last span

    def spans(self, proofs: Iterable[bytes]) -> Iterator[ProvenSpan]:
        """Yield the spans of proofs that count, ascending and without an overlap.

        Details of a span come after its proof, because receivers have requested them. So the spans are `_LOOK_AHEAD`
        proofs behind.
        """
        waiting: deque[tuple[bytes, Proof]] = deque()
        for octets in proofs:
            proof = decode_proof_untrusted(octets)
            if proof is None:
                self._reject(ProofReject.MALFORMED.value)
            elif proof.session.tsi != self.tsi or proof.session.epoch // 1000 != self.epoch_us:
                self._reject(ProofReject.OTHER_SESSION.value)
            elif proof.has_details:
                self._take_details(octets, proof)
            else:
                waiting.append((octets, proof))
                if len(waiting) > _LOOK_AHEAD:
                    yield from self._spans_of(*waiting.popleft())
        while waiting:
            yield from self._spans_of(*waiting.popleft())

    def _spans_of(self, octets: bytes, proof: Proof) -> Iterator[ProvenSpan]:
        is_revoked = proof.key_id in self.revoked
        if not is_revoked and not self._counts(octets, proof):
            return
        self.used[proof.key_id] += 1
        last = proof.spans[-1].end - 1
        for span in proof.spans:
            if span.first >= self._least:
                self._least = span.end
                details = self._details_of(span.first, span.end)
                named = span.first, span.end, span.digest, proof.session
                yield ProvenSpan(*named, is_revoked, last, proof.generation, details)

    def _counts(self, octets: bytes, proof: Proof) -> bool:
        """Return whether a proof continues the chain, or has details, by keys that count."""
        chain = self._chain or ProofChain(proof.session, self._keys_of(proof.session), None)
        taken = chain.take_untrusted(octets)
        if not isinstance(taken, Proof):
            self._reject(self._reason(taken, proof))
            return False
        self._chain, self.missing = chain, chain.lost
        return True

    def _take_details(self, octets: bytes, proof: Proof) -> None:
        if proof.key_id in self.revoked or not self._counts(octets, proof):
            return
        self._details.update((span.first, span.digest) for span in proof.spans if span.count == 1)
        while len(self._details) > _MOST_DETAILS:
            del self._details[next(iter(self._details))]

    def _details_of(self, first: int, end: int) -> dict[int, bytes]:
        if not self._details or end - first > len(self._details) + _MOST_DETAILS:
            return {}
        return {sqn: self._details.pop(sqn) for sqn in range(first, end) if sqn in self._details}

    def _keys_of(self, session: SignedSession) -> Callable[[str], PublicKeys | None]:
        def keys_of(key_id: str) -> PublicKeys | None:
            keys = self.keys.get(key_id)
            return keys if keys is not None and counts_on(keys, session.epoch) else None

        return keys_of

    def _reason(self, reject: ProofReject, proof: Proof) -> str:
        if reject is not ProofReject.UNKNOWN_KEYS:
            return str(reject.value)
        if proof.key_id not in self.keys:
            return f"the keys {proof.key_id}, which are not among those of the source"
        day = session_day(proof.session.epoch)
        return f"the keys {proof.key_id}, which were not valid on {day}, when the session began"

    def _reject(self, reason: str) -> None:
        if reason not in self.rejects and len(self.rejects) >= _MOST_REASONS:
            reason = _OTHER_REASON
        self.rejects[reason] += 1


def octets_of(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the proofs of rows, without losses."""
    for batch in batches:
        for value in batch.column("value"):
            if value.is_valid:
                yield value.as_py()


def position_of(sqn: int, read: ReadProofs, oldest: int, next_sqn: int) -> int:
    """Return the sqn of a proof whose spans begin at or before that of a packet, close to the last such proof.

    The proofs from `oldest` to `next_sqn - 1` are held. The search trusts no proof: a false one can only hide others.
    """
    low, high = oldest, next_sqn
    while high - low > _NARROW:
        middle = (low + high) // 2
        probe = next(_decoded(read(middle, min(middle + _PROBE, high))), None)
        if probe is not None and probe.spans[0].first <= sqn:
            low = middle
        else:
            high = middle
    return low


def proven_end(read: ReadProofs, oldest: int, next_sqn: int) -> int:
    """Return the sqn after the last packet that the newest proofs name; 0 without any."""
    for end in range(next_sqn, oldest, -_PROBE):
        ends = [proof.spans[-1].end for proof in _decoded(read(max(oldest, end - _PROBE), end))]
        if ends:
            return max(ends)
    return 0


def _decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[Proof]:
    for octets in octets_of(batches):
        proof = decode_proof_untrusted(octets)
        if proof is not None and not proof.has_details:
            yield proof
