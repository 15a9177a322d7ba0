"""Groups of the packets of a train: the items are those of the packets one by one (W-03, W-10, SEC-06)."""

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pgm.wire.checksum import INTEGER_OCTETS
from pgm.wire.control_packets import Nak, encode
from pgm.wire.formats import PacketType
from pgm.wire.options import Fragment, Join, Syn
from pgm.wire.sequence_numbers import MASK, unwrap, wrap
from pgm.wire.single_odata import plain_front, read_plain_untrusted
from pgm.wire.train import Data, DataWithGaps, Train
from pgm.wire.train_grouping import group_packets
from tests.reference import DATA_PORT, TSI, data_packet, sealed, without_checksum

STRIDE = 24 + 20
FRAGMENT_STRIDE = 24 + 20 + 4
# The last octet of every header field, and the flags: a difference of one there is the least there can be.
FIELDS = {"port": 1, "dport": 3, "type": 4, "flags": 5, "checksum": 7, "gsi": 13, "tsdu": 15, "sqn": 19, "trail": 23}

rows = st.lists(st.sampled_from([1, 1, 1, 1, 0, 2]), min_size=1, max_size=8)
firsts = st.one_of(st.integers(0, 3), st.integers(MASK - 8, MASK))
changes = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.one_of(st.sampled_from(sorted(FIELDS.values())), st.integers(0, FRAGMENT_STRIDE - 1)),
        st.sampled_from([1, 255, 0x80, 0x40, 2]),
        st.sampled_from(["sealed", "sealed", "sealed", "damaged", "no checksum"]),
    ),
    max_size=4,
)
tails = st.sampled_from([0, 0, 15, 16, 24, 30, STRIDE - 1])


def packets_of(first, steps, changed, tail):
    """Data packets that count up, some octets of some of them changed, and perhaps a shorter one behind them."""
    packets, sqn = [], first
    for index, step in enumerate([0, *steps]):
        sqn += step
        packets.append(data_packet(wrap(sqn), bytes([index]) * (STRIDE - 24), trail=index // 2))
    if tail:
        packets.append(data_packet(wrap(sqn + 1), bytes(max(0, tail - 24)))[:tail])
    return changed_by(packets, changed)


def fragments_of(first, steps, changed, lengths):
    """The same, fragments of one message whose offsets go on where the one before ended, as sqns say, or elsewhere."""
    packets, sqn = [], first
    for index, (step, length) in enumerate(zip([0, *steps], lengths, strict=False)):
        sqn += step
        fragment = Fragment(first_sqn=wrap(first), offset=wrap((sqn - first) * 4 + length), apdu_length=400)
        packets.append(data_packet(wrap(sqn), bytes([index]) * 4, trail=index // 2, options=[fragment]))
    return changed_by(packets, changed)


def changed_by(packets, changed):
    """The packets with some octets of some of them changed: row, octet, by how much, and what becomes of the checksum."""
    for row, at, by, how in changed:
        if row >= len(packets) or at >= len(packets[row]) or len(packets[row]) < 24:
            continue
        octets = bytearray(packets[row])
        octets[at] = octets[at] + by & 0xFF
        made = bytes(octets)
        packets[row] = {"sealed": sealed, "damaged": bytes, "no checksum": without_checksum}[how](made)
    return packets


def told(items):
    """All that an item says, the octets it lies on included."""
    names = [field.name for field in attrs.fields(Data) if field.name not in ("buffer", "keeping")]
    return [[getattr(item, name) for name in names] if isinstance(item, Data) else item for item in items]


def split(items):
    """Each packet of the items by itself."""
    for item in items:
        if not isinstance(item, Data):
            yield item
            continue
        for index in range(item.count):
            at = item.offset + index * item.stride
            octets = item.buffer[at : at + item.stride].tobytes()
            sqn = wrap(item.wire_sqn + index)
            ahead = index * (item.stride - item.payload_at)
            options = tuple(
                attrs.evolve(option, offset=wrap(option.offset + ahead)) if isinstance(option, Fragment) else option
                for option in item.options
            )
            yield item.type, item.tsi, item.data_port, sqn, item.parity, options, item.payload_at, octets


@given(first=firsts, changed=changes, size=st.sampled_from([0, 1, 20, 4072, 4073]), kind=st.sampled_from([4, 4, 5]))
def test_a_plain_packet_is_read_as_any_other(first, changed, size, kind):
    """What is read by few calls is what the train says, and everything that is so plain is read so."""
    packet = data_packet(first, bytes(size), trail=first, kind=PacketType(kind))
    for _, at, by, how in changed:
        octets = bytearray(packet)
        octets[at % len(octets)] = octets[at % len(octets)] + by & 0xFF
        packet = {"sealed": sealed, "damaged": bytes, "no checksum": without_checksum}[how](bytes(octets))
    items, _ = Train.of(packet).parse_untrusted()
    item = items[0] if items and isinstance(items[0], Data) else None
    found = read_plain_untrusted(packet)
    is_plain = item is not None and item.type is PacketType.ODATA and not item.options and not item.parity
    is_plain = is_plain and packet[5] == 0 and packet[4] == PacketType.ODATA and len(packet) <= INTEGER_OCTETS
    if found is None or item is None or found[0] != plain_front(item.tsi, item.data_port):
        assert not is_plain
    else:
        assert is_plain
        assert (found[1] + found[0][:2], *found[2:]) == (item.tsi, item.wire_sqn, item.wire_trail)


def test_a_plain_packet_whose_checksum_would_be_nothing():
    """A field of 0 says that there is no checksum, even where it would be right as one (W-10)."""
    packet = bytearray(data_packet(1, bytes(2)))
    rest = int.from_bytes(packet[6:8], "little")
    packet[24:26] = rest.to_bytes(2, "little")
    packet[6:8] = b"\0\0"
    assert int.from_bytes(packet, "little") % 0xFFFF == 0
    assert read_plain_untrusted(bytes(packet)) is None
    assert Train.of(bytes(packet)).parse_untrusted() == ([], ["no_checksum"])


@given(first=firsts, steps=rows, changed=changes, tail=tails)
@example(first=MASK, steps=[1], changed=[(1, FIELDS["tsdu"], 1, "sealed")], tail=0)
@example(first=MASK - 1, steps=[1, 1, 1], changed=[(2, 15, 1, "sealed"), (3, 15, 1, "sealed")], tail=30)
@example(first=5, steps=[1, 1], changed=[(row, FIELDS["flags"], 1, "sealed") for row in range(3)], tail=0)
@example(first=5, steps=[1, 1], changed=[(row, FIELDS["flags"], 0x40, "sealed") for row in range(3)], tail=0)
@example(first=5, steps=[1, 1], changed=[(row, 30, 1, "no checksum") for row in range(3)], tail=0)
def test_train_of_changed_packets_is_read_as_its_packets(first, steps, changed, tail):
    read_alike(packets_of(first, steps, changed, tail), STRIDE)


@given(
    first=firsts,
    steps=rows,
    changed=changes,
    lengths=st.lists(st.sampled_from([0, 0, 0, 0, 4, MASK]), min_size=9, max_size=9),
)
@example(first=5, steps=[1, 1], changed=[(row, 28, 1, "sealed") for row in range(3)], lengths=[0] * 3)
@example(first=5, steps=[1, 1], changed=[(row, 28, 0x80, "sealed") for row in range(3)], lengths=[0] * 3)
@example(first=5, steps=[1, 1], changed=[(row, 27, 1, "sealed") for row in range(3)], lengths=[0] * 3)
@example(first=5, steps=[1, 1], changed=[(2, 43, 1, "sealed")], lengths=[0] * 3)
@example(first=5, steps=[1] * 3, changed=[(0, 28, 1, "sealed")], lengths=[0, 0, 4, 0])
def test_train_of_changed_fragments_is_read_as_its_packets(first, steps, changed, lengths):
    read_alike(fragments_of(first, steps, changed, lengths), FRAGMENT_STRIDE)


@given(
    order=st.permutations([Syn(), Fragment(first_sqn=7, offset=0, apdu_length=400)]),
    offsets=st.lists(st.sampled_from([0, 0, 4, 8]), min_size=2, max_size=4),
    joins=st.booleans(),
)
@example(order=[Syn(), Fragment(first_sqn=7, offset=0, apdu_length=400)], offsets=[0, 0, 0], joins=False)
def test_fragments_whose_offsets_do_not_follow_are_not_read_together(order, offsets, joins):
    """Whatever option comes before OPT_FRAGMENT: what a source says wrongly must not depend on how its packets came."""
    more = [Join(min_sqn=3)] if joins else []
    packets = []
    for row, offset in enumerate(offsets):
        options = [attrs.evolve(one, offset=offset) if isinstance(one, Fragment) else one for one in (*more, *order)]
        packets.append(data_packet(7 + row, bytes([row]) * 4, options=options))
    read_alike(packets, len(packets[0]))


def read_alike(packets, stride):
    """Read a train of these packets, and each of them by itself. Items of a train without rejects cannot be joined."""
    items, rejects = Train.of(b"".join(packets), stride).parse_untrusted()
    singles = [Train.of(packet).parse_untrusted() for packet in packets]
    assert list(split(items)) == [one for found, _ in singles for one in split(found)]
    assert sorted(rejects) == sorted(reason for _, reasons in singles for reason in reasons)
    if not rejects:
        assert not any(continues(item, following) for item, following in itertools.pairwise(items))


def continues(item, following):
    """Return whether two items could be one: adjacent data with consecutive sqns, and fragments with such offsets."""
    if not (isinstance(item, Data) and isinstance(following, Data)):
        return False
    options = item.options
    if options and isinstance(options[0], Fragment):
        ahead = item.count * (item.stride - item.payload_at)
        options = (attrs.evolve(options[0], offset=wrap(options[0].offset + ahead)), *options[1:])
    elif any(isinstance(option, Fragment) for option in options):
        return False  # offsets are compared only if OPT_FRAGMENT is the first option
    names = ("type", "tsi", "data_port", "parity", "stride")
    return following.wire_sqn == wrap(item.wire_sqn + item.count) and (
        options,
        *(getattr(item, name) for name in names),
    ) == (following.options, *(getattr(following, name) for name in names))


@given(first=firsts, steps=st.lists(st.sampled_from([1, 1, 1, 0, 2, 3, -1]), min_size=1, max_size=12), changed=changes)
def test_packets_with_holes_between_them_are_one_item(first, steps, changed):
    """They say of their pieces what these say each by itself; plain ones of one trail are never more than one item."""
    packets, sqn = [], first
    for step in [0, *steps]:
        sqn += step
        packets.append(data_packet(wrap(sqn), bytes([step & 0xFF]) * (STRIDE - 24), trail=1))
    whole = Train.of(b"".join(packets), STRIDE)
    [item], rejects = whole.parse_scattered_untrusted()
    assert rejects == []
    pieces = list(item.pieces()) if isinstance(item, DataWithGaps) else [item]
    assert told(pieces) == told(whole.parse_runs_untrusted()[0])
    assert not whole.kept
    base = 1 << 40 | first
    runs = item.runs(base) if isinstance(item, DataWithGaps) else [item.run(base)]
    assert whole.kept
    assert [run.first for run in runs] == [unwrap(piece.wire_sqn, base) for piece in pieces]
    assert [run.rows.tobytes() for run in runs] == [piece.octets.tobytes() for piece in pieces]
    if isinstance(item, DataWithGaps):
        assert (item.count, item.tsi, item.data_port) == (len(packets), pieces[0].tsi, pieces[0].data_port)
        ends = [run.end for run in runs]
        assert item.is_ascending == all(run.first > end for run, end in zip(runs[1:], ends, strict=False))
    # Whatever is changed in some of them, nothing is read otherwise for that.
    for row, at, by, how in changed:
        octets = bytearray(packets[row % len(packets)])
        octets[at % STRIDE] = octets[at % STRIDE] + by & 0xFF
        packets[row % len(packets)] = {"sealed": sealed, "damaged": bytes, "no checksum": without_checksum}[how](
            bytes(octets)
        )
    singles = [Train.of(packet).parse_untrusted() for packet in packets]
    items, rejects = Train.of(b"".join(packets), STRIDE).parse_untrusted()
    assert list(split(items)) == [one for found, _ in singles for one in split(found)]
    assert sorted(rejects) == sorted(reason for _, reasons in singles for reason in reasons)


@given(
    first=firsts,
    packets=st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 2, -3]), st.sampled_from([4, 4, 4, 5, 5, 6, 0]), st.sampled_from([0, 0, 1])
        ),
        min_size=2,
        max_size=12,
    ),
)
def test_repairs_between_new_data_are_read_as_without_them(first, packets):
    """Each piece has the trail of its last packet; control packets and others among them are read as what they are."""
    made, sqn, trail = [], first, 0
    for step, kind, more in packets:
        sqn, trail = sqn + step, trail + more
        octets = bytearray(data_packet(wrap(sqn), bytes(20), trail=trail))
        octets[4] = kind
        made.append(sealed(bytes(octets)))
    read_alike(made, STRIDE)


def test_pieces_of_one_type_and_trail_are_one_group():
    kinds = [(10, 4, 1), (11, 4, 1), (3, 5, 1), (5, 5, 1), (12, 4, 1), (13, 4, 2), (15, 4, 3)]
    made = [data_packet(sqn, bytes(20), trail=trail, kind=PacketType(kind)) for sqn, kind, trail in kinds]
    found = np.frombuffer(b"".join(made), np.uint8).reshape(len(made), STRIDE)
    groups = group_packets(found)
    assert groups == [(0, [0, 2], False), (2, [0, 1, 2], False), (4, [0, 2], False), (6, [0, 1], False)]


@pytest.mark.parametrize("spoilt", [without_checksum, bytes], ids=["absent", "wrong"])
def test_packet_without_right_checksum_ends_group(spoilt):
    made = [data_packet(sqn, bytes(20), trail=1) for sqn in (10, 12, 13, 14, 16)]
    octets = bytearray(made[2])
    octets[30] += 1
    made[2] = spoilt(bytes(octets))
    found = np.frombuffer(b"".join(made), np.uint8).reshape(len(made), STRIDE)
    absent = [(2, [0, 1], True)] if spoilt is without_checksum else []
    assert group_packets(found) == [(0, [0, 1, 2], False), *absent, (3, [0, 1, 2], False)]


def test_a_length_that_is_wrong_by_what_a_sqn_carries_is_refused():
    """Where sqns begin anew, the sum of a number and its step would reach into the field before: the TSDU length."""
    first, second = (data_packet(sqn, bytes(20)) for sqn in (MASK, 0))
    wrong = bytearray(second)
    wrong[FIELDS["tsdu"]] += 1
    items, rejects = Train.of(first + sealed(bytes(wrong)), STRIDE).parse_untrusted()
    assert [(item.type, item.wire_sqn, item.count) for item in items] == [(PacketType.ODATA, MASK, 1)]
    assert rejects == ["length"]


def test_ncfs_of_consecutive_sqns_after_data_are_items_of_their_own():
    ends = {"tsi": TSI, "data_port": DATA_PORT, "source_nla": "10.0.0.1", "group_nla": "239.1.1.1"}
    ncfs = [encode(Nak(kind=PacketType.NCF, sqn=sqn, **ends)) for sqn in (5, 6, 7)]
    data = data_packet(4, bytes(len(ncfs[0]) - 24))
    items, rejects = Train.of(b"".join([data, *ncfs]), len(data)).parse_untrusted()
    assert [getattr(item, "sqn", None) for item in items] == [None, 5, 6, 7]
    assert not rejects
