"""Forgeries of every kind of packet: a table that grows by one row for each new packet or field.

A forgery is a function of `Mint`, which knows what was heard. It returns a packet with a correct checksum, or None as long as
the attacker has not heard enough. The attacker has keys of its own, and no others.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs

from pgm.core.late_join.states import StateKind, StateMessage, state_port, state_tsi
from pgm.core.session.proofs import proof_tsi
from pgm.trust.blocks import SignedSession
from pgm.trust.key_records import SecretHead, records_for
from pgm.trust.proofs import SIGNATURE_OCTETS, Proof, Span, decode_proof_untrusted, hash_of_proof
from pgm.trust.sealing import SealTerms
from pgm.units import SECOND
from pgm.wire.checksum import CHECKSUM_AT, checksum
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Polr, Spm, Spmr, encode
from pgm.wire.formats import DATA_HEADER_OCTETS, HEADER_OCTETS, SQN_AT, TYPE_AT, Nla, PacketType, Tsi
from pgm.wire.options import (
    Acker,
    Cr,
    CurrTgsize,
    Epoch,
    Fin,
    Flow,
    Fragment,
    HeldHistory,
    Join,
    Members,
    NakBoIvl,
    NakList,
    NbrUnreach,
    Option,
    ParityGrp,
    ParityPrm,
    PgmccFeedback,
    Redirect,
    Rst,
    SpmSignature,
    StateOffer,
    UnknownOption,
)
from pgm.wire.sequence_numbers import wrap
from pgm.wire.signed_spm import SpmSigner
from tests.attacks.heard import Heard, HeardSession
from tests.reference import data_packet
from tests.sim.support.mutations import Edges, Mutator
from tests.unit.trust.keys import private_keys

T = PacketType
V = TypeVar("V")
OWN_KEYS = private_keys(666)
_MEMBERS = [private_keys(number).public for number in (667, 668)]
_DATA = (T.ODATA, T.RDATA)
FAR = (10_000, 1_000_000, 1 << 30, (1 << 31) - 1)


class To(enum.Enum):
    """Way of a forgery."""

    GROUP = "group"  # all nodes of the segment
    NODE = "node"  # one node, by unicast


@attrs.define(eq=False)
class Mint:
    """Maker of forged packets out of what was heard. `now_ns` is the time by which sources sign."""

    heard: Heard
    rng: random.Random
    own: Nla  # address of the attacker
    now_ns: int = 0
    _signer: SpmSigner = attrs.field(factory=lambda: SpmSigner(OWN_KEYS.public.id_octets, OWN_KEYS.sign), init=False)
    _mutator: Mutator = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        place = self.heard.place
        edges = Edges(0, 0, 0, 1 << 20, 8192, (place.source_nla, self.own), (place.group,))
        self._mutator = Mutator(self.rng, edges)

    @property
    def stream(self) -> HeardSession:
        """Return a session of the attacked stream."""
        return _known(self.heard.stream())

    @property
    def proofs(self) -> HeardSession:
        """Return a session of proofs."""
        return _known(self.heard.proofs())

    def packet(self, *kinds: PacketType) -> bytes:
        """Return a heard packet."""
        return _known(self.heard.any_of(*kinds))

    @property
    def proof_packet(self) -> bytes:
        """Return a heard packet with a proof."""
        heard = self.heard.of_proofs
        return self.rng.choice(heard) if heard else _known(None)

    def near(self, session: HeardSession, ahead: int = 20, behind: int = 300) -> int:
        """Return a sqn near the lead of a session."""
        return wrap(session.lead + self.rng.randint(-behind, ahead))

    def size(self) -> int:
        """Return the octets of a payload, mostly those of the stream's packets."""
        heard = self.heard.of_type.get(T.ODATA)
        if heard and self.rng.random() < 0.8:
            return max(0, len(heard[-1]) - DATA_HEADER_OCTETS)
        return self.rng.choice((0, 1, 24, 100, 1376))

    def data(self, session: HeardSession, sqn: int, kind: PacketType, *options: Option, parity: bool = False) -> bytes:
        """Return data of a session with random octets."""
        ends = {"tsi": session.tsi, "data_port": session.data_port, "trail": session.trail}
        return data_packet(sqn, self.rng.randbytes(self.size()), kind=kind, options=options, parity=parity, **ends)  # type: ignore[arg-type]

    def spm(self, session: HeardSession, *options: Option, **changes: int | Nla) -> bytes:
        """Return the next SPM of a session with other edges or options."""
        place = self.heard.place
        fields = {
            "spm_sqn": wrap(session.spm_sqn + self.rng.choice((1, 1, 1, 2, 100))),
            "trail": session.trail,
            "lead": session.lead,
            "path_nla": place.source_nla,
            **changes,
        }
        return encode(Spm(tsi=session.tsi, data_port=session.data_port, options=options, **fields))  # type: ignore[arg-type]

    def nak(self, kind: PacketType, sqns: Sequence[int], *options: Option, parity: bool = False) -> bytes:
        """Return a NAK, NNAK or NCF of the stream."""
        session, place = self.stream, self.heard.place
        more = (NakList(tuple(sqns[1:])),) if len(sqns) > 1 else ()
        ends = {"source_nla": place.source_nla, "group_nla": place.group}
        return encode(
            Nak(
                tsi=session.tsi,
                data_port=session.data_port,
                kind=kind,
                sqn=sqns[0],
                options=(*more, *options),
                parity=parity,
                **ends,
            )
        )

    def sqns(self, most: int = 62) -> list[int]:
        """Return some sqns near the lead, in order."""
        session = self.stream
        return sorted({self.near(session) for _ in range(self.rng.choice((1, 1, 2, 8, most)))})

    def control(self, make: type[Packet], *options: Option, **fields: int | Nla) -> bytes:
        """Return another control packet of the stream."""
        session = self.stream
        return encode(make(tsi=session.tsi, data_port=session.data_port, options=options, **fields))  # type: ignore[arg-type]

    def mutated(self, octets: bytes) -> bytes:
        """Return a heard packet with changed options, fields or octets."""
        session = self.stream
        edges = self._mutator.edges
        edges.lead, edges.trail, edges.spm_sqn = session.lead, session.trail, session.spm_sqn
        return self._mutator.mutated(octets)

    def signed_by_own_keys(self, octets: bytes) -> bytes:
        """Return an SPM with a signature by keys that the stream does not have."""
        session = self.stream
        spm = _known(session.spm)
        bare = tuple(one for one in spm.options if not isinstance(one, SpmSignature))
        changed = attrs.evolve(
            spm, spm_sqn=wrap(spm.spm_sqn + 1), lead=self.near(session, 1000, 0), options=bare, octets=b""
        )
        signed = self._signer.signed(changed, self.now_ns)
        if self.rng.random() < 0.5:
            return encode(signed)
        option = _signature(signed)
        true = _signature(spm)
        claimed = attrs.evolve(option, proof=true.proof[:10] + option.proof[10:])
        return encode(attrs.evolve(signed, options=(*bare, claimed)))

    def epoch_of(self, session: HeardSession) -> int:
        """Return the start of a session, which its SPMs tell."""
        spm = session.spm
        found = [one for one in (spm.options if spm else ()) if isinstance(one, Epoch)]
        return found[0].start_s * SECOND + found[0].start_ns if found else 0


class NotHeardError(Exception):
    """The attacker has not yet heard what the forgery needs."""


def _known(found: V | None) -> V:
    if found is None:
        raise NotHeardError
    return found


def _signature(spm: Spm) -> SpmSignature:
    return _known(next((one for one in spm.options if isinstance(one, SpmSignature)), None))


def sealed(octets: bytes) -> bytes:
    """Return a packet with a correct checksum."""
    bare = octets[:CHECKSUM_AT] + b"\0\0" + octets[CHECKSUM_AT + 2 :]
    return bare[:CHECKSUM_AT] + checksum(bare) + bare[CHECKSUM_AT + 2 :]


def _flipped(rng: random.Random, octets: bytes, first: int) -> bytes:
    changed = bytearray(octets)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(first, len(changed))] ^= 1 << rng.randrange(8)
    return sealed(bytes(changed))


# Data


def _altered_data(mint: Mint, kind: PacketType) -> bytes:
    octets = mint.packet(*_DATA)
    if len(octets) <= DATA_HEADER_OCTETS:
        raise NotHeardError
    changed = _flipped(mint.rng, octets, DATA_HEADER_OCTETS)
    return sealed(changed[:TYPE_AT] + bytes([kind]) + changed[TYPE_AT + 1 :])


def _ahead(mint: Mint, kind: PacketType) -> bytes:
    session = mint.stream
    return mint.data(session, wrap(session.lead + mint.rng.randint(1, 20)), kind)


def _far_ahead(mint: Mint, kind: PacketType) -> bytes:
    session = mint.stream
    return mint.data(session, wrap(session.lead + mint.rng.choice(FAR)), kind)


def _fragment(mint: Mint) -> bytes:
    session = mint.stream
    first = mint.near(session)
    option = Fragment(first, mint.rng.choice((0, 100, 1 << 31)), mint.rng.choice((1, 1000, 1 << 20, (1 << 32) - 1)))
    return mint.data(session, wrap(first + mint.rng.randint(0, 3)), T.ODATA, option)


def _parity(mint: Mint) -> bytes:
    session = mint.stream
    options = mint.rng.choice(((), (ParityGrp(mint.rng.randrange(8)),), (CurrTgsize(mint.rng.randint(1, 8)),)))
    return mint.data(session, mint.near(session), T.RDATA, *options, parity=True)


def _end_in_data(mint: Mint) -> bytes:
    session = mint.stream
    return mint.data(session, wrap(session.lead + mint.rng.randint(0, 2)), T.ODATA, Fin())


def _trail_in_data(mint: Mint) -> bytes:
    session = mint.stream
    moved = attrs.evolve(session, trail=wrap(session.lead + mint.rng.choice((0, 1, 100, 1 << 20))))
    return mint.data(moved, mint.near(session), T.ODATA, Join(mint.near(session)))


def _mixed_data(mint: Mint) -> bytes:
    """Return the header of one session, and the octets of a packet of any other."""
    one, other = mint.packet(*_DATA), mint.packet(*_DATA)
    payload = other[DATA_HEADER_OCTETS:]
    head = one[:14] + len(payload).to_bytes(2, "big") + one[16:DATA_HEADER_OCTETS]
    return sealed(head[:5] + bytes([other[5]]) + head[6:] + payload)


def _as_other_session(mint: Mint) -> bytes:
    """Return a heard packet from above in the name of another session of its port."""
    octets, tsi = mint.packet(T.ODATA, T.RDATA, T.SPM), mint.stream.tsi
    return sealed(tsi[6:] + octets[2:8] + tsi[:6] + octets[14:])


def _at_other_sqn(mint: Mint) -> bytes:
    octets = mint.packet(*_DATA)
    return sealed(octets[:SQN_AT] + mint.near(mint.stream).to_bytes(4, "big") + octets[SQN_AT + 4 :])


# SPMs


def _with_heard_signature(mint: Mint, *options: Option, **changes: int) -> bytes:
    spm = _known(mint.stream.spm)
    if options:
        changes["spm_sqn"] = wrap(spm.spm_sqn + 1)
    return encode(attrs.evolve(spm, options=(*spm.options, *options), octets=b"", **changes))


def _signed_spm_with_edges(mint: Mint) -> bytes:
    session = mint.stream
    spm_sqn = wrap(session.spm_sqn + 1)
    which = mint.rng.choice(("lead", "trail"))
    return _with_heard_signature(mint, spm_sqn=spm_sqn, **{which: mint.near(session, 1 << 20, 100)})


def _spm_far(mint: Mint) -> bytes:
    session = mint.stream
    return mint.spm(session, lead=wrap(session.lead + mint.rng.choice(FAR)))


def _spm_trail(mint: Mint) -> bytes:
    session = mint.stream
    return mint.spm(session, trail=wrap(session.lead + mint.rng.choice((0, 1, 1000))))


def _spm_terms(mint: Mint) -> bytes:
    rng = mint.rng
    option = rng.choice(
        (
            Epoch(rng.choice((0, 1, 1 << 29)), rng.getrandbits(32), rng.randrange(SECOND)),
            ParityPrm(rng.choice((2, 8, 128)), on_demand=True),
            Flow(1, 1, 1000, 1000, 1000),
            NakBoIvl(1 << 31, 0),
            Acker(mint.own),
            StateOffer(mint.near(mint.stream)),
            NbrUnreach(),
            Join(mint.near(mint.stream)),
        )
    )
    return mint.spm(mint.stream, option)


def _spm_path(mint: Mint) -> bytes:
    """Return a heard SPM with its true signature, which does not cover the path, and the attacker as its sender."""
    spm = _known(mint.stream.spm)
    return encode(attrs.evolve(spm, path_nla=mint.own, octets=b""))


# Requests and answers


def _nak_elsewhere(mint: Mint) -> bytes:
    session, rng = mint.stream, mint.rng
    nak = Nak(
        tsi=session.tsi,
        data_port=session.data_port,
        kind=rng.choice((T.NAK, T.NNAK)),
        sqn=mint.near(session),
        source_nla=mint.own,
        group_nla="239.255.255.1",
    )
    return encode(nak if rng.random() < 0.5 else attrs.evolve(nak, tsi=rng.randbytes(8)))


def _history(mint: Mint) -> bytes:
    rng = mint.rng
    how = rng.choice(("by_count", "by_time", "by_sqn", "answers"))
    option = HeldHistory(
        rng.choice((0, 1, 1000, (1 << 32) - 1, mint.near(mint.stream))), rng.randrange(1000), **{how: True}
    )  # type: ignore[arg-type]
    if rng.random() < 0.5:
        return mint.control(Spmr, option)
    return mint.nak(T.NAK, mint.sqns(8), option)


def _poll(mint: Mint) -> bytes:
    rng = mint.rng
    return mint.control(
        Poll,
        poll_sqn=rng.randrange(8),
        poll_round=rng.randrange(3),
        sub_type=rng.randrange(2),
        path_nla=rng.choice((mint.own, mint.heard.place.source_nla)),
        bo_ivl_us=rng.choice((0, 1000, 1 << 31)),
        rand=rng.getrandbits(32),
        mask=0,
    )


def _poll_response(mint: Mint, *options: Option) -> bytes:
    return mint.control(Polr, *options, poll_sqn=mint.rng.randrange(8), poll_round=mint.rng.randrange(3))


def _ack(mint: Mint) -> bytes:
    rng = mint.rng
    place = mint.heard.place
    said = Members(rng.choice((0, 1, 1000)), rng.choice((mint.own, *place.members)), leaves=rng.random() < 0.3, joins=rng.random() < 0.3, is_element=rng.random() < 0.3)  # fmt: skip
    return mint.control(Ack, said, rx_max=mint.near(mint.stream), bitmap=0)


def _report(mint: Mint) -> bytes:
    rng = mint.rng
    if rng.random() < 0.5:
        feedback = PgmccFeedback(rng.getrandbits(32), 1, rng.choice((0, 0x8000, 0xFFFF)), mint.own)
        return mint.control(Ack, feedback, rx_max=mint.near(mint.stream), bitmap=rng.getrandbits(32))
    worst = Cr(mint.near(mint.stream), 0xFFFF, 0xFFFF, 0xFFFF, receiver=mint.own, has_rx_wp=True)
    return mint.nak(T.NAK, mint.sqns(1), worst)


# Proofs and key records


def _proof_payload(mint: Mint, octets: bytes, kind: PacketType = T.ODATA, ahead: int = 3) -> bytes:
    session = mint.proofs
    sqn = mint.near(session, ahead, 20)
    ends = {"tsi": session.tsi, "data_port": session.data_port}
    return data_packet(sqn, octets, kind=kind, trail=session.trail, **ends)  # type: ignore[arg-type]


def _altered_proof(mint: Mint) -> bytes:
    octets = mint.proof_packet
    return _flipped(mint.rng, octets, DATA_HEADER_OCTETS)


def _own_proof(mint: Mint) -> bytes:
    """Return a proof of random digests, or of the attacker's own, under keys of the attacker."""
    rng = mint.rng
    heard = mint.proof_packet
    last = _known(decode_proof_untrusted(heard[DATA_HEADER_OCTETS:]))
    end = last.spans[-1].end
    spans = (Span(max(0, end - rng.randrange(64)), rng.randint(1, 32), rng.randbytes(32)),)
    previous = hash_of_proof(heard[DATA_HEADER_OCTETS:])
    key_id = rng.choice((last.key_id, OWN_KEYS.public.id))
    proof = Proof(key_id, last.session, last.number + 1, previous, spans, rng.random() < 0.3)
    return _proof_payload(mint, proof.signed_by(OWN_KEYS), rng.choice(_DATA))


def _spliced_proof(mint: Mint) -> bytes:
    one, other = mint.proof_packet, mint.proof_packet
    return _proof_payload(mint, one[DATA_HEADER_OCTETS:-SIGNATURE_OCTETS] + other[-SIGNATURE_OCTETS:])


def _moved_proof(mint: Mint) -> bytes:
    return _proof_payload(mint, mint.proof_packet[DATA_HEADER_OCTETS:], mint.rng.choice(_DATA))


def _proof_spm(mint: Mint) -> bytes:
    session = mint.proofs
    end = mint.rng.choice(((), (Fin(),), (Rst(),)))
    return mint.spm(session, *end, lead=wrap(session.lead + mint.rng.choice((0, 1, 1000, 1 << 30))))


def _new_proofs(mint: Mint) -> bytes:
    """Return a proof of a session that nobody sends."""
    session = mint.proofs
    other = attrs.evolve(session, tsi=proof_tsi(mint.rng.randbytes(8)))
    return data_packet(0, mint.proof_packet[DATA_HEADER_OCTETS:], tsi=other.tsi, data_port=other.data_port)


def _states(mint: Mint) -> HeardSession:
    """Return the session of the states of a stream, which the attacker need not have heard."""
    stream = mint.stream
    return attrs.evolve(stream, tsi=state_tsi(stream.tsi), data_port=state_port(stream.data_port))


def _state(mint: Mint) -> bytes:
    """Return a whole state of the attacker, near the lead of the stream."""
    rng, session = mint.rng, _states(mint)
    state = rng.randbytes(rng.choice((0, 10, 500)))
    message = StateMessage(StateKind.WHOLE, mint.near(session), len(state), memoryview(state)).encode()
    ends = {"tsi": session.tsi, "data_port": session.data_port}
    return data_packet(rng.randrange(60), message, kind=rng.choice(_DATA), **ends)  # type: ignore[arg-type]


def _state_spm(mint: Mint) -> bytes:
    """Return the announcement of a state, perhaps under the signature of the attacker."""
    session = _states(mint)
    return mint.spm(session, StateOffer(sqn=mint.near(session)), lead=mint.rng.randrange(60), trail=0)


def _key_records(mint: Mint) -> bytes:
    rng = mint.rng
    stream = mint.stream
    terms = SealTerms(SignedSession(stream.tsi, mint.epoch_of(stream)), rng.getrandbits(32), 86)
    last = _known(decode_proof_untrusted(mint.proof_packet[DATA_HEADER_OCTETS:]))
    head = SecretHead(rng.choice((last.key_id, OWN_KEYS.public.id)), terms, last.spans[-1].end)
    octets = records_for(head, rng.randbytes(32), _MEMBERS, rng.randbytes(32), OWN_KEYS)
    return _proof_payload(mint, octets, rng.choice(_DATA))


# New sessions, and packets of any kind


def _new_session(mint: Mint) -> bytes:
    rng = mint.rng
    session: Tsi = rng.randbytes(8)
    new = HeardSession(session, rng.choice((mint.heard.place.data_port, mint.proofs.data_port)), lead=5)
    if rng.random() < 0.5:
        return mint.data(new, 5, T.ODATA)
    return mint.spm(new, Epoch(0, mint.now_ns // SECOND, 0))


def _cut(mint: Mint) -> bytes:
    rng = mint.rng
    octets = rng.choice(mint.heard.replayed or [b""])
    if len(octets) <= HEADER_OCTETS:
        raise NotHeardError
    return sealed(
        octets[: rng.randrange(HEADER_OCTETS, len(octets))] if rng.random() < 0.7 else octets + rng.randbytes(8)
    )


def _replay(mint: Mint) -> bytes:
    replayed = mint.heard.replayed
    return mint.rng.choice(replayed) if replayed else _known(None)


def _junk(mint: Mint) -> bytes:
    return mint.rng.randbytes(mint.rng.choice((1, 15, 16, 24, 60, 1400)))


@attrs.frozen
class Forgery:
    """Row of the table. `kind` is the packet of issue's list that it forges; `weight` is its share."""

    name: str
    kind: str
    make: Callable[[Mint], bytes]
    to: tuple[To, ...] = (To.GROUP,)
    weight: int = 4


_BOTH, _UP = (To.GROUP, To.NODE), (To.NODE,)

FORGERIES: tuple[Forgery, ...] = (
    Forgery("altered-odata", "ODATA", lambda mint: _altered_data(mint, T.ODATA), weight=8),
    Forgery("odata-ahead", "ODATA", lambda mint: _ahead(mint, T.ODATA), weight=8),
    Forgery("odata-far-ahead", "ODATA", lambda mint: _far_ahead(mint, T.ODATA)),
    Forgery("fragment", "ODATA", _fragment),
    Forgery("trail-in-data", "ODATA", _trail_in_data),
    Forgery("altered-rdata", "RDATA", lambda mint: _altered_data(mint, T.RDATA), _BOTH, weight=8),
    Forgery("rdata-ahead", "RDATA", lambda mint: _ahead(mint, T.RDATA), _BOTH),
    Forgery("rdata-far-ahead", "RDATA", lambda mint: _far_ahead(mint, T.RDATA)),
    Forgery("parity", "RDATA", _parity, _BOTH),
    Forgery("data-of-two-sessions", "mixed", _mixed_data),
    Forgery("packet-as-other-session", "mixed", _as_other_session),
    Forgery("packet-at-other-sqn", "mixed", _at_other_sqn),
    Forgery("spm", "SPM", lambda mint: mint.spm(mint.stream)),
    Forgery("spm-far-ahead", "SPM", _spm_far),
    Forgery("spm-trail", "SPM", _spm_trail),
    Forgery("spm-terms", "SPM", _spm_terms),
    Forgery("spm-path", "SPM", _spm_path, weight=1),
    Forgery("spm-edges-under-true-signature", "SPM", _signed_spm_with_edges),
    Forgery("spm-of-own-keys", "SPM", lambda mint: mint.signed_by_own_keys(b""), weight=1),
    Forgery("fin", "FIN", lambda mint: mint.spm(mint.stream, Fin())),
    Forgery("fin-under-true-signature", "FIN", lambda mint: _with_heard_signature(mint, Fin())),
    Forgery("fin-in-data", "FIN", _end_in_data),
    Forgery("rst", "RST", lambda mint: mint.spm(mint.stream, Rst(no_naks=mint.rng.random() < 0.5, error=1))),
    Forgery("rst-under-true-signature", "RST", lambda mint: _with_heard_signature(mint, Rst())),
    Forgery("ncf", "NCF", lambda mint: mint.nak(T.NCF, mint.sqns())),
    Forgery("ncf-far-ahead", "NCF", lambda mint: mint.nak(T.NCF, [wrap(mint.stream.lead + mint.rng.choice(FAR))])),
    Forgery("nak", "NAK", lambda mint: mint.nak(T.NAK, mint.sqns()), _UP, weight=8),
    Forgery("nak-far-ahead", "NAK", lambda mint: mint.nak(T.NAK, [mint.rng.getrandbits(32)]), _UP),
    Forgery("nak-of-parity", "NAK", lambda mint: mint.nak(T.NAK, mint.sqns(1), parity=True), _UP),
    Forgery("null-nak", "NAK", lambda mint: mint.nak(T.NNAK, mint.sqns()), _BOTH),
    Forgery("nak-of-other-source", "NAK", _nak_elsewhere, _UP),
    Forgery("multicast-nak", "NAK", lambda mint: mint.nak(T.NAK, mint.sqns())),
    Forgery("spmr", "SPMR", lambda mint: mint.control(Spmr), _BOTH),
    Forgery("poll", "POLL", _poll),
    Forgery("poll-response", "POLR", _poll_response, _BOTH),
    Forgery("redirect", "POLR", lambda mint: _poll_response(mint, Redirect(mint.own)), _BOTH),
    Forgery("ack", "ack", _ack, _UP),
    Forgery("report", "report", _report, _UP),
    Forgery("history", "history", _history, _UP),
    Forgery("state", "state", _state, weight=2),
    Forgery("spm-of-states", "state", _state_spm),
    Forgery("altered-proof", "proof", _altered_proof),
    Forgery("proof-of-own-keys", "proof", _own_proof, weight=2),
    Forgery("spliced-proof", "proof", _spliced_proof),
    Forgery("moved-proof", "proof", _moved_proof),
    Forgery("spm-of-proofs", "proof", _proof_spm),
    Forgery("new-session-of-proofs", "proof", _new_proofs),
    Forgery("key-records", "key records", _key_records, weight=1),
    Forgery("new-session", "session", _new_session, weight=8),
    Forgery("mutated", "mutated", lambda mint: mint.mutated(_replay(mint)), _BOTH, weight=16),
    Forgery("unknown-option", "mutated", lambda mint: mint.spm(mint.stream, UnknownOption(0x55, 0, 0, b"octets"))),
    Forgery("cut", "cut", _cut, _BOTH),
    Forgery("replay", "replay", _replay, _BOTH, weight=12),
    Forgery("junk", "junk", _junk, _BOTH, weight=1),
)
