"""NAKs that go together: a train of them is read, made, confirmed and passed on as its packets are one by one."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.wire import checksum
from pgm.wire.control_packets import Nak, decode_control_untrusted, encode, ncf_for, with_addresses
from pgm.wire.formats import Nla, PacketType
from pgm.wire.naks import LIST_SQNS, Naks, full_lists, nak_rows, ncf_rows_for, rows_with_addresses, up_to
from pgm.wire.options import NakBoIvl, NakList, ParityPrm
from pgm.wire.sequence_numbers import SPACE, spans_of, wrap
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.unit.core.makers import nak_packet, ncf_packet

KINDS = (PacketType.NAK, PacketType.NNAK, PacketType.NCF)


def decoded(nak: Nak) -> Nak:
    found = decode_control_untrusted(encode(nak))
    assert isinstance(found, Nak)
    return found


def train_of(packets: list[Nak]) -> Train:
    octets = [encode(one) for one in packets]
    return Train.of(b"".join(octets), len(octets[0]))


def lists(draw: st.DrawFn, length: int) -> list[int]:
    first = draw(st.sampled_from([0, 5, 1 << 31, SPACE - 40]))
    return [
        wrap(first + step)
        for step in draw(st.lists(st.integers(0, 400), min_size=length, max_size=length, unique=True))
    ]


@st.composite
def nak_lists(draw: st.DrawFn) -> list[list[int]]:
    length = draw(st.sampled_from([2, 3, LIST_SQNS]))
    return [lists(draw, length) for _ in range(draw(st.integers(2, 4)))]


@given(nak_lists(), st.sampled_from(KINDS))
def test_a_train_is_read_as_its_packets_are(sqns: list[list[int]], kind: PacketType) -> None:
    packets = [nak_packet(*one, kind=kind) for one in sqns]
    train = train_of(packets)
    ([found], rejects), (singles, none) = train.parse_runs_untrusted(), train.parse_untrusted()
    assert isinstance(found, Naks)
    assert rejects == none == []
    assert singles == packets
    assert (found.packets, found.asked) == (len(sqns), sum(map(len, sqns)))
    assert found.sqns == tuple(sqn for one in sqns for sqn in one)
    near = {(sqn - found.sqn + (1 << 31)) % SPACE - (1 << 31) for one in sqns for sqn in one}
    assert list(found.spans) == spans_of(near)


@pytest.mark.parametrize("first", [5, SPACE - 70])
@pytest.mark.parametrize("hole", [0, 1])
def test_lists_of_a_burst_are_one_span(first: int, hole: int) -> None:
    parts = [range(first, first + LIST_SQNS), range(first + LIST_SQNS + hole, first + 2 * LIST_SQNS + hole)]
    [found], _ = train_of([nak_packet(*map(wrap, one)) for one in parts]).parse_runs_untrusted()
    assert isinstance(found, Naks)
    assert found.sqn == first
    ends = ((0, LIST_SQNS), (LIST_SQNS + 1, 2 * LIST_SQNS + 1)) if hole else ((0, 2 * LIST_SQNS),)
    assert found.spans == ends


@given(nak_lists(), st.sampled_from(["10.0.0.9", "fd00::9"]))
def test_train_of_naks_equals_its_packets(sqns: list[list[int]], nla: Nla) -> None:
    packets = [decoded(nak_packet(*one)) for one in sqns]
    [found], _ = train_of(packets).parse_runs_untrusted()
    assert isinstance(found, Naks)
    assert [row.tobytes() for row in ncf_rows_for(found)] == [ncf_for(one) for one in packets]
    passed = [row.tobytes() for row in rows_with_addresses(found, nla, nla)]
    assert passed == [with_addresses(one, nla, nla) for one in packets]
    made = nak_rows(encode(packets[0]), np.array(sqns))
    assert [row.tobytes() for row in made] == [encode(one) for one in packets]


def spoiled(octets: bytes) -> bytes:
    return octets[:20] + bytes([octets[20] ^ 1]) + octets[21:]


def resealed(octets: bytes) -> bytes:
    bare = octets[:6] + b"\0\0" + octets[8:]
    return octets[:6] + checksum.checksum(bare) + octets[8:]


@pytest.mark.parametrize(
    "second",
    [
        encode(nak_packet(7, 8, 9, source_nla="10.0.0.77")),
        encode(nak_packet(7, 8, 9, kind=PacketType.NCF)),
        encode(attrs.evolve(nak_packet(7, 8, 9), data_port=9)),
        encode(nak_packet(7, 8, 9))[:6] + b"\0\0" + encode(nak_packet(7, 8, 9))[8:],
        spoiled(encode(nak_packet(7, 8, 9))),
        resealed(encode(nak_packet(7, 8, 9))[:42] + b"\x07" + encode(nak_packet(7, 8, 9))[43:]),
    ],
    ids=["address", "type", "port", "no checksum", "damaged", "reserved octet"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_naks_of_different_form_are_read_one_by_one(second: bytes, is_first: bool) -> None:
    one = encode(nak_packet(1, 2, 3))
    train = Train.of(second + one if is_first else one + second, len(one))
    items, rejects = train.parse_runs_untrusted()
    alone = [Train.of(octets).parse_untrusted() for octets in ((second, one) if is_first else (one, second))]
    assert items == [item for found, _ in alone for item in found]
    assert rejects == [reason for _, why in alone for reason in why]
    assert not any(isinstance(item, Naks) for item in items)


def test_other_options_are_read_one_by_one() -> None:
    packets = [
        attrs.evolve(one, options=(*one.options, NakBoIvl(9, 0))) for one in (ncf_packet(1, 2), ncf_packet(3, 4))
    ]
    assert train_of(packets).parse_runs_untrusted() == (packets, [])


def test_sqns_of_spans_are_full_lists_and_a_rest() -> None:
    made, rest = full_lists([(10, 100), (200, 240)])
    assert made.tolist() == [list(range(10, 73)), [*range(73, 100), *range(200, 236)]]
    assert rest == [236, 237, 238, 239]


def test_part_of_a_nak_has_no_options_of_other_packets() -> None:
    """An attacker can send any option, and no encoder writes an option on another packet."""
    options = (NakList(sqns=(6, 7)), ParityPrm(tgsize=8))
    nak = Nak(
        tsi=TSI, data_port=DATA_PORT, sqn=5, source_nla="10.0.0.1", group_nla="239.0.0.1", options=options,
        kind=PacketType.NNAK,
    )  # fmt: skip
    part = up_to(nak, 7, 5)
    assert part is not None
    assert decode_control_untrusted(encode(part)).options == (NakList(sqns=(6,)),)
