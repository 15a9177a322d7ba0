"""NAK packets: spans of sqns as single NAKs, NAK lists and trains of full lists."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs

from pgm.core.effects import Send, control, control_train, passed_on
from pgm.core.segment import Segment
from pgm.core.session.state import SessionState
from pgm.core.structures.ranges import Span, lists_of
from pgm.wire.control_packets import Nak, encode, encode_list
from pgm.wire.formats import Nla, PacketType, Tsi
from pgm.wire.naks import LIST_SQNS, full_lists, nak_rows
from pgm.wire.options import NO_OPTIONS, HeldHistory, NakList, Options
from pgm.wire.sequence_numbers import MASK
from pgm.wire.train import Octets

_MOST_FORMS = 256  # cached packets with full lists: one for each session and parent


def nak_packet(
    state: SessionState,
    group_nla: Nla,
    sqns: Sequence[int],
    kind: PacketType = PacketType.NAK,
    options: Options = NO_OPTIONS,
    *,
    parity: bool = False,
    path_nla: Nla | None = None,
) -> bytes:
    """Return a NAK, NNAK or NCF for up to 63 sqns and `options`; with `parity` each sqn is a group and a count."""
    source_nla, wire_sqns = path_nla or state.path_nla or group_nla, [sqn & MASK for sqn in sqns]
    if len(sqns) > 1 and not options and not parity:
        return encode_list(kind, state.tsi, state.data_port, source_nla, group_nla, wire_sqns)
    more = (NakList(sqns=tuple(wire_sqns[1:])),) if len(sqns) > 1 else NO_OPTIONS
    return encode(
        Nak(
            tsi=state.tsi,
            data_port=state.data_port,
            kind=kind,
            sqn=wire_sqns[0],
            source_nla=source_nla,
            group_nla=group_nla,
            options=(*more, *options),
            parity=parity,
        )
    )


@functools.lru_cache(maxsize=_MOST_FORMS)
def _full_form(tsi: Tsi, data_port: int, kind: PacketType, source_nla: Nla, group_nla: Nla) -> bytes:
    """Return a packet with a full list of arbitrary sqns: the template of a train, whose other fields are equal."""
    options = (NakList(sqns=tuple(range(1, LIST_SQNS))),)
    return encode(
        Nak(tsi=tsi, data_port=data_port, kind=kind, sqn=0, source_nla=source_nla, group_nla=group_nla, options=options)
    )


@attrs.frozen
class NakPacketList:
    """NAK packets of one size for some sqns. The destination is given on sending."""

    octets: bytes | Octets  # one packet, or a (count, size) array
    packets: int
    sqns: int

    def send(self, segment: Segment, to: Nla | None = None, hops: int | None = None) -> Send:
        """Return the effect that sends the packets on a segment. The destination is `to`, or the group by default."""
        if isinstance(self.octets, bytes):
            return control(segment, self.octets, to, hops)
        return control_train(segment, self.octets, to, hops)


def nak_packets(
    state: SessionState,
    group_nla: Nla,
    spans: Sequence[Span],
    kind: PacketType = PacketType.NAK,
    options: Options = NO_OPTIONS,
    path_nla: Nla | None = None,
) -> list[NakPacketList]:
    """Return NAKs, NNAKs or NCFs for spans in order. Several full lists form one train, which comes first."""
    if options or sum([end - first for first, end in spans]) < 2 * LIST_SQNS:
        return [
            NakPacketList(nak_packet(state, group_nla, sqns, kind, options, path_nla=path_nla), 1, len(sqns))
            for sqns in lists_of(spans, LIST_SQNS)
        ]
    lists, rest = full_lists(spans)
    first = _full_form(state.tsi, state.data_port, kind, path_nla or state.path_nla or group_nla, group_nla)
    packets = [NakPacketList(nak_rows(first, lists), len(lists), lists.size)]
    if rest:
        packets.append(NakPacketList(nak_packet(state, group_nla, rest, kind, path_nla=path_nla), 1, len(rest)))
    return packets


OF_HISTORY = (HeldHistory(amount=0),)  # options of NAKs for history


def with_sqns(nak: Nak, sqns: Sequence[int]) -> Nak:
    """Return the same NAK for other sqns."""
    more = (NakList(sqns=tuple(sqn & MASK for sqn in sqns[1:])),) if len(sqns) > 1 else NO_OPTIONS
    return attrs.evolve(nak, sqn=sqns[0] & MASK, options=more, octets=b"")


def forwarded(nak: Nak, state: SessionState, home: Segment, to: Nla) -> Send:
    """Return the effect that forwards a child's NAK or NNAK on the segment of its target."""
    return passed_on(home, nak, state.path_nla or nak.source_nla, home.group, to)
