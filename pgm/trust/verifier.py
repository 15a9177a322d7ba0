"""Verification of a session by a receiver: packets wait for the proof of their span, and leave in order with a verdict."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Sequence

import attrs

from pgm.trust.blocks import SignedSession
from pgm.trust.proofs import FIRST_PREVIOUS, Proof, Span, decode_proof_untrusted, hash_of_proof, is_signed_untrusted
from pgm.trust.public_keys import PublicKeys
from pgm.wire.packet_run import Run


class ProofReject(enum.Enum):
    """Reason for which a proof is not used."""

    MALFORMED = "octets that are no proof"
    OTHER_SESSION = "a proof of another session"
    UNKNOWN_KEYS = "keys that the source does not have now"
    SIGNATURE = "a wrong signature"
    REPLAYED = "a number that was taken"
    FORK = "another proof before it than the one that was taken"


@attrs.define(eq=False)
class ProofChain:
    """Chain of the proofs of a session. `keys_of` returns the valid keys of the source with just this id, or None.

    A proof that was lost leaves a hole: the next one is taken by its signature alone, and `lost` counts the hole. The
    chain of a late joiner has `previous` None, and begins with the first proof that comes.
    """

    session: SignedSession
    keys_of: Callable[[str], PublicKeys | None]
    _previous: bytes | None = FIRST_PREVIOUS
    lost: int = 0
    wrong_signatures: int = 0  # that were checked
    _number: int = 0  # of the next proof

    def take_untrusted(self, octets: bytes) -> Proof | ProofReject:
        """Return the proof in these octets if it continues the chain or has details, else the reason. Never raises."""
        proof = decode_proof_untrusted(octets)
        if proof is None:
            return ProofReject.MALFORMED
        if proof.session != self.session:
            return ProofReject.OTHER_SESSION
        if not proof.has_details and proof.number < self._number:
            return ProofReject.REPLAYED
        keys = self.keys_of(proof.key_id)
        if keys is None:
            return ProofReject.UNKNOWN_KEYS
        is_next = not proof.has_details and proof.number == self._number and self._previous is not None
        if is_next and proof.previous != self._previous:
            return ProofReject.FORK  # before the signature, whose check costs the most
        if not is_signed_untrusted(octets, keys):
            self.wrong_signatures += 1
            return ProofReject.SIGNATURE
        if proof.has_details:
            return proof
        if self._previous is not None:
            self.lost += proof.number - self._number
        self._number, self._previous = proof.number + 1, hash_of_proof(octets)
        return proof


class Verdict(enum.Enum):
    """Verdict about packets."""

    PROVED = "proved"  # sent by the owner of the keys
    FORGED = "forged"  # other octets than the owner of the keys has sent under this sqn
    UNPROVED = "unproved"  # no proof came


@attrs.frozen(eq=False)
class JudgedRun:
    """Packets with one verdict."""

    run: Run
    verdict: Verdict


@attrs.define(eq=False)
class BlockVerifier:
    """Packets of a session that wait for their proofs, `most_octets` at most. More packets push the oldest out unproved.

    At most `most_spans` proved spans wait for their packets; the oldest ones are forgotten first.

    Packets come in the order of their sqns, with gaps where packets were lost. A span that lacks a packet or has another
    digest is `doubtful`: the caller asks for details, and gives up by `give_up`. Later packets wait meanwhile.
    """

    session: SignedSession
    most_octets: int
    most_spans: int = 1 << 16
    _runs: deque[Run] = attrs.field(factory=deque, repr=False)
    _spans: deque[Span] = attrs.field(factory=deque)
    _octets: int = 0  # that wait
    _lead: int = 0  # the sqn after the last that came or was lost
    doubtful: Span | None = None

    def take(self, run: Run) -> list[JudgedRun]:
        """Take the next packets. Return the packets that leave, in order."""
        self._runs.append(run)
        self._octets += run.octets
        self._lead = run.end
        judged = self._settle()
        while self._octets > self.most_octets:
            judged.append(JudgedRun(self._pop(self._runs[0].end), Verdict.UNPROVED))
            self.doubtful = None
            judged += self._settle()
        return judged

    def skip_to(self, sqn: int) -> list[JudgedRun]:
        """Note that all packets before a sqn have come or are lost. Return the packets that leave."""
        self._lead = max(self._lead, sqn)
        return self._settle()

    def prove(self, proof: Proof) -> list[JudgedRun]:
        """Take a proof of the chain, or details. Return the packets that leave."""
        if proof.has_details:
            return self._take_details({span.first: span.digest for span in proof.spans if span.count == 1})
        self._spans.extend(proof.spans)
        judged = self._settle()
        while len(self._spans) > self.most_spans:  # proofs run ahead of the packets
            if self.doubtful is None:
                self._spans.popleft()
                judged += self._settle()
            else:
                judged += self.give_up()
        return judged

    def give_up(self) -> list[JudgedRun]:
        """Stop waiting for the details of the doubtful span. Return its packets, unproved, and those that follow."""
        span, self.doubtful = self.doubtful, None
        if span is None:
            return []
        self._spans.popleft()
        judged = [JudgedRun(run, Verdict.UNPROVED) for run in self._pop_before(span.end)]
        return judged + self._settle()

    def end(self) -> list[JudgedRun]:
        """Return all packets that still wait, unproved, when nothing more comes."""
        judged = [JudgedRun(run, Verdict.UNPROVED) for run in self._runs]
        self._runs.clear()
        self._spans.clear()
        self._octets, self.doubtful = 0, None
        return judged

    def _settle(self) -> list[JudgedRun]:
        """Judge from the oldest packets on, as far as proofs and packets allow."""
        judged: list[JudgedRun] = []
        while self._runs and self._spans and self.doubtful is None:
            span, first = self._spans[0], self._runs[0].first
            if span.end <= first:
                self._spans.popleft()
            elif first < span.first:  # spans ascend, so no proof of these packets comes
                end = min(span.first, self._runs[0].end)
                judged.append(JudgedRun(self._pop(end), Verdict.UNPROVED))
            elif self._lead < span.end:
                break
            elif self._is_proved(span):
                self._spans.popleft()
                judged += [JudgedRun(run, Verdict.PROVED) for run in self._pop_before(span.end)]
            else:
                self.doubtful = span
        return judged

    def _is_proved(self, span: Span) -> bool:
        """Return whether all packets of a span are there, with its digest."""
        runs = self._parts(span.end)
        at = span.first
        for run in runs:
            if run.first != at:
                return False
            at = run.end
        return at == span.end and self.session.digest(runs) == span.digest

    def _take_details(self, digests: dict[int, bytes]) -> list[JudgedRun]:
        """Judge each packet of the doubtful span. Return nothing if the details lack one of its packets."""
        span = self.doubtful
        if span is None:
            return []
        parts = self._parts(span.end)
        if any(sqn not in digests for run in parts for sqn in range(run.first, run.end)):
            return []
        self.doubtful = None
        self._spans.popleft()
        judged = []
        for run in self._pop_before(span.end):
            for offset, digest in enumerate(self.session.digests_of_packets([run])):
                is_right = digest == digests[run.first + offset]
                verdict = Verdict.PROVED if is_right else Verdict.FORGED
                judged.append(JudgedRun(run.part(run.first + offset, run.first + offset + 1), verdict))
        return judged + self._settle()

    def _parts(self, end: int) -> Sequence[Run]:
        """Return the waiting packets before a sqn."""
        parts = []
        for run in self._runs:
            if run.first >= end:
                break
            parts.append(run.part(run.first, min(run.end, end)))
        return parts

    def _pop_before(self, end: int) -> list[Run]:
        popped = []
        while self._runs and self._runs[0].first < end:
            popped.append(self._pop(end))
        return popped

    def _pop(self, end: int) -> Run:
        """Remove the first run, or its packets before a sqn."""
        run = self._runs.popleft()
        part = run.part(run.first, min(run.end, end))
        if part.end < run.end:
            self._runs.appendleft(run.part(part.end, run.end))
        self._octets -= part.octets
        return part
