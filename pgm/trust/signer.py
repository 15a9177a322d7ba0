"""Signing of a session by its source: closed blocks become spans, and spans become proofs, at most one an interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from pgm.trust.blocks import BLOCK_BITS, SignedSession, parts_of_blocks
from pgm.trust.private_keys import PrivateKeys
from pgm.trust.proofs import FIRST_PREVIOUS, MOST_SPANS, Proof, Span, hash_of_proof
from pgm.units import NEVER
from pgm.wire.packet_run import Run


@attrs.define(eq=False)
class BlockSigner:
    """Proofs of what a source has sent. Time in ns is passed in.

    A full block is closed at once. An unfinished block is closed when the source idles, or when a proof is due for it. A
    proof follows the one before after `proof_ivl` ns at least, which bounds the signatures that receivers verify. The
    packets of the open block are not copied: the caller keeps their memory until the block is closed.
    """

    keys: PrivateKeys = attrs.field(repr=False)
    session: SignedSession
    proof_ivl: int
    bits: int = BLOCK_BITS
    most_spans: int = MOST_SPANS  # of a proof
    _open: list[Run] = attrs.field(factory=list, repr=False)  # parts of the unfinished block, in order
    _spans: list[Span] = attrs.field(factory=list)  # closed and not signed, `most_spans` at most
    _number: int = 0  # of the next proof
    _previous: bytes = FIRST_PREVIOUS
    _next_ns: int = 0  # earliest time of the next proof
    _is_idle: bool = False

    @property
    def deadline_ns(self) -> int:
        """The time of the next call of `handle_deadline`."""
        return self._next_ns if self._spans or (self._open and self._is_idle) else NEVER

    def take(self, runs: Iterable[Run]) -> list[bytes]:
        """Take the next packets, in the order of their sqns. Return the proofs that cannot wait for their time."""
        self._is_idle = False
        proofs = []
        for run in runs:
            for block, part in parts_of_blocks(run, self.bits):
                if self._open and (self._open[0].first >> self.bits != block or self._open[-1].end != part.first):
                    self._close()
                self._open.append(part)
                if part.end == block + 1 << self.bits:
                    self._close()
                if len(self._spans) == self.most_spans:
                    proofs.append(self._sign())
        return proofs

    def idle(self, now_ns: int) -> list[bytes]:
        """Note that the source has nothing more to send. Return the proof that is due, so that no message waits."""
        self._is_idle = True
        return self.handle_deadline(now_ns)

    def handle_deadline(self, now_ns: int) -> list[bytes]:
        """Return the proof that is due at a time, in a list."""
        if now_ns < self.deadline_ns:
            return []
        if self._open and self._is_idle:
            self._close()
        self._next_ns = now_ns + self.proof_ivl
        return [self._sign()]

    def details(self, runs: Sequence[Run]) -> bytes:
        """Return the proof of each packet of consecutive runs, MOST_SPANS at most. Raises `ValueError` for more."""
        digests = self.session.digests_of_packets(runs)
        spans = tuple(Span(runs[0].first + index, 1, digest) for index, digest in enumerate(digests))
        return Proof(self.keys.public.id, self.session, 0, FIRST_PREVIOUS, spans, True).signed_by(self.keys)

    def _close(self) -> None:
        first, end = self._open[0].first, self._open[-1].end
        self._spans.append(Span(first, end - first, self.session.digest(self._open)))
        self._open.clear()

    def _sign(self) -> bytes:
        proof = Proof(self.keys.public.id, self.session, self._number, self._previous, tuple(self._spans))
        octets = proof.signed_by(self.keys)
        self._number, self._previous = self._number + 1, hash_of_proof(octets)
        self._spans.clear()
        return octets
