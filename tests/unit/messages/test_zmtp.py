"""Messages into packets (INT-Z3 to INT-Z6), and never one on which libzmq aborts (INT-Z8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.messages.zmtp import NO_MESSAGE, HarmfulPacket, Packer, Parts, frame_head, refuse_harmful, weight
from tests.unit.messages import libzmq
from tests.unit.messages.strategies import messages, segment


def pack(sent: list[list[Parts]], size: int, flushes: list[bool] | None = None) -> list[bytes]:
    """Return the packets of groups of messages, flushed after some groups and at the end."""
    packer = Packer(size)
    packets = []
    for group, flush in zip(sent, flushes or [False] * len(sent), strict=True):
        packets += packer.add(group)
        if flush and packer.has_rest:
            packets.append(packer.take_rest())
    if packer.has_rest:
        packets.append(packer.take_rest())
    assert not packer.has_rest
    return packets


@given(messages, segment)
def test_the_stream_is_the_one_that_libzmq_sends(sent: list[Parts], size: int):
    ours, theirs = pack([sent], size), libzmq.sender(sent, size)
    assert [packet[2:] for packet in ours] == [packet[2:] for packet in theirs]
    for our, their in zip(ours, theirs, strict=True):
        # At the very end of the queue, libzmq may announce a message start where our packer announces none.
        assert our[:2] == their[:2] or (our[:2] == b"\xff\xff" and int.from_bytes(their[:2], "big") == len(their) - 2)


@given(st.lists(st.tuples(messages, st.booleans()), max_size=5), segment, st.integers(0, 6), st.integers(1, 3))
def test_libzmq_reads_it_from_any_packet_on_and_never_aborts(groups, size: int, begin: int, hole: int):
    """INT-Z7, INT-Z8: the reader joins in mid-stream and loses packets, with any flushes."""
    packets = pack([group for group, _ in groups], size, [flush for _, flush in groups])
    everything = [parts for group, _ in groups for parts in group]
    whole, late, torn = (libzmq.Receiver(size) for _ in range(3))
    for packet in packets:
        whole.add(packet)
    assert whole.messages == everything
    for packet in packets[begin:]:
        late.add(packet)
    assert late.messages == everything[len(everything) - len(late.messages) :]
    for at, packet in enumerate(packets):
        if begin <= at < begin + hole:
            torn.lost()
        else:
            torn.add(packet)
    rest = iter(everything)
    assert all(parts in rest for parts in torn.messages), "in order, and nothing that was not sent"


@given(messages.filter(bool), segment)
def test_offsets_say_where_the_first_message_begins(sent: list[Parts], size: int):
    """INT-Z4: the expected offsets come from the lengths alone."""
    starts, at = set(), 0
    for parts in sent:
        starts.add(at)
        at += sum(len(part) + (2 if len(part) < 254 else 10) for part in parts)
    room = size - 2
    for number, packet in enumerate(pack([sent], size)):
        inside = [start - number * room for start in starts if 0 <= start - number * room < len(packet) - 2]
        assert int.from_bytes(packet[:2], "big") == min(inside, default=NO_MESSAGE)


@given(st.lists(messages, max_size=6), segment)
def test_every_packet_but_the_last_is_full(groups: list[list[Parts]], size: int):
    packets = pack(groups, size)
    assert all(len(packet) == size for packet in packets[:-1])
    assert all(3 <= len(packet) <= size for packet in packets)


def test_frames_by_hand():
    """INT-Z5: both forms of the length, at their border."""
    assert frame_head(0, more=False) == b"\x01\x00"
    assert frame_head(253, more=True) == b"\xfe\x01"
    assert frame_head(254, more=False) == b"\xff\0\0\0\0\0\0\0\xff\x00"
    assert pack([[(b"topic", b"body")]], 1428) == [b"\0\0\x06\x01topic\x05\x00body"]
    assert pack([[(b"",)]], 1428) == [b"\0\0\x01\x00"]


def test_small_messages_share_a_packet_and_large_ones_span_several():
    small = pack([[(bytes([number]) * 70,)] for number in range(19)], 1428)
    assert [len(packet) for packet in small] == [2 + 19 * 72]
    large = pack([[(b"x" * 3000,)]], 1428)
    assert [len(packet) for packet in large] == [1428, 1428, 2 + 3010 - 2 * 1426]
    assert [packet[:2] for packet in large] == [b"\0\0", b"\xff\xff", b"\xff\xff"]


def test_a_message_without_parts_is_refused_before_anything_is_taken():
    packer = Packer(100)
    with pytest.raises(ValueError, match="at least one part"):
        packer.add([(b"first",), ()])
    assert not packer.has_rest


@pytest.mark.parametrize("packet", [b"", b"\0", b"\0\0", b"\xff\xff", b"\0\2x", b"\x7f\xffxyz", b"\0\0" + bytes(99)])
def test_packets_that_make_libzmq_abort_are_refused(packet: bytes):
    """INT-Z8: no octets, less than an offset, no message, an offset outside, or more than a segment."""
    with pytest.raises(HarmfulPacket):
        refuse_harmful(packet, 100)


@given(st.binary(max_size=30), st.integers(3, 30))
def test_zmtp_accepted_packets_abort_no_receiver(packet: bytes, size: int):
    try:
        refuse_harmful(packet, size)
    except HarmfulPacket:
        return
    libzmq.Receiver(size).add(packet)


def test_zmtp_missing_rest_is_not_sent():
    with pytest.raises(HarmfulPacket):
        Packer(100).take_rest()


def test_zmtp_empty_parts_have_a_weight():
    assert weight(100, 1) == 100
    assert weight(0, 1001) > 1000
