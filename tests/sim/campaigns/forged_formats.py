"""Forgeries of signed formats by an attacker that reads all packets and holds a member's keys: a campaign by seed.

python -m tests.sim.campaigns.run_seeds --kind forgeries --packets 1000000 --jobs 2
python -m tests.sim.campaigns.run_seeds --spark --kind forgeries --packets 1000000000

A seed is one signed session with proofs, details, key records and codes of control packets, and `PACKETS` forgeries of
them among the true ones. Nothing forged may be accepted, nothing may raise, and no true packet is called forged. The true
packets that arrive, with all proofs and details, are proved.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import numpy as np

from pgm.sim.invariant_broken import InvariantBroken
from pgm.trust.blocks import SignedSession
from pgm.trust.control_macs import SEGMENT_KEY_OCTETS
from pgm.trust.key_records import SecretHead, records_for, verify_records_untrusted
from pgm.trust.pair_table import KEY_ID_OCTETS, PairTable
from pgm.trust.proofs import Proof, Span
from pgm.trust.public_keys import PublicKeys
from pgm.trust.sealing import SealTerms
from pgm.trust.signer import BlockSigner
from pgm.trust.verifier import BlockVerifier, JudgedRun, ProofChain, Verdict
from pgm.units import MILLISECOND, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.packet_run import Run
from tests.unit.trust.keys import private_keys

PACKETS = 2000  # forgeries of a seed
_SOURCE, _MEMBER, _PARENT, _HOSTILE = (private_keys(number) for number in (101, 102, 103, 104))
_MEMBER_AT, _PARENT_AT, _HOSTILE_AT = "10.0.0.2", "10.0.0.3", "10.0.0.4"
_FILE = {_MEMBER_AT: (_MEMBER.public,), _PARENT_AT: (_PARENT.public,), _HOSTILE_AT: (_HOSTILE.public,)}
_KEPT = 64  # messages of each kind that the attacker remembers


@attrs.define(eq=False)
class ForgedSession:
    """One session in virtual time, with its attacker."""

    seed: int
    rng: random.Random
    signer: BlockSigner
    chain: ProofChain
    verifier: BlockVerifier
    member: PairTable
    parent: PairTable
    hostile: PairTable  # of a node that the file has, too
    now: int = 1_800_000_000 * SECOND
    forged: int = 0
    sqn: int = 0
    sent: list[Run] = attrs.field(factory=list)  # true packets whose verdict is open
    altered: set[int] = attrs.field(factory=set)  # sqns of packets that arrived with other octets
    told: int = 0
    proofs: list[bytes] = attrs.field(factory=list)
    records: list[bytes] = attrs.field(factory=list)
    requests: list[tuple[bytes, bytes]] = attrs.field(factory=list)  # codes and covered octets, member to parent
    answers: list[tuple[bytes, bytes]] = attrs.field(factory=list)  # of the parent, to all
    segment_keys: list[bytes] = attrs.field(factory=list)

    @classmethod
    def of_seed(cls, seed: int) -> ForgedSession:
        """Make the session of a seed."""
        rng = random.Random(seed)
        session = SignedSession(rng.randbytes(8), rng.getrandbits(63))
        keys: Callable[[str], PublicKeys | None] = {_SOURCE.public.id: _SOURCE.public}.get
        member, parent, hostile = (
            PairTable([own], _FILE, 5 * SECOND, 0, rng.randbytes(SEGMENT_KEY_OCTETS))
            for own in (_MEMBER, _PARENT, _HOSTILE)
        )
        one = cls(
            seed,
            rng,
            BlockSigner(_SOURCE, session, MILLISECOND, rng.choice((0, 2, 5))),
            ProofChain(session, keys),
            BlockVerifier(session, rng.choice((1 << 16, 1 << 20))),
            member,
            parent,
            hostile,
        )
        one.sqn = rng.choice((0, 1000, (1 << 32) - 50, 1 << 40))
        return one

    def fail(self, what: str) -> None:
        """Raise `InvariantBroken` with the command that repeats the seed."""
        repeat = f"python -m tests.sim.campaigns.run_seeds --kind forgeries --first {self.seed} --seeds 1 --verbose"
        raise InvariantBroken(self.seed, self.now, "receiver", f"forgery {self.forged}: {what}", repeat)

    def run(self) -> str:
        """Send, forge and judge, and settle the account."""
        while self.forged < PACKETS:
            self.now += self.rng.choice((1000, 100_000, MILLISECOND))
            self._send()
            for _ in range(self.rng.randint(1, 40)):
                self.forged += 1
                self.rng.choice((self._forge_proof, self._forge_proof, self._forge_records, self._forge_code))()
        self._arrive(self.signer.handle_deadline(self.now + SECOND))
        self._judge(self.verifier.end())
        if self.sent:
            self.fail(f"sqn {self.sent[0].first} has no verdict")
        return f"{self.forged} forgeries, {len(self.proofs)} proofs, {self.told} packets judged"

    # True packets

    def _send(self) -> None:
        """Send a run, of which some packets arrive altered, and a code of a control packet."""
        rng, count, octets = self.rng, self.rng.randint(1, 12), self.rng.randint(1, 30)
        stride = DATA_HEADER_OCTETS + octets
        run = Run(self.sqn, count, np.frombuffer(bytearray(rng.randbytes(count * stride)), np.uint8), 0, stride, 24)
        self.sqn = run.end
        self.sent.append(run)
        proofs = self.signer.take([run])
        arrived = Run(run.first, count, run.buffer.copy(), 0, stride, DATA_HEADER_OCTETS)
        if rng.random() < 0.2:
            row = rng.randrange(count)
            arrived.payloads[row, rng.randrange(octets)] ^= rng.randint(1, 255)
            self.altered.add(run.first + row)
        self._judge(self.verifier.take(arrived))
        self._arrive(proofs + (self.signer.handle_deadline(self.now) if rng.random() < 0.5 else []))
        covered = rng.randbytes(rng.randint(0, 40))
        request = self.member.make(_PARENT_AT, covered, self.now)
        if request is None or not self.parent.check_untrusted(_MEMBER_AT, request, covered, self.now):
            self.fail("the code of a true request was refused")
        else:
            self._keep(self.requests, (request, covered))
        self._answer(covered)

    def _answer(self, covered: bytes) -> None:
        """Send an answer, with the segment key in front of the first one."""
        if not self.segment_keys:
            content = self.parent.segment_key_for(_MEMBER_AT, self.now)
            proof = self.parent.make(_MEMBER_AT, b"", self.now)
            assert content is not None
            assert proof is not None
            if not self.member.check_untrusted(_PARENT_AT, proof, b"", self.now):
                self.fail("the code of a true segment key was refused")
            if not self.member.take_segment_key_untrusted(_PARENT_AT, proof, content):
                self.fail("a true segment key was refused")
            self.segment_keys.append(content)
        answer = self.parent.make_for_all(covered, self.now)
        if not self.member.check_for_all_untrusted(_PARENT_AT, answer, covered, self.now):
            self.fail("the code of a true answer was refused")
        self._keep(self.answers, (answer, covered))

    def _arrive(self, proofs: list[bytes]) -> None:
        for octets in proofs:
            self._keep(self.proofs, octets)
            self._judge(self._proved(octets))
        while (span := self.verifier.doubtful) is not None:
            details = self._details(span)
            self._keep(self.proofs, details)
            self._judge(self._proved(details))

    def _proved(self, octets: bytes) -> list[JudgedRun]:
        proof = self.chain.take_untrusted(octets)
        if not isinstance(proof, Proof):
            self.fail(f"a true proof was refused: {proof}")
            return []
        return self.verifier.prove(proof)

    def _details(self, span: Span) -> bytes:
        parts = [run.part(max(run.first, span.first), min(run.end, span.end)) for run in self.sent]
        [octets] = self.signer.details([part for part in parts if part.count > 0])
        return octets

    def _judge(self, judged: list[JudgedRun]) -> None:
        """Compare each verdict with the truth."""
        for one in judged:
            for sqn in range(one.run.first, one.run.end):
                self.told += 1
                is_altered = sqn in self.altered
                if one.verdict is Verdict.PROVED and is_altered:
                    self.fail(f"the altered packet {sqn} was proved")
                if one.verdict is Verdict.FORGED and not is_altered:
                    self.fail(f"the true packet {sqn} was called forged")
                if one.verdict is Verdict.UNPROVED and self.verifier.most_octets > 1 << 16:
                    self.fail(f"the packet {sqn} was not proved")
            while self.sent and self.sent[0].end <= one.run.end:
                self.sent.pop(0)

    def _keep(self, kept: list, message: object) -> None:
        kept.append(message)
        if len(kept) > _KEPT:
            del kept[0]

    # Forgeries

    def _changed(self, octets: bytes) -> bytes:
        """Return other octets made of true ones: flipped, cut, longer, or mixed with those of another message."""
        rng, changed = self.rng, bytearray(octets)
        how = rng.random()
        if how < 0.6:
            for _ in range(rng.choice((1, 1, 2, 8))):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        elif how < 0.7:
            del changed[rng.randrange(len(changed)) :]
        elif how < 0.8:
            changed += rng.randbytes(rng.choice((1, 44, 64)))
        else:
            other = rng.choice(self.proofs or [octets])
            at = rng.randrange(len(changed))
            changed[at:] = other[at:] if rng.random() < 0.5 else other[-64:]
        return bytes(changed)

    def _forge_proof(self) -> None:
        """Offer a replayed, changed or own proof. A proof is accepted only if it is one of the source's details."""
        rng, session = self.rng, self.signer.session
        how = rng.random()
        if self.proofs and how < 0.7:
            octets = rng.choice(self.proofs)
            octets = octets if how < 0.1 else self._changed(octets)
        else:
            spans = (Span(max(0, self.sqn - rng.randint(0, 40)), rng.randint(1, 32), rng.randbytes(32)),)
            key_id = _SOURCE.public.id if how < 0.9 else _HOSTILE.public.id
            proof = Proof(key_id, session, rng.randint(0, 1 << 20), rng.randbytes(32), spans, rng.random() < 0.5)
            octets = proof.signed_by(_HOSTILE)
        taken = self.chain.take_untrusted(octets)
        if isinstance(taken, Proof):
            if not taken.has_details or octets not in self.proofs:
                self.fail(f"a forged proof was taken: {octets.hex()}")
            self._judge(self.verifier.prove(taken))

    def _forge_records(self) -> None:
        """Offer changed key records, or records of another signer with a secret of its own."""
        rng = self.rng
        if not self.records or rng.random() < 0.01:
            head = SecretHead(_SOURCE.public.id, SealTerms(self.signer.session, rng.getrandbits(32), 86), self.sqn)
            members = [_MEMBER.public, _HOSTILE.public]
            self._keep(self.records, records_for(head, rng.randbytes(32), members, rng.randbytes(32), _SOURCE))
        octets = rng.choice(self.records)
        if rng.random() < 0.05:
            head = SecretHead(_SOURCE.public.id, SealTerms(self.signer.session, rng.getrandbits(32), 86), self.sqn)
            octets = records_for(head, rng.randbytes(32), [_MEMBER.public], rng.randbytes(32), _HOSTILE)
        octets = self._changed(octets)
        records = verify_records_untrusted(octets, _SOURCE.public)
        if records is not None and octets not in self.records:
            self.fail(f"forged key records were taken: {octets.hex()}")

    def _forge_code(self) -> None:
        """Offer a replayed code, a changed one, one for other octets, or one under the attacker's own keys.

        Half of them are of requests, which a parent takes, and half of answers, which a member takes.
        """
        rng = self.rng
        is_request = rng.random() < 0.5
        code, covered = rng.choice(self.requests if is_request else self.answers)
        how = rng.random()
        if how < 0.3:
            code = self._changed(code)
        elif how < 0.5:
            covered = self._changed(covered + b"x")
        elif how < 0.6:
            own = self.hostile.make(_PARENT_AT if is_request else _MEMBER_AT, covered, self.now)
            assert own is not None
            code = rng.choice((own, code[:KEY_ID_OCTETS] + own[KEY_ID_OCTETS:]))
        elif how < 0.7:
            own = self.hostile.make_for_all(covered, self.now + rng.randint(0, SECOND))
            code = rng.choice((own, code[:KEY_ID_OCTETS] + own[KEY_ID_OCTETS:]))
        elif how < 0.8:
            code = code[:KEY_ID_OCTETS] + self.now.to_bytes(8, "big") + rng.randbytes(16)
        node, address = (self.parent, _MEMBER_AT) if is_request else (self.member, _PARENT_AT)
        check = node.check_untrusted if rng.random() < 0.8 else node.check_for_all_untrusted
        if not is_request and rng.random() < 0.8:
            check = node.check_for_all_untrusted
        if check(address, code, covered, self.now):
            self.fail(f"a forged code was taken: {code.hex()} for {covered.hex()}")
        content = self._changed(self.segment_keys[0])
        if node.take_segment_key_untrusted(address, code, content):
            self.fail(f"a forged segment key was taken: {content.hex()}")


def run(seed: int) -> str:
    """Run one seed. Raises `InvariantBroken`."""
    return ForgedSession.of_seed(seed).run()
