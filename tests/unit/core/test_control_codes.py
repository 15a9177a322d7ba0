"""Codes of requests at a core: which packets get one, which need one, and what is counted and reported."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.control_codes import ControlCodes, ControlKeys
from pgm.core.counters import Counters
from pgm.core.effects import Send, control
from pgm.core.segment import Segment
from pgm.trust.pair_table import PairTable
from pgm.units import SECOND
from pgm.wire.control_packets import Ack, Nak, Packet, Poll, Polr, Spm, Spmr, decode_control_untrusted, encode
from pgm.wire.formats import PacketType
from pgm.wire.naks import LIST_SQNS, nak_rows
from pgm.wire.option_rewriting import with_code
from pgm.wire.options import CODE_OCTETS, ControlCode, HeldHistory, Members, NakList
from pgm.wire.train import Train
from tests.strategies import packets_of
from tests.unit.trust.keys import private_keys

T = PacketType
TSI, PORT = b"gsi-0001", 7500
CHILD, PARENT = private_keys(1), private_keys(2)
FILE = {"10.0.0.1": (CHILD.public,), "10.0.0.2": (PARENT.public,)}
WALL = 1_790_000_000 * SECOND
SEGMENT = Segment(0, "lan", "10.0.0.1", "239.0.0.1", upstream=True, downstream=True)
ENDS = {"tsi": TSI, "data_port": PORT}
NLAS = {"source_nla": "10.0.0.2", "group_nla": "239.0.0.1"}
MEMBERS = Members(members=1, holder="10.0.0.1")
REQUESTS = [
    Nak(sqn=7, **ENDS, **NLAS),
    Nak(sqn=7, options=(NakList(sqns=(8, 10)),), **ENDS, **NLAS),
    Nak(sqn=7, options=(HeldHistory(amount=0),), **ENDS, **NLAS),
    Nak(kind=T.NNAK, sqn=7, **ENDS, **NLAS),
    Spmr(**ENDS),
    Spmr(options=(HeldHistory(amount=5, by_count=True),), **ENDS),
    Polr(poll_sqn=1, poll_round=1, **ENDS),
    Ack(rx_max=5, bitmap=0, options=(MEMBERS,), **ENDS),
    Ack(rx_max=5, bitmap=0, **ENDS),
]
OTHERS = [
    Nak(kind=T.NCF, sqn=7, **ENDS, **NLAS),
    Spm(spm_sqn=1, trail=0, lead=5, path_nla="10.0.0.2", **ENDS),
    Poll(poll_sqn=1, poll_round=0, sub_type=0, path_nla="10.0.0.2", bo_ivl_us=1, rand=0, mask=0, **ENDS),
    Spmr(options=(HeldHistory(amount=5, answers=True),), **ENDS),
    Ack(rx_max=5, bitmap=0, options=(attrs.evolve(MEMBERS, confirms=True),), **ENDS),
    Nak(sqn=7, **ENDS | {"data_port": 7501}, **NLAS),
]


def codes(own=CHILD) -> tuple[ControlCodes, Counters]:  # type: ignore[no-untyped-def]
    table, counters = PairTable([own], FILE, 60 * SECOND, WALL - SECOND), Counters()
    return ControlCodes(
        ControlKeys(frozenset([PORT]), table.make, table.check_untrusted, lambda: WALL), counters
    ), counters


def received(octets: bytes) -> Packet:
    return decode_control_untrusted(octets)


@pytest.mark.parametrize("packet", REQUESTS, ids=lambda packet: packet.type.name)
def test_request_is_taken_once_with_its_code(packet: Packet) -> None:
    child, parent, counters = codes()[0], *codes(PARENT)
    sent = child.coded(control(SEGMENT, encode(packet), "10.0.0.2"), 0)
    assert sent is not None
    item = received(bytes(sent.octets))
    taken = parent.checked(item, "10.0.0.1", 0)
    assert taken == received(encode(packet))
    assert taken is not None
    assert taken.octets == encode(packet)
    assert parent.checked(item, "10.0.0.1", 0) is None
    assert parent.checked(received(encode(packet)), "10.0.0.1", 0) is None
    assert counters.uncoded_packets == 2
    assert [notice.text for notice in parent.take_notices()] == [
        "a request from 10.0.0.1 has a wrong code, and was dropped"
    ]
    assert parent.take_notices() == ()


@pytest.mark.parametrize("packet", OTHERS, ids=lambda packet: packet.type.name)
def test_other_packets_need_no_code(packet: Packet) -> None:
    (child, counters), item = codes(), received(encode(packet))
    send = control(SEGMENT, encode(packet))
    assert child.coded(send, 0) is send
    assert child.checked(item, "10.0.0.9", 0) is item
    assert counters == Counters()


def test_requests_without_a_code_are_not_sent() -> None:
    child, counters = codes()
    assert child.coded(control(SEGMENT, encode(REQUESTS[0]), hops=1), 0) is None  # a copy for the group
    assert counters.unaddressed_requests == 0
    assert child.coded(control(SEGMENT, encode(REQUESTS[0]), "10.0.0.9"), 0) is None
    assert counters.unaddressed_requests == 1


def test_train_of_naks_gets_a_code_for_each() -> None:
    lists = np.arange(3 * LIST_SQNS, dtype=np.int64).reshape(3, LIST_SQNS)
    first = encode(Nak(sqn=0, options=(NakList(sqns=tuple(range(1, LIST_SQNS))),), **ENDS, **NLAS))
    rows = nak_rows(first, lists)
    child, parent, counters = codes()[0], *codes(PARENT)
    sent = child.coded(Send(SEGMENT, rows.reshape(-1), rows.shape[1], "10.0.0.2"), 0)
    assert sent is not None
    items, rejects = Train.of(sent.octets, sent.stride).parse_scattered_untrusted()
    assert not rejects
    taken = [parent.checked(item, "10.0.0.1", 0) for item in items if isinstance(item, Packet)]
    assert [item.octets for item in taken if item is not None] == [row.tobytes() for row in rows]
    uncoded, _ = Train.of(rows.reshape(-1), rows.shape[1]).parse_scattered_untrusted()
    assert [parent.checked(item, "10.0.0.1", 0) for item in uncoded if isinstance(item, Packet)] == [None]
    assert counters.uncoded_packets == 3


@given(
    packet=st.sampled_from(sorted(ControlCode.CARRIERS)).flatmap(packets_of), peer=st.sampled_from(["10.0.0.1", "x"])
)
def test_drawn_forgeries_make_no_state(packet: Packet, peer: str) -> None:
    parent, counters = codes(PARENT)
    packet = attrs.evolve(packet, data_port=PORT)
    taken = parent.checked(received(encode(packet)), peer, 0)
    is_answer = isinstance(packet, (Spmr, Ack)) and taken is not None
    assert is_answer or counters.uncoded_packets == 1


def test_loop_of_forgeries_is_refused() -> None:
    """Ten thousand changed, replayed and invented requests: none is taken, and the notices are bounded."""
    child, parent, counters, rng = codes()[0], *codes(PARENT), random.Random(1)
    genuine = []
    for packet in REQUESTS:
        sent = child.coded(control(SEGMENT, encode(packet), "10.0.0.2"), 0)
        assert sent is not None
        genuine.append(bytes(sent.octets))
        assert parent.checked(received(genuine[-1]), "10.0.0.1", 0) is not None
    forged = 10_000
    for number in range(forged):
        packet = rng.choice(REQUESTS)
        code = bytearray(rng.choice(genuine)[-CODE_OCTETS:])
        code[rng.randrange(CODE_OCTETS)] ^= rng.randrange(256)
        peer = "10.0.0.1" if number % 2 else f"10.9.{number >> 8}.{number & 255}"
        assert parent.checked(received(with_code(encode(packet), bytes(code))), peer, 0) is None
    assert counters.uncoded_packets == forged
    assert len(parent.take_notices()) == 64
