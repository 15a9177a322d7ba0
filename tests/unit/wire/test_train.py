"""Trains against the same packets read one by one, and the runs that are kept of them."""

from collections import Counter

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgm.wire.control_packets import Nak, Spm, encode
from pgm.wire.data_packets import write_odata
from pgm.wire.formats import PacketType
from pgm.wire.options import Fin, Fragment, Syn, UnknownOption
from pgm.wire.sequence_numbers import MASK, wrap
from pgm.wire.train import Data, Run, Train, fragment_of
from tests.reference import DATA_PORT, OTHER_TSI, TSI, data_packet, sealed, without_checksum
from tests.strategies import u32s

T = PacketType

# Trains of anything


def flat(items):
    """Every packet of the items by itself: what it is, and the octets that were delivered of it."""
    for item in items:
        if not isinstance(item, Data):
            yield item, item.octets
            continue
        run = item.run(item.wire_sqn)
        for index in range(item.count):
            one = run.part(run.first + index, run.first + index + 1)
            yield (
                (item.type, item.tsi, item.data_port, wrap(one.first), item.parity, one.options()),
                (one.rows.tobytes(), one.payloads.tobytes()),
            )


def assert_parses_like_its_packets(packets, stride):
    train = Train.of(b"".join(packets), stride)
    items, rejects = train.parse_untrusted()
    singles, single_rejects, trails = [], [], []
    for packet in packets:
        found, why = Train.of(packet).parse_untrusted()
        singles += found
        single_rejects += why
        trails += [one.wire_trail if isinstance(one, Data) else None for one in found]
    assert list(flat(items)) == list(flat(singles))
    assert Counter(rejects) == Counter(single_rejects)
    at = 0
    for item in items:
        at += item.count if isinstance(item, Data) else 1
        assert getattr(item, "wire_trail", None) == trails[at - 1]


def control_stretch(what, first, count, stride, filler, **session):
    """SPMs or NAKs that count up, padded to one size."""
    pad = UnknownOption(number=0x44, value=bytes([filler]) * (stride - 44))
    sqns = [wrap(first + index) for index in range(count)]
    if what == "spm":
        made = [Spm(**session, spm_sqn=sqn, trail=0, lead=9, path_nla="10.0.0.1", options=(pad,)) for sqn in sqns]
    else:
        made = [Nak(**session, sqn=sqn, source_nla="10.0.0.1", group_nla="239.0.0.1", options=(pad,)) for sqn in sqns]
    return [encode(packet) for packet in made]


@st.composite
def stretches(draw, stride):
    """Packets of one size that one sender might send in a row."""
    what = draw(st.sampled_from(["data", "data", "data", "fragments", "options", "spm", "nak"]))
    count = draw(st.integers(1, 6))
    tsi = draw(st.sampled_from([TSI, OTHER_TSI]))
    port = draw(st.sampled_from([DATA_PORT, 1]))
    first = draw(st.one_of(st.integers(0, 30), st.integers(MASK - 5, MASK), u32s))
    filler = draw(st.integers(0, 255))
    if what in ("spm", "nak"):
        return control_stretch(what, first, count, stride, filler, tsi=tsi, data_port=port)
    kind = draw(st.sampled_from([T.ODATA, T.ODATA, T.RDATA]))
    step = draw(st.sampled_from([1, 1, 1, 2, 0]))
    trail = draw(u32s)
    packets = []
    for index in range(count):
        options = ()
        size = stride - 24
        if what == "fragments":
            size -= 20
            options = (Fragment(wrap(first - 2), (index + 2) * size, 40 * size),)
        elif what == "options":
            size -= 8
            options = (draw(st.sampled_from([Fin(), Fin(), Syn()])),)
        payload = bytes([filler + index & 0xFF]) * size
        packets.append(
            data_packet(
                first + step * index,
                payload,
                trail=trail + index // 2,
                kind=kind,
                tsi=tsi,
                data_port=port,
                options=options,
                parity=draw(st.sampled_from([False, False, False, True])) if index == 0 else False,
            )
        )
    return packets


def damaged(packet, how, at):
    """A packet as the network or a bad sender may make it."""
    octets = bytearray(packet)
    at %= len(octets)
    if how == "bit":
        octets[at] ^= 1 << at % 8
        return bytes(octets)
    if how == "no checksum":
        return without_checksum(packet)
    if how == "trail":
        octets[23] ^= 1
    elif how == "offset":
        octets[39] ^= 1  # the offset of a leading OPT_FRAGMENT, or payload
    elif how == "option":
        octets[24 + at % 20] ^= 1 << at % 8
    elif how == "address family":
        octets[29] = 7
    elif how == "octet":
        octets[at] ^= 1 << at % 8
    return sealed(bytes(octets))


@st.composite
def mixtures(draw):
    stride = draw(st.integers(52, 60))
    packets = [packet for part in draw(st.lists(stretches(stride), min_size=1, max_size=5)) for packet in part]
    kinds = ["bit", "no checksum", "trail", "offset", "option", "address family", "octet"]
    for index, how, at in draw(
        st.lists(st.tuples(st.integers(0, 29), st.sampled_from(kinds), st.integers(0, 1000)), max_size=4)
    ):
        if index < len(packets):
            packets[index] = damaged(packets[index], how, at)
    if draw(st.booleans()):
        tail = draw(st.sampled_from([1, 8, 15, 16, 23, 24, 30, 40]))
        packets.append(data_packet(77, bytes(tail - 24)) if tail >= 24 else data_packet(77)[:tail])
    return packets, stride


@pytest.mark.rfc("W-03", "W-10", "W-15", "W-17", "SEC-06")
@given(mixture=mixtures())
def test_train_parses_to_the_same_packets_as_one_by_one(mixture):
    """For whatever one read may give."""
    assert_parses_like_its_packets(*mixture)


def odata(count, first=100, size=40, **kwargs):
    return [data_packet(first + index, bytes([index]) * size, **kwargs) for index in range(count)]


def test_whole_train_is_one_item():
    """The common case is one item, whatever its trail and checksums."""
    packets = [data_packet(100 + index, bytes([index]) * 40, trail=index) for index in range(45)]
    items, rejects = Train.of(b"".join(packets), 64).parse_untrusted()
    assert rejects == []
    assert [(item.wire_sqn, item.count, item.wire_trail) for item in items] == [(100, 45, 44)]
    assert items[0].octets.tobytes() == b"".join(packets)


@pytest.mark.rfc("RCV-09", "W-34")
def test_fragments_of_one_message_are_one_item():
    packets = [data_packet(9 + i, bytes(20), options=(Fragment(9, 20 * i, 200),)) for i in range(10)]
    items, _ = Train.of(b"".join(packets), 64).parse_untrusted()
    assert [(item.wire_sqn, item.count) for item in items] == [(9, 10)]
    run = items[0].run(9)
    assert fragment_of(run) == Fragment(9, 0, 200)
    assert fragment_of(run.part(12, 19)) == Fragment(9, 60, 200)


@pytest.mark.rfc("RCV-09")
def test_fragments_that_do_not_follow_each_other_are_apart():
    """Reassembly looks at a run's first offset, so the others must follow from it."""
    offsets = [0, 20, 60, 40, 80]
    packets = [data_packet(9 + i, bytes(20), options=(Fragment(9, at, 200),)) for i, at in enumerate(offsets)]
    items, _ = Train.of(b"".join(packets), 64).parse_untrusted()
    assert [(item.wire_sqn, item.count) for item in items] == [(9, 2), (11, 1), (12, 1), (13, 1)]
    assert_parses_like_its_packets(packets, 64)


@pytest.mark.rfc("W-17")
def test_train_across_the_wrap_is_one_item():
    packets = odata(10, first=(1 << 32) - 4)
    items, _ = Train.of(b"".join(packets), 64).parse_untrusted()
    assert [(item.wire_sqn, item.count) for item in items] == [((1 << 32) - 4, 10)]


@pytest.mark.rfc("W-10", "W-16", "SEC-06")
@pytest.mark.parametrize("at", [0, 3, 9])
@pytest.mark.parametrize("how", ["bit", "no checksum", "address family"])
def test_one_bad_packet_spares_the_others(how, at):
    """A neighbour's fault is not a packet's own."""
    packets = odata(10)
    if how == "address family":
        packets = [
            encode(Spm(tsi=TSI, data_port=1, spm_sqn=i, trail=0, lead=9, path_nla="10.0.0.1")) for i in range(10)
        ]
    packets[at] = damaged(packets[at], how, 30)
    items, rejects = Train.of(b"".join(packets), len(packets[0])).parse_untrusted()
    assert sum(getattr(item, "count", 1) for item in items) == 9
    assert len(rejects) == 1
    assert_parses_like_its_packets(packets, len(packets[0]))


@pytest.mark.rfc("SEC-06")
def test_one_malformed_option_spares_the_others():
    packets = odata(10, options=(Fin(),))
    packets[4] = sealed(packets[4][:29] + b"\3" + packets[4][30:])
    items, rejects = Train.of(b"".join(packets), 72).parse_untrusted()
    assert [(item.wire_sqn, item.count) for item in items] == [(100, 4), (105, 5)]
    assert rejects == ["option_length"]


@given(shift=st.integers(0, 7), count=st.integers(1, 5), size=st.integers(0, 9))
def test_trains_anywhere_in_a_buffer(shift, count, size):
    """A read lies at any offset of a chunk, odd ones included."""
    octets = b"".join(odata(count, size=size))
    chunk = np.frombuffer(bytes(shift) + octets + b"\xff" * 9, np.uint8)
    items, rejects = Train(chunk, shift, len(octets), 24 + size).parse_untrusted()
    assert rejects == []
    assert [item.octets.tobytes() for item in items] == [octets]


# Losing packets


@given(count=st.integers(1, 8), tail=st.sampled_from([0, 0, 1, 20, 39]), data=st.data())
@example(count=1, tail=0, data=None)
def test_without_drops_exactly_the_lost_packets(count, tail, data):
    packets = odata(count)
    if tail:
        packets.append(data_packet(999, bytes(tail)))
    train = Train.of(b"".join(packets), 64)
    assert train.count == len(packets)
    drawn = st.lists(st.booleans(), min_size=len(packets), max_size=len(packets))
    lost = data.draw(drawn) if data else [True]
    left = train.without(np.array(lost, np.bool_))
    expected = [packet for packet, gone in zip(packets, lost, strict=True) if not gone]
    assert ([] if left is None else list(left.packets())) == expected
    if left is not None:
        assert left.count == len(expected)
    assert list(train.packets()) == packets
    own = Train(np.concatenate([np.zeros(7, np.uint8), train.buffer]), 7, train.length, train.stride)
    closed = own.closed_up(np.array(lost, np.bool_))
    assert ([] if closed is None else list(closed.packets())) == expected


# Runs


def run_of(count, first=0, size=8, options=()):
    octets = b"".join(odata(count, first=first, size=size, options=options))
    items, _ = Train.of(octets, len(octets) // count).parse_untrusted()
    return items[0].run(first)


def test_run_describes_its_packets():
    run = run_of(10, first=5)
    assert (run.first, run.end, run.count, run.octets, run.has_options) == (5, 15, 10, 320, False)
    assert run.options() == ()
    assert run.rows.shape == (10, 32)
    assert [row.tobytes() for row in run.payloads] == [bytes([index]) * 8 for index in range(10)]


@given(first=st.integers(0, 9), count=st.integers(1, 10))
def test_part_of_a_run_shares_its_memory(first, count):
    run = run_of(10)
    end = min(10, first + count)
    part = run.part(first, end)
    assert (part.first, part.end) == (first, end)
    assert part.buffer is run.buffer
    assert part.rows.tobytes() == run.rows[first:end].tobytes()
    assert part.payloads.tobytes() == run.payloads[first:end].tobytes()


def test_taking_a_run_marks_the_train_as_kept():
    """The driver may reuse the octets of a train that nobody kept."""
    train = Train.of(b"".join(odata(3)), 64)
    items, _ = train.parse_untrusted()
    assert not train.kept
    items[0].run(100)
    assert train.kept
    other = Train.of(b"".join(odata(3)), 64)
    other.kept = True  # a driver that still has to send it
    assert other.kept


def test_runs_continue_each_other_in_sqns_and_in_memory():
    run = run_of(10)
    left, middle, right = run.part(0, 4), run.part(4, 7), run.part(7, 10)
    assert left.is_continued_by(middle)
    assert middle.is_continued_by(right)
    assert not left.is_continued_by(right)
    assert not middle.is_continued_by(left)
    elsewhere = run_of(10).part(4, 7)
    assert not left.is_continued_by(elsewhere)
    assert not left.is_continued_by(attrs.evolve(middle, first=5))
    assert not left.is_continued_by(attrs.evolve(middle, stride=16, count=6))
    assert not left.is_continued_by(attrs.evolve(middle, offset=middle.offset + 32))


def test_runs_with_options_stay_apart():
    """A run's options are those of its first packet, so two messages must not become one run."""
    run = run_of(10, options=(Fin(),))
    assert run.has_options
    assert run.options() == (Fin(),)
    assert not run.part(0, 4).is_continued_by(run.part(4, 10))


@pytest.mark.rfc("W-17")
def test_run_under_64_bit_sqns():
    """The run carries what the session unwrapped."""
    items, _ = Train.of(b"".join(odata(3, first=(1 << 32) - 1)), 64).parse_untrusted()
    run = items[0].run((7 << 32) - 1)
    assert (run.first, run.end) == ((7 << 32) - 1, (7 << 32) + 2)


def test_fragment_of_a_run():
    assert fragment_of(run_of(3)) is None
    assert fragment_of(run_of(3, options=(Fin(),))) is None
    assert fragment_of(run_of(1, options=(Fragment(0, 0, 8),))) == Fragment(0, 0, 8)


# Header and numbers of trains of our own


@pytest.mark.rfc("W-17", "SRC-01")
def test_written_train_is_read_as_one_run_wherever_it_starts():
    for first in (0, 1000, (1 << 32) - 3, (5 << 32) - 3):
        rows = np.zeros((6, 40), np.uint8)
        write_odata(rows, tsi=TSI, data_port=DATA_PORT, first=first, trail=first - 1)
        items, rejects = Train.of(rows.reshape(-1), 40).parse_untrusted()
        assert rejects == []
        assert [(i.wire_sqn, i.count, i.wire_trail) for i in items] == [(wrap(first), 6, wrap(first - 1))]
    assert isinstance(items[0].run(first), Run)
