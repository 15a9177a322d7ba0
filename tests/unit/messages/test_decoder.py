"""Packets into messages: joining, losses, nonsense, and reports of unused packets (INT-Z5, INT-Z7)."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.messages.decoder import DecodedMessages, Decoder, UnusedPackets
from pgm.messages.zmtp import Packer, Parts
from tests.unit.messages import libzmq
from tests.unit.messages.strategies import (
    decode,
    messages,
    messages_of,
    rows_of,
    segment,
    skipped_of,
    sqns_of,
)

MOST = 1 << 20
cuts = st.lists(st.integers(0, 30), max_size=4)


def packed(sent: list[Parts], size: int) -> list[bytes]:
    packer = Packer(size)
    packets = packer.add(sent)
    return [*packets, packer.take_rest()] if packer.has_rest else packets


@given(messages, segment, cuts, st.integers(0, 1 << 40))
def test_decoder_messages_survive_any_arrival_pieces(sent: list[Parts], size: int, cut: list[int], first: int):
    decoder = Decoder(MOST)
    found = decode(decoder, first, packed(sent, size), cut)
    assert messages_of(found) == sent
    assert not skipped_of(found)
    assert not decoder.lost()


@given(messages, segment, cuts)
def test_sqns_are_those_of_the_packets_in_which_messages_begin(sent: list[Parts], size: int, cut: list[int]):
    sqns, at = [], 0
    for parts in sent:
        sqns.append(1000 + at // (size - 2))
        at += sum(len(part) + (2 if len(part) < 254 else 10) for part in parts)
    assert sqns_of(decode(Decoder(MOST), 1000, packed(sent, size), cut)) == sqns


@given(messages, segment, cuts)
def test_streams_of_libzmq(sent: list[Parts], size: int, cut: list[int]):
    assert messages_of(decode(Decoder(MOST), 0, libzmq.sender(sent, size), cut)) == sent


@given(messages, segment, cuts, st.integers(0, 20))
def test_joining_in_mid_stream_skips_to_the_next_message(sent: list[Parts], size: int, cut: list[int], begin: int):
    """INT-Z7: earlier packets are not lost, because the source sent them before the join."""
    packets = packed(sent, size)
    peer = libzmq.Receiver(size)
    for packet in packets[begin:]:
        peer.add(packet)
    found = decode(Decoder(MOST), begin, packets[begin:], cut)
    assert messages_of(found) == peer.messages
    assert not skipped_of(found)


@given(messages, segment, cuts, st.integers(1, 20), st.integers(1, 4))
def test_after_a_loss_reception_goes_on_at_the_next_message(sent, size: int, cut: list[int], hole: int, count: int):
    """INT-Z7: the decoder acts as libzmq.

    It reports exactly the packets without a delivered message.
    """
    sent = [(bytes([number]), *parts) for number, parts in enumerate(sent)]  # to make every message distinct
    packets = packed(sent, size)
    peer, decoder = libzmq.Receiver(size), Decoder(MOST)
    for packet in packets[:hole]:
        peer.add(packet)
    found = decode(decoder, 0, packets[:hole], cut)
    peer.lost()
    found += decoder.lost()
    for packet in packets[hole + count :]:
        peer.add(packet)
    found += decode(decoder, hole + count, packets[hole + count :], cut)
    found += decoder.lost()
    assert messages_of(found) == peer.messages
    lost = set(range(hole, hole + count))
    assert set(skipped_of(found)) == _useless(sent, peer.messages, size, len(packets)) - lost


def _useless(sent: list[Parts], delivered: list[Parts], size: int, packets: int) -> set[int]:
    """Return the packets without an octet of a delivered message."""
    room, useless = size - 2, set(range(packets))
    at = 0
    for parts in sent:
        end = at + sum(len(part) + (2 if len(part) < 254 else 10) for part in parts)
        if parts in delivered:
            useless -= set(range(at // room, (end - 1) // room + 1))
        at = end
    return useless


@given(st.lists(st.binary(min_size=0, max_size=40), max_size=12), cuts, st.sampled_from([MOST, 20]))
def test_any_octets_are_read_as_libzmq_reads_them_or_reported(packets: list[bytes], cut: list[int], most: int):
    """Memory is bounded, and no exception is raised.

    A packet on which libzmq would abort is reported as malformed.
    """
    peer, decoder = libzmq.Receiver(1 << 16), Decoder(most)
    found = []
    for sqn, packet in enumerate(packets):
        found += decoder.add(sqn, rows_of([packet]) if packet else rows_of([b"x"])[:, :0])
        try:
            peer.add(packet)
        except libzmq.Abort:
            peer.lost()
    if most == MOST:
        assert messages_of(found) == peer.messages
    sizes = [sum(map(len, parts)) for parts in messages_of(found)]
    assert max(sizes, default=0) <= most
    some = [packet for packet in packets if packet]
    assert messages_of(decode(Decoder(most), 0, some, cut)) == messages_of(decode(Decoder(most), 0, some, range(99)))


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"\0\0\0", "a frame without flags"),
        (b"\0\0\xff\0\0\0\0\0\0\0\0", "the same in nine octets"),
        (b"\0\0\xff\x7f\0\0\0\0\0\0\0", "larger than anything"),
        (b"\0\0\xff\0\0\0\0\0\x20\0\0", "larger than allowed"),
        (b"\0\x09x", "an offset outside"),
        (b"\0", "shorter than its offset"),
    ],
)
def test_nonsense_is_reported_and_the_next_message_is_read(octets: bytes, says: str):
    decoder = Decoder(MOST)
    assert decoder.add(7, rows_of([octets])) == [UnusedPackets(7, 1, is_malformed=True)], says
    assert decoder.add(8, rows_of(packed([(b"next",)], 100))) == [DecodedMessages([(b"next",)], [8])]


def test_decoder_messages_before_damage_are_delivered():
    decoder = Decoder(MOST)
    assert decoder.add(0, rows_of([b"\0\0\x02\0a\x02\0b\0\0\0"])) == [
        DecodedMessages([(b"a",), (b"b",)], [0, 0]),
        UnusedPackets(0, 1, is_malformed=True),
    ]


def test_nonsense_in_the_middle_of_a_run_costs_its_packet_only():
    good = [packed([(bytes([number]) * 20,)], 100)[0] for number in range(4)]
    bad = b"\0\0" + bytes(len(good[0]) - 2)
    found = Decoder(MOST).add(0, rows_of([good[0], bad, good[2], good[3]]))
    assert messages_of(found) == [(bytes([number]) * 20,) for number in (0, 2, 3)]
    assert found[1] == UnusedPackets(1, 1, is_malformed=True)


def test_a_session_that_ends_in_a_message_says_what_is_incomplete():
    packets = packed([(b"whole",), (b"x" * 3000,)], 1428)
    decoder = Decoder(MOST)
    assert messages_of(decode(decoder, 0, packets[:2], [])) == [(b"whole",)]
    # Packet 0 gave a message; packet 1 belongs to a message that will never be complete.
    assert decoder.lost() == [UnusedPackets(1, 1)]
    assert decoder.lost() == []


def test_decoder_empty_packets_are_harmless():
    decoder = Decoder(MOST)
    assert decoder.add(0, rows_of([b"\0\0", b"\xff\xff"])) == []
    assert messages_of(decoder.add(2, rows_of(packed([(b"a",)], 100)))) == [(b"a",)]


def test_a_flood_of_empty_parts_is_bounded():
    """An empty part costs an object here and two octets on the wire, so held memory needs a bound."""
    decoder = Decoder(64 * 1000)
    begin = rows_of([b"\0\0" + b"\x01\x01" * 700])
    go_on = rows_of([b"\xff\xff" + b"\x01\x01" * 700])
    found = decoder.add(0, begin)
    tracemalloc.start()
    for sqn in range(1, 200):
        found += decoder.add(sqn, go_on)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.first for one in found if isinstance(one, UnusedPackets) and one.is_malformed] == [1]
    assert peak < 1 << 20


def test_a_large_message_costs_time_in_proportion_to_its_size():
    """The packets come one by one, and none is read twice."""
    packets = packed([(b"x" * 3_000_000,)], 1428)
    decoder = Decoder(1 << 23)
    read = 0
    original = decoder._frames

    def counting(data: bytes, *arguments: object) -> object:
        nonlocal read
        read += len(data)
        return original(data, *arguments)  # type: ignore[arg-type]

    decoder._frames = counting  # type: ignore[method-assign,assignment]
    assert messages_of(decode(decoder, 0, packets, range(len(packets)))) == [(b"x" * 3_000_000,)]
    assert read < 2 * 3_010_000
