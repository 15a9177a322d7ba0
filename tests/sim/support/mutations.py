"""Mutated packets: valid packets with changed options, fields and octets.

All but a few have a correct checksum.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from pgm.wire.checksum import CHECKSUM_AT, checksum
from pgm.wire.control_packets import Ack, Nak, Poll, Polr, Spm, Spmr, encode
from pgm.wire.formats import (
    DATA_HEADER_OCTETS,
    FLAGS_AT,
    HEADER_OCTETS,
    OPTIONS_NETWORK,
    OPTIONS_PARITY,
    OPTIONS_PRESENT,
    OPTIONS_VAR_PKTLEN,
    SQN_AT,
    TSDU_LENGTH_AT,
    TYPE_AT,
    PacketType,
)
from pgm.wire.options import (
    OPT_END,
    Acker,
    Cr,
    Crqst,
    CurrTgsize,
    Epoch,
    Fin,
    Flow,
    Fragment,
    HeldHistory,
    Join,
    Members,
    NakBoIvl,
    NakBoRng,
    NakList,
    NbrUnreach,
    Option,
    ParityGrp,
    ParityPrm,
    PathNla,
    PgmccData,
    PgmccFeedback,
    Redirect,
    Rst,
    StateOffer,
    Syn,
    UnknownOption,
    encode_options,
)
from pgm.wire.sequence_numbers import HALF, wrap
from tests.reference import DATA_PORT, OTHER_TSI, TSI, data_packet

T = PacketType
ATTACKER = "10.1.0.66"
_DATA = (T.ODATA, T.RDATA)
# Offset of the options, with IPv4 addresses.
_HEADS = {
    T.ODATA: DATA_HEADER_OCTETS,
    T.RDATA: DATA_HEADER_OCTETS,
    T.SPM: 36,
    T.NAK: 36,
    T.NNAK: 36,
    T.NCF: 36,
    T.SPMR: HEADER_OCTETS,
}
_RARE = 60  # one option in this many ends a session, or changes the session's identity


@attrs.define
class Edges:
    """State of the true stream.

    Sqns are drawn near its edges, and near the limits around them.
    """

    trail: int
    lead: int
    spm_sqn: int
    jump: int  # largest jump of a lead that is followed
    ahead: int  # largest distance at which an NCF may reveal sqns
    sources: Sequence[str]  # addresses by which NAKs name the source
    groups: Sequence[str]


class Mutator:
    """Generator of packets about one stream; the caller keeps `edges` up to date."""

    def __init__(self, rng: random.Random, edges: Edges) -> None:
        self.rng = rng
        self.edges = edges
        self._drawn: tuple[Callable[[], Option], ...] = (
            lambda: CurrTgsize(self._size()),
            lambda: CurrTgsize(self.rng.randint(1, 8)),
            lambda: ParityPrm(self._group_size(), proactive=self.rng.random() < 0.5, on_demand=self.rng.random() < 0.7),
            lambda: ParityGrp(self._size()),
            lambda: Fragment(self.sqn_near(), self._size(), self._size()),
            lambda: NakList(tuple(self.sqn_near() for _ in range(self.rng.randint(0, 62)))),
            lambda: NakList(tuple(sorted({self.sqn_near() for _ in range(self.rng.randint(1, 8))}))),
            lambda: Join(self.sqn_near()),
            lambda: NakBoIvl(self.rng.choice((0, 1, 1000, 1 << 31)), self.rng.choice((0, 1))),
            lambda: NakBoRng(self.rng.choice((0, 1000, 1 << 31)), self.rng.choice((0, 1, 10_000))),
            lambda: Redirect(self._address()),
            lambda: NbrUnreach(),
            lambda: PathNla(self._address()),
            lambda: Syn(),
            lambda: Cr(self.sqn_near(), 1, 2, 3, receiver=self._address(), has_rx_wp=True),
            lambda: Crqst(wants_rx_wp=self.rng.random() < 0.5),
            lambda: PgmccData(self._size(), self._address()),
            lambda: PgmccFeedback(self._size(), 1, self.rng.getrandbits(16), ATTACKER),
            lambda: Flow(*(self._size() for _ in range(5))),
            lambda: HeldHistory(
                self.sqn_near(), self._size(), *(self.rng.random() < 0.4 for _ in range(5))
            ),
            lambda: Members(self._size(), self._address(), *(self.rng.random() < 0.3 for _ in range(4))),
            lambda: Acker(self._address()),
            lambda: StateOffer(self.sqn_near(), self.rng.random() < 0.3),
            lambda: UnknownOption(self.rng.randrange(0x20, 0x60), self.rng.randrange(8), self.rng.getrandbits(8), self.rng.randbytes(self.rng.randrange(12))),
        )  # fmt: skip
        self._drawn_rarely: tuple[Callable[[], Option], ...] = (
            lambda: Fin(),
            lambda: Rst(no_naks=self.rng.random() < 0.5, error=self.rng.randrange(64)),
            lambda: Epoch(self.rng.choice((0, 1, 1 << 29, 1 << 31)), self.rng.getrandbits(32), self._size()),
        )
        self._changes: tuple[Callable[[bytes], bytes], ...] = (
            *(self._with_options,) * 6,
            *(self._with_field,) * 5,
            *(self._with_flag,) * 2,
            *(self._with_type,) * 2,
            self._with_session,
            self._cut,
            self._with_octets,
        )

    def sqn_near(self) -> int:
        """Return a sqn at which an error is likely."""
        at = self.rng.random()
        if at < 0.7:
            return wrap(self.edges.lead + self.rng.randint(-40, 6))
        base = self.rng.choice(
            (
                self.edges.trail,
                self.edges.lead,
                self.edges.lead + self.edges.jump,
                self.edges.lead + self.edges.ahead,
                self.edges.lead + HALF,
                0,
            )
        )
        return wrap(base + self.rng.randint(-4, 4)) if at < 0.97 else self.rng.getrandbits(32)

    def _size(self) -> int:
        return self.rng.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, 128, 129, self.rng.getrandbits(32)))

    def _group_size(self) -> int:
        return self.rng.choice((2, 4, 4, 8, 8, 16, 128)) if self.rng.random() < 0.9 else self._size()

    def _address(self) -> str:
        return self.rng.choice((*self.edges.sources, *self.edges.groups, ATTACKER, "0.0.0.0", "fd00::1"))

    def _option(self) -> bytes:
        """Return one option as octets, without the mark of the last option."""
        made = self.rng.choice(self._drawn_rarely if not self.rng.randrange(_RARE) else self._drawn)()
        octets = encode_options([made], next(iter(made.CARRIERS)))[0][4:]
        return bytes([octets[0] & ~OPT_END & 0xFF]) + octets[1:]

    def _offered(self) -> tuple[Option, ...]:
        """Return options that an SPM of the source may have."""
        if self.rng.random() < 0.6:
            return ()
        offer: tuple[Option, ...] = (ParityPrm(self._group_size(), on_demand=True),)
        return offer if self.rng.random() < 0.5 else (*offer, CurrTgsize(self.rng.randint(1, 8)))

    def _nak(self) -> bytes:
        more = sorted({self.sqn_near() for _ in range(self.rng.choice((0, 0, 2, 6)))})
        return encode(
            Nak(
                tsi=TSI,
                data_port=DATA_PORT,
                kind=self.rng.choice((T.NAK, T.NAK, T.NCF, T.NCF, T.NNAK)),
                sqn=self.sqn_near(),
                source_nla=self.rng.choice(self.edges.sources),
                group_nla=self.rng.choice(self.edges.groups),
                options=(NakList(tuple(more)),) if more else (),
                parity=self.rng.random() < 0.25,
            )
        )

    def _spm(self) -> bytes:
        packet = Spm(
            tsi=TSI,
            data_port=DATA_PORT,
            spm_sqn=wrap(
                self.edges.spm_sqn
                + self.rng.choice((-3, -1, 0, 0, 1, 1, 1, 2, 9) if self.rng.random() < 0.9 else (HALF - 1, HALF))
            ),
            trail=wrap(self.edges.trail + self.rng.randint(-2, 4)),
            lead=self.sqn_near() if self.rng.random() < 0.2 else wrap(self.edges.lead + self.rng.randint(-6, 4)),
            path_nla=self.rng.choice(self.edges.sources),
            options=self._offered(),
        )
        return encode(packet)

    def _data(self) -> bytes:
        options: list[Option] = [CurrTgsize(self.rng.randint(1, 8))] if self.rng.random() < 0.3 else []
        return data_packet(
            self.sqn_near(),
            self.rng.randbytes(self.rng.choice((12, 12, 0, 40))),
            trail=wrap(self.edges.trail + self.rng.choice((0, 0, 0, 1, 40))),
            kind=self.rng.choice(_DATA),
            options=options,
            parity=self.rng.random() < 0.2,
        )

    def _other(self) -> bytes:
        common: dict[str, Any] = {"tsi": TSI, "data_port": DATA_PORT}
        which = self.rng.randrange(4)
        if which == 0:
            return encode(Spmr(**common))
        if which == 1:
            nla = self.rng.choice(self.edges.sources)
            return encode(Poll(**common, poll_sqn=self.rng.randrange(4), poll_round=self.rng.randrange(3), sub_type=self.rng.randrange(3), path_nla=nla, bo_ivl_us=self._size(), rand=self.rng.getrandbits(32), mask=self.rng.getrandbits(2)))  # fmt: skip
        if which == 2:
            return encode(Polr(**common, poll_sqn=self.rng.randrange(4), poll_round=self.rng.randrange(3)))
        return encode(Ack(**common, rx_max=self.sqn_near(), bitmap=self.rng.getrandbits(32)))

    def valid(self) -> bytes:
        """Return a packet that the source or a node near it might have sent."""
        return self.rng.choice((self._nak, self._nak, self._spm, self._data, self._data, self._other))()

    def _with_options(self, octets: bytes) -> bytes:
        """Return a packet with other options, additional options, or none."""
        head = _HEADS.get(octets[TYPE_AT] & 0x0F)
        if head is None or len(octets) < head:
            return octets
        rest, kept = octets[head:], b""
        if octets[FLAGS_AT] & OPTIONS_PRESENT and len(rest) >= 4:
            total = int.from_bytes(rest[2:4], "big")
            if total <= len(rest):
                kept, rest = rest[4:total], rest[total:]
        parts = [self._option() for _ in range(self.rng.choice((0, 1, 1, 1, 2, 3)))]
        if kept and self.rng.random() < 0.5:
            parts.append(kept)  # the last kept option already has the mark
        elif parts:
            parts[-1] = bytes([parts[-1][0] | OPT_END]) + parts[-1][1:]
        body = b"".join(parts)
        flags = octets[FLAGS_AT] & ~(OPTIONS_PRESENT | OPTIONS_NETWORK)
        if body:
            flags |= OPTIONS_PRESENT | (OPTIONS_NETWORK if self.rng.random() < 0.5 else 0)
            body = bytes([0, 4]) + (4 + len(body)).to_bytes(2, "big") + body
        return octets[:FLAGS_AT] + bytes([flags]) + octets[FLAGS_AT + 1 : head] + body + rest

    def _with_field(self, octets: bytes) -> bytes:
        """Return a packet with one field changed: a sqn, a trail, a lead.

        The new value is near the stream's edges.
        """
        fields = 3 if octets[TYPE_AT] & 0x0F == T.SPM else 2 if octets[TYPE_AT] & 0x0F in _DATA else 1
        at = SQN_AT + 4 * self.rng.randrange(fields)
        if len(octets) < at + 4:
            return octets
        was = int.from_bytes(octets[at : at + 4], "big")
        new = wrap(was + self.rng.choice((-8, -4, -1, 1, 4, 8))) if self.rng.random() < 0.5 else self.sqn_near()
        return octets[:at] + new.to_bytes(4, "big") + octets[at + 4 :]

    def _with_flag(self, octets: bytes) -> bytes:
        flag = self.rng.choice((OPTIONS_PARITY, OPTIONS_PARITY, OPTIONS_VAR_PKTLEN, OPTIONS_NETWORK, OPTIONS_PRESENT))
        return octets[:FLAGS_AT] + bytes([octets[FLAGS_AT] ^ flag]) + octets[FLAGS_AT + 1 :]

    def _with_type(self, octets: bytes) -> bytes:
        kind = octets[TYPE_AT] & 0x0F
        near = {T.ODATA: (T.RDATA,), T.RDATA: (T.ODATA,), T.NAK: (T.NCF, T.NNAK), T.NCF: (T.NAK, T.NNAK)}
        kinds = near.get(PacketType(kind), tuple(T)) if kind in tuple(T) and self.rng.random() < 0.8 else tuple(T)
        return octets[:TYPE_AT] + bytes([self.rng.choice(kinds)]) + octets[TYPE_AT + 1 :]

    def _with_session(self, octets: bytes) -> bytes:
        """Return a packet of another stream, from more streams than a node follows."""
        tsi = OTHER_TSI[:-1] + bytes([self.rng.randrange(12)])
        upstream = octets[TYPE_AT] & 0x0F in (T.NAK, T.NNAK, T.SPMR, T.POLR, T.ACK)
        at = 2 if upstream else 0  # source port and data port are swapped in upstream packets
        ports = bytearray(octets[:4])
        ports[at : at + 2] = tsi[6:]
        return bytes(ports) + octets[4:8] + tsi[:6] + octets[14:]

    def _cut(self, octets: bytes) -> bytes:
        return (
            octets[: self.rng.randrange(len(octets))]
            if self.rng.random() < 0.7
            else octets + self.rng.randbytes(self.rng.randint(1, 24))
        )

    def _with_octets(self, octets: bytes) -> bytes:
        changed = bytearray(octets)
        for _ in range(self.rng.randint(1, 4)):
            changed[self.rng.randrange(len(changed))] = self.rng.randrange(256)
        return bytes(changed)

    def _sealed(self, octets: bytes) -> bytes:
        """Return a packet with correct length and checksum, with rare exceptions."""
        if len(octets) < HEADER_OCTETS or self.rng.random() < 0.02:
            return octets
        head = _HEADS.get(octets[TYPE_AT] & 0x0F, len(octets))
        if octets[TYPE_AT] & 0x0F in _DATA and len(octets) >= head and self.rng.random() < 0.97:
            options = 0
            if octets[FLAGS_AT] & OPTIONS_PRESENT and len(octets) >= head + 4:
                options = int.from_bytes(octets[head + 2 : head + 4], "big")
            length = max(0, len(octets) - head - options) & 0xFFFF
            octets = octets[:TSDU_LENGTH_AT] + length.to_bytes(2, "big") + octets[TSDU_LENGTH_AT + 2 :]
        bare = octets[:CHECKSUM_AT] + b"\0\0" + octets[CHECKSUM_AT + 2 :]
        return bare[:CHECKSUM_AT] + checksum(bare) + bare[CHECKSUM_AT + 2 :]

    def mutated(self, octets: bytes) -> bytes:
        """Return a packet with one to three changes."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            if len(octets) >= HEADER_OCTETS:
                octets = self.rng.choice(self._changes)(octets)
        return self._sealed(octets)
