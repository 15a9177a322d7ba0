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
from pgm.core.effects import Effect, Notice, Send, control
from pgm.core.segment import Segment
from pgm.trust.pair_table import PairTable
from pgm.trust.private_keys import PrivateKeys
from pgm.units import MILLISECOND, SECOND
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
SPM = Spm(spm_sqn=1, trail=0, lead=5, path_nla="10.0.0.2", **ENDS)
ANSWERS = [
    Nak(kind=T.NCF, sqn=7, **ENDS, **NLAS),
    Nak(kind=T.NCF, sqn=7, options=(NakList(sqns=(8, 10)),), **ENDS, **NLAS),
    Poll(poll_sqn=1, poll_round=0, sub_type=0, path_nla="10.0.0.2", bo_ivl_us=1, rand=0, mask=0, **ENDS),
    Spmr(options=(HeldHistory(amount=5, answers=True),), **ENDS),
    Ack(rx_max=5, bitmap=0, options=(attrs.evolve(MEMBERS, confirms=True),), **ENDS),
]


def codes(own: PrivateKeys = CHILD) -> tuple[ControlCodes, Counters]:
    table, counters = PairTable([own], FILE, 60 * SECOND, WALL - SECOND, own.public.ed25519), Counters()
    return ControlCodes(ControlKeys(frozenset([PORT]), table, lambda: WALL), counters), counters


def carried(sender: ControlCodes, send: Effect | None, to: ControlCodes, now_ns: int = 0) -> Packet | None:
    """Return what is left of a packet that is sent and received."""
    assert isinstance(send, Send)
    coded = sender.coded(send, now_ns)
    assert coded is not None
    peer = "10.0.0.1" if send.to == "10.0.0.2" else "10.0.0.2"
    return to.checked(received(bytes(coded.octets)), SEGMENT, peer, now_ns)


def received(octets: bytes) -> Packet:
    return decode_control_untrusted(octets)


@pytest.mark.parametrize("packet", REQUESTS, ids=lambda packet: packet.type.name)
def test_request_is_taken_once_with_its_code(packet: Packet) -> None:
    child, parent, counters = codes()[0], *codes(PARENT)
    sent = child.coded(control(SEGMENT, encode(packet), "10.0.0.2"), 0)
    assert sent is not None
    item = received(bytes(sent.octets))
    taken = parent.checked(item, SEGMENT, "10.0.0.1", 0)
    assert taken == received(encode(packet))
    assert taken is not None
    assert taken.octets == encode(packet)
    assert parent.checked(item, SEGMENT, "10.0.0.1", 0) is None
    assert parent.checked(received(encode(packet)), SEGMENT, "10.0.0.1", 0) is None
    assert counters.uncoded_packets == 2
    assert [effect for effect in parent.take_effects() if isinstance(effect, Notice)] == [
        Notice("uncoded-packet", "a control packet from 10.0.0.1 has a wrong or repeated code, and was dropped")
    ]
    assert parent.take_effects() == ()


@pytest.mark.parametrize("packet", ANSWERS, ids=lambda packet: packet.type.name)
def test_answer_is_taken_once_by_nodes_with_the_key(packet: Packet) -> None:
    """The first valid request brings the key. A node that has sent none asks for it."""
    child, parent = codes()[0], codes(PARENT)[0]
    stranger, counters = codes()
    assert carried(child, control(SEGMENT, encode(REQUESTS[0]), "10.0.0.2"), parent) is not None
    [given] = parent.take_effects()
    assert carried(parent, given, child) is None
    assert carried(child, control(SEGMENT, encode(REQUESTS[0]), "10.0.0.2"), parent, 1) is not None
    assert parent.take_effects() == ()
    sent = parent.coded(control(SEGMENT, encode(packet)), 2)
    assert sent is not None
    item = received(bytes(sent.octets))
    taken = child.checked(item, SEGMENT, "10.0.0.2", 2)
    assert taken is not None
    assert (taken, taken.octets) == (received(encode(packet)), encode(packet))
    assert child.checked(item, SEGMENT, "10.0.0.2", 2) is None
    assert stranger.checked(item, SEGMENT, "10.0.0.2", 2) is None
    assert counters.uncoded_packets == 1
    [question] = stranger.take_effects()
    assert carried(stranger, question, parent, 3) is None
    [given] = parent.take_effects()
    assert carried(parent, given, stranger, 4) is None
    assert stranger.checked(item, SEGMENT, "10.0.0.2", 5) is not None
    assert stranger.take_effects() == parent.take_effects() == ()


def test_questions_for_false_keys_become_rare() -> None:
    """A forger of unknown keys makes each node ask less than ten times in the first 10 s, and once in 10 s later."""
    child, asked = codes()[0], []
    false = received(with_code(encode(ANSWERS[0]), bytes(CODE_OCTETS)))
    for now_ns in range(0, 30 * SECOND, 10 * MILLISECOND):
        assert child.checked(false, SEGMENT, "10.0.0.2", now_ns) is None
        assert child.checked(false, SEGMENT, "10.9.9.9", now_ns) is None  # nobody asks a stranger
        asked += [now_ns] * sum(isinstance(one, Send) for one in child.take_effects())
    assert len([now_ns for now_ns in asked if now_ns < 10 * SECOND]) < 10
    assert len(asked) <= 11


def test_spm_with_the_path_of_another_node_is_dropped() -> None:
    (child, counters), item = codes(), received(encode(SPM))
    send = control(SEGMENT, encode(SPM))
    assert child.coded(send, 0) is send
    assert child.checked(item, SEGMENT, "10.0.0.2", 0) is item
    assert child.checked(item, SEGMENT, "10.0.0.1", 0) is None
    assert counters.uncoded_packets == 1


def test_packets_of_other_streams_need_no_code() -> None:
    child, counters = codes()
    for packet in (*REQUESTS, *ANSWERS):
        item = received(encode(attrs.evolve(packet, data_port=7501)))
        send = control(SEGMENT, item.octets)
        assert child.coded(send, 0) is send
        assert child.checked(item, SEGMENT, "10.0.0.9", 0) is item
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
    taken = [parent.checked(item, SEGMENT, "10.0.0.1", 0) for item in items if isinstance(item, Packet)]
    assert [item.octets for item in taken if item is not None] == [row.tobytes() for row in rows]
    uncoded, _ = Train.of(rows.reshape(-1), rows.shape[1]).parse_scattered_untrusted()
    assert [parent.checked(item, SEGMENT, "10.0.0.1", 0) for item in uncoded if isinstance(item, Packet)] == [None]
    assert counters.uncoded_packets == 3


@given(
    packet=st.sampled_from(sorted(ControlCode.CARRIERS)).flatmap(packets_of), peer=st.sampled_from(["10.0.0.1", "x"])
)
def test_drawn_forgeries_are_refused(packet: Packet, peer: str) -> None:
    parent, counters = codes(PARENT)
    packet = attrs.evolve(packet, data_port=PORT)
    assert parent.checked(received(encode(packet)), SEGMENT, peer, 0) is None
    assert counters.uncoded_packets == 1


def test_loop_of_forgeries_is_refused() -> None:
    """Ten thousand changed, replayed and invented requests: none is taken, and the notices are bounded."""
    child, parent, counters, rng = codes()[0], *codes(PARENT), random.Random(1)
    genuine = []
    for packet in REQUESTS:
        sent = child.coded(control(SEGMENT, encode(packet), "10.0.0.2"), 0)
        assert sent is not None
        genuine.append(bytes(sent.octets))
        assert parent.checked(received(genuine[-1]), SEGMENT, "10.0.0.1", 0) is not None
    forged = 10_000
    for number in range(forged):
        packet = rng.choice(REQUESTS)
        code = bytearray(rng.choice(genuine)[-CODE_OCTETS:])
        code[rng.randrange(CODE_OCTETS)] ^= rng.randrange(256)
        peer = "10.0.0.1" if number % 2 else f"10.9.{number >> 8}.{number & 255}"
        assert parent.checked(received(with_code(encode(packet), bytes(code))), SEGMENT, peer, 0) is None
    assert counters.uncoded_packets == forged
    assert sum(isinstance(effect, Notice) for effect in parent.take_effects()) == 64
