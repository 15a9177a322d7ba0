"""Everything that an attacker knows of a segment: the packets that it heard, and the edges of the sessions in them."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator

import attrs

from pgm.core.session.proofs import proof_port
from pgm.wire.control_packets import Spm, decode_control_untrusted
from pgm.wire.formats import HEADER_OCTETS, SQN_AT, TYPE_AT, UPSTREAM, Nla, PacketType, Tsi
from pgm.wire.sequence_numbers import HALF, wrap

_RECENT = 64  # packets of each type that are changed
_REPLAYED = 4096  # packets of any age: all of a short run, else a random sample
_MOST_SESSIONS = 16


@attrs.frozen
class Place:
    """Segment as an attacker finds it: addresses, and the data port of the attacked stream."""

    group: Nla
    source_nla: Nla  # by which NAKs of the segment name the source
    members: tuple[Nla, ...]  # all nodes of the segment
    data_port: int


@attrs.define
class HeardSession:
    """Newest edges of a session."""

    tsi: Tsi
    data_port: int
    trail: int = 0
    lead: int = 0
    spm: Spm | None = None  # the newest one, with its signature

    @property
    def spm_sqn(self) -> int:
        """SPM_SQN of the newest SPM."""
        return 0 if self.spm is None else self.spm.spm_sqn


@attrs.define(eq=False)
class Heard:
    """Memory of one attacker on one segment."""

    place: Place
    rng: random.Random
    sessions: dict[Tsi, HeardSession] = attrs.field(factory=dict)
    of_type: dict[int, collections.deque[bytes]] = attrs.field(factory=dict)
    of_proofs: collections.deque[bytes] = attrs.field(factory=lambda: collections.deque(maxlen=_RECENT))
    replayed: list[bytes] = attrs.field(factory=list)
    packets: int = 0

    def hear(self, octets: bytes) -> None:
        """Remember a packet that a true node sent."""
        if len(octets) < HEADER_OCTETS:
            return
        kind = octets[TYPE_AT] & 0x0F
        session = self._session(octets, kind)
        if session is not None:
            self._follow(session, octets, kind)
        self._remember(octets, kind)

    def _session(self, octets: bytes, kind: int) -> HeardSession | None:
        sport, dport = octets[0:2], octets[2:4]
        if kind in UPSTREAM:
            sport, dport = dport, sport
        tsi, data_port = octets[8:14] + sport, int.from_bytes(dport, "big")
        session = self.sessions.get(tsi)
        if session is None and len(self.sessions) < _MOST_SESSIONS:
            session = self.sessions[tsi] = HeardSession(tsi, data_port)
        return session

    def _follow(self, session: HeardSession, octets: bytes, kind: int) -> None:
        if kind == PacketType.SPM:
            spm = decode_control_untrusted(octets)
            assert isinstance(spm, Spm)
            session.spm, session.trail, session.lead = spm, spm.trail, spm.lead
        elif kind == PacketType.ODATA:
            sqn = int.from_bytes(octets[SQN_AT : SQN_AT + 4], "big")
            if wrap(sqn - session.lead) < HALF:
                session.lead = sqn
            session.trail = int.from_bytes(octets[SQN_AT + 4 : SQN_AT + 8], "big")

    def _remember(self, octets: bytes, kind: int) -> None:
        rng = self.rng
        is_proof = kind in (PacketType.ODATA, PacketType.RDATA) and self.is_of_proofs(octets)
        recent = self.of_proofs if is_proof else self.of_type.setdefault(kind, collections.deque(maxlen=_RECENT))
        recent.append(octets)
        self.packets += 1
        if len(self.replayed) < _REPLAYED:
            self.replayed.append(octets)
        elif rng.random() < _REPLAYED / self.packets:
            self.replayed[rng.randrange(_REPLAYED)] = octets

    def is_of_proofs(self, octets: bytes) -> bool:
        """Return whether a packet from above is one of proofs."""
        return int.from_bytes(octets[2:4], "big") == proof_port(self.place.data_port)

    def any_of(self, *kinds: PacketType) -> bytes | None:
        """Return a heard packet of one of these types, or None."""
        found = [kept for kind in kinds if (kept := self.of_type.get(kind))]
        return self.rng.choice(self.rng.choice(found)) if found else None

    def _of_port(self, data_port: int) -> Iterator[HeardSession]:
        return (one for one in self.sessions.values() if one.data_port == data_port)

    def stream(self) -> HeardSession | None:
        """Return a session of the stream; None while none was heard."""
        found = list(self._of_port(self.place.data_port))
        return self.rng.choice(found) if found else None

    def proofs(self) -> HeardSession | None:
        """Return a session of proofs; None while none was heard."""
        found = list(self._of_port(proof_port(self.place.data_port)))
        return self.rng.choice(found) if found else None
