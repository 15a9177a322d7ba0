"""Signing of a session by its source: closed blocks become spans, and spans become proofs, at most one an interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import attrs

from pgm.trust.blocks import BLOCK_BITS, SignedSession, parts_of_blocks
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.proofs import FIRST_PREVIOUS, MOST_SPANS, Proof, Span, hash_of_proof
from pgm.units import NEVER
from pgm.wire.packet_run import Run

# Octets of the packets of a span: BLAKE3 is then near its full speed, and the octets stay in the cache.
SPAN_OCTETS = 256 << 10
# Intervals after a proof of several packets, and after one of many octets. Single messages do not wait long, and the
# verifications of fast streams stay a few percent of a core.
SEVERAL_IVLS = 2
FAST_IVLS = 8
FAST_OCTETS = 32 << 10


def _is_clear(_sqn: int) -> int:
    return 0


@attrs.define(eq=False)
class BlockSigner:
    """Proofs of what a source has sent. Time in ns is passed in.

    A span ends with its block, before `SPAN_OCTETS`, or when a proof is due. A proof follows the one before after
    `proof_ivl` ns at least, and after a multiple if that one proves much, which bounds the signatures that receivers
    verify. The packets of the open span are not copied: the caller keeps their memory until the span is closed.
    """

    keys: PrivateKeys = attrs.field(repr=False)
    session: SignedSession
    proof_ivl: int
    bits: int = BLOCK_BITS
    most_spans: int = MOST_SPANS  # of a proof
    generation_at: Callable[[int], int] = _is_clear  # of the secret of a packet
    _open: list[Run] = attrs.field(factory=list, repr=False)  # parts of the unfinished span, in order
    _open_octets: int = 0
    _spans: list[Span] = attrs.field(factory=list)  # closed and not signed, `most_spans` at most
    _number: int = 0  # of the next proof
    _previous: bytes = FIRST_PREVIOUS
    _next_ns: int = 0  # earliest time of the next proof
    _signed_octets: int = 0  # of packets in spans since the last proof in time
    _signed_packets: int = 0

    @property
    def deadline_ns(self) -> int:
        """The time of the next call of `handle_deadline`."""
        return self._next_ns if self._spans or self._open else NEVER

    def take(self, runs: Iterable[Run]) -> list[bytes]:
        """Take the next packets, in the order of their sqns. Return the proofs that cannot wait for their time."""
        proofs: list[bytes] = []
        for run in runs:
            bits = min(self.bits, (SPAN_OCTETS // run.stride).bit_length() - 1)
            for block, part in parts_of_blocks(run, bits):
                if self._open and not self._is_continued_by(part):
                    proofs += self._close()
                self._open.append(part)
                self._open_octets += part.octets
                if part.end == block + 1 << bits:
                    proofs += self._close()
        return proofs

    def handle_deadline(self, now_ns: int) -> list[bytes]:
        """Return the proofs that are due at a time: together they cover all packets so far."""
        if now_ns < self.deadline_ns:
            return []
        proofs = self._close() if self._open else []
        intervals = SEVERAL_IVLS if self._signed_packets > 1 else 1
        if self._signed_octets >= FAST_OCTETS:
            intervals = FAST_IVLS
        self._next_ns = now_ns + self.proof_ivl * intervals
        self._signed_octets = self._signed_packets = 0
        return [*proofs, self._sign()] if self._spans else proofs

    def details(self, runs: Sequence[Run]) -> list[bytes]:
        """Return proofs of each packet of ordered runs, as many as they need."""
        digests = self.session.digests_of_packets(runs)
        sqns = [sqn for run in runs for sqn in range(run.first, run.end)]  # a short group of parity leaves some out
        spans = [Span(sqn, 1, digest) for sqn, digest in zip(sqns, digests, strict=True)]
        count = -(-len(spans) // self.most_spans)
        size = -(-len(spans) // count)
        parts = [tuple(spans[at : at + size]) for at in range(0, len(spans), size)]
        key_id = self.keys.public.id
        proofs = [
            Proof(key_id, self.session, 0, FIRST_PREVIOUS, part, True, self.generation_at(part[-1].first))
            for part in parts
        ]
        return [proof.signed_by(self.keys) for proof in proofs]

    def _is_continued_by(self, part: Run) -> bool:
        """Return whether the open span goes on with a part of the next run."""
        is_in_block = self._open[0].first >> self.bits == part.first >> self.bits
        is_next = self._open[-1].end == part.first
        return is_in_block and is_next and self._open_octets + part.octets <= SPAN_OCTETS

    def _close(self) -> list[bytes]:
        """Close the open span. Return a proof if it has all the spans that it may have."""
        first, end = self._open[0].first, self._open[-1].end
        self._spans.append(Span(first, end - first, self.session.digest(self._open)))
        self._open.clear()
        self._signed_octets += self._open_octets
        self._signed_packets += end - first
        self._open_octets = 0
        return [self._sign()] if len(self._spans) == self.most_spans else []

    def _sign(self) -> bytes:
        generation = self.generation_at(self._spans[-1].end - 1)
        proof = Proof(
            self.keys.public.id,
            self.session,
            self._number,
            self._previous,
            tuple(self._spans),
            generation=generation,
        )
        octets = proof.signed_by(self.keys)
        self._number, self._previous = self._number + 1, hash_of_proof(octets)
        self._spans.clear()
        return octets
