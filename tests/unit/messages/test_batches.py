"""Batches: the octets equal those of a plain CBOR library; nonsense is refused and counted without an exception."""

from __future__ import annotations

import random

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.core.structures.arena import BlockPool
from pgm.messages.batch_decoder import BadPackets, BatchDecoder, DecodedBatch
from pgm.messages.batch_encoder import FullBatches, OpenBatch, pack
from pgm.messages.batch_format import MOST_MESSAGES, BadBatch, compose, equal_rows, read_layout, width_of
from pgm.messages.columns import Columns, Octets
from pgm.messages.subjects import SubjectFilter

TAGS = {1: 64, 2: 69, 4: 70}
DTYPES = {64: "<u1", 69: "<u2", 70: "<u4"}
NAMES = ["/a", "/a/b", "/nasdaq/ibm", "/é/ü", "/x" * 40]
Message = tuple[bytes, str | None, str | None]  # payload, subject, node


def messages(draw_sizes: st.SearchStrategy[int], most: int = 60) -> st.SearchStrategy[list[Message]]:
    subject = st.none() | st.sampled_from(NAMES)
    node = st.none() | st.sampled_from(["desk-1", "desk-2", "x"])
    payload = draw_sizes.flatmap(lambda size: st.binary(min_size=size, max_size=size))
    return st.lists(st.tuples(payload, subject, node), min_size=1, max_size=most)


MIXED_SIZES = messages(st.integers(0, 90))
ONE_SIZE = st.integers(1, 70).flatmap(lambda size: messages(st.just(size)))
ANY = MIXED_SIZES | ONE_SIZE


def columns(sent: list[Message]) -> Columns:
    """Return columns as a source makes them of its arguments."""
    tables: dict[str, object] = {}
    for table, key, at in (("subjects", "subject", 1), ("nodes", "to", 2)):
        names = list(dict.fromkeys(message[at] for message in sent if message[at] is not None))
        places = [0 if message[at] is None else names.index(message[at]) + 1 for message in sent]
        indexes = places[0] if len(set(places)) == 1 else np.array(places, f"<u{width_of(len(names))}")
        tables |= {table: tuple(names), key: indexes}
    return Columns.of_list([payload for payload, _, _ in sent], **tables)


def plain(sent: list[Message]) -> bytes:
    """Return the same batch, written by a CBOR library alone."""
    found = columns(sent)

    def typed(values: list[int], most: int) -> cbor2.CBORTag:
        tag = TAGS[width_of(most)]
        return cbor2.CBORTag(tag, np.array(values, DTYPES[tag]).tobytes())

    batch: dict[str, object] = {"v": 1, "n": len(sent)}
    sizes = [len(payload) for payload, _, _ in sent]
    if len(set(sizes)) == 1 and sizes[0]:
        batch["size"] = sizes[0]
    else:
        batch["offsets"] = typed([sum(sizes[:at]) for at in range(len(sizes) + 1)], sum(sizes))
    for table, key, names, indexes in (
        ("subjects", "subject", found.subjects, found.subject),
        ("nodes", "to", found.nodes, found.to),
    ):
        if names:
            whole = isinstance(indexes, int)
            batch |= {table: list(names), key: indexes if whole else typed(indexes.tolist(), len(names))}
    batch["data"] = b"".join(payload for payload, _, _ in sent)
    return cbor2.dumps(batch)


def read_plainly(octets: bytes) -> list[Message]:
    """Return the messages of a batch, read by a CBOR library and plain Python."""
    batch = cbor2.loads(octets)

    def numbers(value: object) -> list[int]:
        if isinstance(value, int):
            return [value] * batch["n"]
        assert isinstance(value, cbor2.CBORTag)
        return [int(one) for one in np.frombuffer(value.value, DTYPES[value.tag])]

    size = batch.get("size", 0)
    ends = [at * size for at in range(batch["n"] + 1)] if size else numbers(batch["offsets"])
    subjects, nodes = [None, *batch.get("subjects", [])], [None, *batch.get("nodes", [])]
    subject, to = numbers(batch.get("subject", 0)), numbers(batch.get("to", 0))
    return [(batch["data"][ends[at] : ends[at + 1]], subjects[subject[at]], nodes[to[at]]) for at in range(batch["n"])]


def rows_built(batches: FullBatches, pieces: int = 1) -> Octets:
    """Return all batches, written in this many pieces."""
    rows = np.full((batches.count, batches.octets), 0xA5, np.uint8)
    at = 0
    for piece in np.array_split(rows, pieces):
        batches.write(piece, at)
        at += len(piece)
    return rows


def rows_of(packed: list[FullBatches | list[bytes]]) -> list[bytes]:
    return [bytes(row) for part in packed for row in (rows_built(part) if isinstance(part, FullBatches) else part)]


def messages_of(found: list[DecodedBatch | BadPackets]) -> list[Message]:
    result: list[Message] = []
    for one in found:
        assert isinstance(one, DecodedBatch)
        part = one.columns
        subject = [part.subject] * part.count if isinstance(part.subject, int) else part.subject.tolist()
        to = [part.to] * part.count if isinstance(part.to, int) else part.to.tolist()
        subjects, nodes = [None, *part.subjects], [None, *part.nodes]
        result += [
            (payload, subjects[at], nodes[node]) for payload, at, node in zip(part.payloads(), subject, to, strict=True)
        ]
    return result


def decoded(packets: list[bytes], node: str = "desk-1", subjects: SubjectFilter | None = None) -> list[Message]:
    """Return a receiver's messages from packets; adjacent packets of one length come as one array."""
    decoder = BatchDecoder(node, subjects or SubjectFilter())
    found: list[Message] = []
    at = 0
    while at < len(packets):
        end = at + 1
        while end < len(packets) and len(packets[end]) == len(packets[at]):
            end += 1
        rows = np.frombuffer(b"".join(packets[at:end]), np.uint8).reshape(end - at, -1)
        found += messages_of(list(decoder.add(at, rows)))
        at = end
    return found


@given(ANY)
def test_a_batch_is_what_a_plain_cbor_library_writes(sent: list[Message]) -> None:
    assert compose(columns(sent)) == plain(sent)


@given(ANY, st.sampled_from([40, 100, 300, 1448, 70_000]))
def test_batches_hold_all_messages_in_order_within_the_limit(sent: list[Message], room: int) -> None:
    packets = rows_of(list(pack(columns(sent), room)))
    assert [message for packet in packets for message in read_plainly(packet)] == sent
    for packet in packets:
        assert len(packet) <= room or len(read_plainly(packet)) == 1


@given(messages(st.just(7), most=200), st.sampled_from([120, 300]), st.integers(1, 9), st.none() | st.just(1 << 50))
def test_batches_full_packets_do_not_depend_on_pieces(
    sent: list[Message], room: int, pieces: int, at_us: int | None
) -> None:
    for batches in pack(columns(sent), room, at_us):
        if isinstance(batches, FullBatches):
            rows, each = rows_built(batches, pieces), batches.layout.count
            parts = [batches.columns.part(at, at + each) for at in range(0, (batches.count - 1) * each, each)]
            for row, part in zip(rows, parts, strict=False):  # the last packet may have fewer
                assert row.tobytes() == compose(part, batches.octets, at_us)
            assert rows.tobytes() == rows_built(batches).tobytes()


@given(ANY, st.sampled_from([120, 300, 1448]))
def test_batches_messages_added_singly_come_out(sent: list[Message], room: int) -> None:
    filling, packets = OpenBatch(room), []
    for payload, subject, to in sent:
        if not filling.add(payload, subject, to):
            packets.append(filling.take())
            filling.add(payload, subject, to)
    packets.append(filling.take())
    assert [message for packet in packets for message in read_plainly(packet)] == sent
    for packet in packets:
        assert len(packet) <= room or len(read_plainly(packet)) == 1


@given(ANY, st.sampled_from([200, 1448]), st.none() | st.just(["/a/..."]))
def test_batches_receiver_takes_its_wanted_messages(sent: list[Message], room: int, patterns: list[str] | None) -> None:
    packets = rows_of(list(pack(columns(sent), room)))
    wanted = [
        message
        for message in sent
        if message[2] in (None, "desk-1") and (patterns is None or message[1] in ("/a", "/a/b"))
    ]
    assert decoded(packets, subjects=SubjectFilter(patterns)) == wanted


TIMES = st.integers(0, 250_000_000_000_000_000)


@given(ANY, st.sampled_from([120, 1448]), TIMES, st.booleans())
def test_packets_say_when_they_were_filled_where_the_stream_wants_it(
    sent: list[Message], room: int, at_us: int, one_by_one: bool
) -> None:
    packets = rows_of(list(pack(columns(sent), room, at_us)))
    if one_by_one:
        filling, packets = OpenBatch(room, has_time=True), []
        for payload, subject, to in sent:
            if not filling.add(payload, subject, to):
                packets.append(filling.take(at_us))
                filling.add(payload, subject, to)
        packets.append(filling.take(at_us))
    assert [message for packet in packets for message in read_plainly(packet)] == sent
    decoder = BatchDecoder(None, SubjectFilter())
    for packet in packets:
        assert cbor2.loads(packet)["at"] == at_us
        assert len(packet) <= room or len(read_plainly(packet)) == 1
        (found,) = decoder.add(0, np.frombuffer(packet, np.uint8).reshape(1, -1))
        assert isinstance(found, DecodedBatch)
        assert found.sent_us is not None
        assert found.sent_us.tolist() == [at_us]


def test_batches_that_differ_in_their_times_are_read_together() -> None:
    times = [1_764_000_000_000_000, 0, 1_764_000_000_000_009]
    packets = [compose(columns([(b"one", "/a", None)]), at_us=at_us) for at_us in times]
    decoder = BatchDecoder(None, SubjectFilter())
    rows = np.frombuffer(b"".join(packets), np.uint8).reshape(len(times), -1)
    (found,) = decoder.add(5, rows)
    assert isinstance(found, DecodedBatch)
    assert found.sent_us is not None
    assert (found.sqns.tolist(), found.sent_us.tolist()) == ([5, 6, 7], times)
    wild = compose(columns([(b"one", "/a", None)]), at_us=1 << 63)
    rows = np.frombuffer(packets[0] + wild + packets[1], np.uint8).reshape(3, -1)
    assert [type(one) for one in decoder.add(5, rows)] == [DecodedBatch, BadPackets, DecodedBatch]


def test_full_packets_of_messages_of_any_size_are_equally_long() -> None:
    rng = random.Random(3)
    sent = [(rng.randbytes(rng.randrange(200)), None, None) for _ in range(2000)]
    packets = rows_of(list(pack(columns(sent), 1448)))
    assert {len(packet) for packet in packets[:-1]} == {1448}
    assert decoded(packets) == sent


@pytest.mark.parametrize(("count", "lengths"), [(17 * 18 + 5, 1), (7 * 18 + 5, 2)])
def test_the_last_of_many_packets_is_as_long_as_the_others(count: int, lengths: int) -> None:
    """Equal packets travel in one train.

    With few packets, the padding of the last one would cost more than the train saves.
    """
    sent = [(bytes([number % 251]) * 70, f"/q/{number % 10}", None) for number in range(count)]
    packets = rows_of(list(pack(columns(sent), 1448)))
    assert len({len(packet) for packet in packets}) == lengths
    assert all(len(packet) % 8 == 0 for packet in packets[:-1])
    assert decoded(packets) == sent


def test_batches_of_two_calls_are_decoded_separately() -> None:
    """The full packets of each call are one batch, and so is the last packet of each call.

    The packets of two calls travel in one train.
    """
    call = [(bytes([number % 251]) * 700, "/a", None) for number in range(201)]
    packets = 2 * rows_of(list(pack(columns(call), 1448)))
    rows = np.frombuffer(b"".join(packets), np.uint8).reshape(len(packets), -1)
    found = list(BatchDecoder("x", SubjectFilter()).add(7, rows))
    assert messages_of(found) == 2 * call
    assert [len(one.sqns) for one in found if isinstance(one, DecodedBatch)] == [100, 1, 100, 1]


def test_batches_decoded_messages_stay_while_referenced() -> None:
    """The messages stay although more is read, also if only a part of them is referenced."""
    decoder, kept = BatchDecoder("x", SubjectFilter(), BlockPool().take), []
    for number in range(12):
        call = [(bytes([number, place % 251]) * 350, "/a", None) for place in range(200)]
        rows = np.frombuffer(b"".join(rows_of(list(pack(columns(call), 1448)))), np.uint8).reshape(100, -1)
        (found,) = decoder.add(number * 100, rows)
        assert isinstance(found, DecodedBatch)
        if number % 3:
            kept.append((found.columns.part(10, 30), call[10:30]))
    for part, messages_then in kept:
        assert part.payloads() == [payload for payload, _, _ in messages_then]


def test_ten_thousand_subjects_go_into_tables_of_their_packets() -> None:
    rng = random.Random(4)
    sent = [(rng.randbytes(70), f"/q/{rng.randrange(10_000)}", None) for _ in range(3000)]
    packets = rows_of(list(pack(columns(sent), 1448)))
    assert all(len(packet) <= 1448 for packet in packets)
    assert decoded(packets) == sent


def test_a_message_larger_than_a_packet_is_a_batch_of_its_own() -> None:
    sent = [(b"a" * 10, "/a", None), (b"b" * 5000, "/a", None), (b"c" * 10, "/a", None)]
    assert [len(read_plainly(packet)) for packet in rows_of(list(pack(columns(sent), 1448)))] == [1, 1, 1]


GOOD = compose(columns([(b"one", "/a", None), (b"three", "/a/b", "x"), (b"", None, None)]))
BASE = {"v": 1, "n": 1, "size": 3, "data": b"abc"}


@given(st.binary(max_size=200))
def test_random_octets_are_refused(octets: bytes) -> None:
    rows = np.frombuffer(octets, np.uint8).reshape(1, -1)
    assert list(BatchDecoder("x", SubjectFilter()).add(7, rows)) == [BadPackets(7, 1)]


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.booleans())
def test_a_damaged_batch_is_read_or_refused_and_what_follows_is_read(at: int, octet: int, cut: bool) -> None:
    bad = bytearray(GOOD)
    bad[at] = octet
    octets = bytes(bad[:at] if cut else bad)
    decoder = BatchDecoder("x", SubjectFilter())
    found = list(decoder.add(0, np.frombuffer(octets, np.uint8).reshape(1, -1)))
    assert len(found) == 1
    after = list(decoder.add(1, np.frombuffer(GOOD, np.uint8).reshape(1, -1)))
    assert messages_of(after) == [(b"one", "/a", None), (b"three", "/a/b", "x"), (b"", None, None)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"v": 2}, "version 2"),
        ({"at": 7}, "a time that is no number of 64 bits"),
        ({"at": "now"}, "a time that is no number of 64 bits"),
        ({"n": 0}, "without messages"),
        ({"n": MOST_MESSAGES + 1}, "without messages"),
        ({"size": 0}, "without their sizes"),
        ({"size": 4}, "fewer octets"),
        ({"size": 1 << 60}, "fewer octets"),
        ({"offsets": cbor2.CBORTag(64, b"\0\3")}, "without their sizes"),
        ({"size": None, "offsets": cbor2.CBORTag(64, b"\0\3\3")}, "one more"),
        ({"size": None, "offsets": cbor2.CBORTag(69, b"\0\3\0")}, "an array of tag 69"),
        ({"size": None, "offsets": cbor2.CBORTag(5, b"\0\3")}, "an array of tag 5"),
        ({"subject": 1}, "without subjects"),
        ({"subjects": ["/a"]}, "without subjects"),
        ({"subjects": ["/a"], "subject": 2}, "beyond its table"),
        ({"subjects": ["/a/*"], "subject": 1}, "a subject is invalid"),
        ({"subjects": ["a"], "subject": 1}, "a subject is invalid"),
        ({"subjects": ["/" + "a" * 2000], "subject": 1}, "too long"),
        ({"nodes": ["a"], "to": cbor2.CBORTag(64, b"\1\1")}, "not for each"),
        ({"extra": 1}, "unknown key"),
        ({"data": "abc"}, "kind 3 instead of 2"),
        ({"data": [[[[]]]]}, "kind 4 instead of 2"),
    ],
)
def test_batches_malformed_packets_are_named(change: dict[str, object], why: str) -> None:
    batch = {key: value for key, value in {**BASE, **change}.items() if value is not None}
    with pytest.raises(BadBatch, match=why):
        read_layout(cbor2.dumps(batch))


@pytest.mark.parametrize("offsets", [b"\1\3", b"\3\0", b"\0\4", b"\0\xff"])
def test_offsets_that_make_no_sense_are_refused(offsets: bytes) -> None:
    octets = cbor2.dumps({"v": 1, "n": 1, "offsets": cbor2.CBORTag(64, offsets), "data": b"abc"})
    rows = np.frombuffer(octets * 3, np.uint8).reshape(3, -1)
    found = list(BatchDecoder("x", SubjectFilter()).add(5, rows))
    assert found == [BadPackets(5, 1), BadPackets(6, 1), BadPackets(7, 1)]


@given(changed=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 170)), max_size=4))
def test_batches_are_equal_up_to_the_first_difference(changed: list[tuple[int, int]]) -> None:
    """The difference is in an octet outside messages, indexes and padding."""
    batches = next(pack(columns([(bytes(70), f"/q/{number % 10}", None) for number in range(7 * 18)]), 1448))
    assert isinstance(batches, FullBatches)
    rows = rows_built(batches)[:6]
    layout = read_layout(rows[0].tobytes())
    for row, at in changed:
        rows[1 + row, at] ^= 1
    fixed = [at for begin, end in layout.fixed for at in range(begin, end)]
    expected = next((row for row in range(1, 6) if (rows[row] != rows[0])[fixed].any()), 6)
    assert equal_rows(rows, layout) == expected


def test_batches_only_the_bad_one_of_similar_ones_is_refused() -> None:
    def batch(index: int) -> bytes:
        indexes = cbor2.CBORTag(64, bytes((1, index)))
        return cbor2.dumps({"v": 1, "n": 2, "size": 1, "subjects": ["/a"], "subject": indexes, "data": b"xy"})

    rows = np.frombuffer(batch(1) + batch(7) + batch(0), np.uint8).reshape(3, -1)
    found = list(BatchDecoder("x", SubjectFilter()).add(0, rows))
    assert [type(one) for one in found] == [DecodedBatch, BadPackets, DecodedBatch]
    assert messages_of([found[0], found[2]]) == [
        (b"x", "/a", None),
        (b"y", "/a", None),
        (b"x", "/a", None),
        (b"y", None, None),
    ]
