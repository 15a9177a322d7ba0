"""Ring of the flight recorder: order, wrap-around, torn records, an earlier life, damage."""

from __future__ import annotations

import contextlib
import json
import random
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.errors import ProcessError, WireError
from pgm.flight.contents import (
    contents_untrusted,
    from_json_untrusted,
    pack,
    read_ring,
    to_json,
    unpack_untrusted,
)
from pgm.flight.record import NO_PEER, NO_SEGMENT, RECORD_OCTETS, Body, FlightKind, address_octets, address_text
from pgm.flight.ring import HEAD_OCTETS, MOST_SESSIONS, FlightRing, RingFile

FACTS = {
    "topology": "t",
    "node": "n",
    "role": "receiver",
    "segments": [{"name": "core", "side": "up", "address": "10.0.0.1"}],
}
TSI = bytes(range(8))


def body(first: int, time_ns: int = 0, place: int = 0) -> Body:
    return (time_ns, 5, first, 1, place, 0, FlightKind.GAP, NO_SEGMENT, 0, NO_PEER, 0)


def memory(records: int) -> bytearray:
    return bytearray(HEAD_OCTETS + records * RECORD_OCTETS)


def firsts(octets: bytes | bytearray) -> list[int]:
    return contents_untrusted(bytes(octets)).records["first"].tolist()


@given(places=st.integers(1, 40), count=st.integers(0, 130))
def test_ring_keeps_the_newest_records_in_order(places: int, count: int) -> None:
    ring = FlightRing(memory(places), "boot", FACTS)
    for number in range(count):
        ring.append([body(number)])
    assert firsts(ring.octets()) == list(range(max(0, count - places), count))


@given(places=st.integers(2, 20), lives=st.lists(st.integers(0, 30), min_size=1, max_size=5))
def test_ring_continues_behind_the_records_of_an_earlier_life(places: int, lives: list[int]) -> None:
    octets, total = memory(places), 0
    for count in lives:
        ring = FlightRing(octets, "boot", FACTS)
        for _ in range(count):
            ring.append([body(total)])
            total += 1
        ring.close()
    assert firsts(octets) == list(range(max(0, total - places), total))


@given(places=st.integers(3, 20), count=st.integers(1, 50), cut=st.integers(0, RECORD_OCTETS), more=st.integers(0, 30))
def test_ring_with_a_torn_record_loses_that_record_only(places: int, count: int, cut: int, more: int) -> None:
    octets = memory(places)
    ring = FlightRing(octets, "boot", FACTS)
    for number in range(count):
        ring.append([body(number)])
    at = HEAD_OCTETS + count % places * RECORD_OCTETS
    before = bytes(octets)
    ring.append([body(count)])
    ring.close()
    octets[at + cut : at + RECORD_OCTETS] = before[at + cut : at + RECORD_OCTETS]  # as after a kill in the write
    has_arrived = cut == RECORD_OCTETS
    is_untouched = cut == 0 and count >= places
    oldest = count - places + (0 if is_untouched else 1)
    assert firsts(octets) == list(range(max(0, oldest), count + has_arrived))
    ring = FlightRing(octets, "boot", FACTS)
    for number in range(more):
        ring.append([body(1000 + number)])
    kept = firsts(octets)
    assert kept[-more:] == list(range(1000, 1000 + more))[-places:] if more else kept == firsts(octets)


def test_ring_of_another_boot_begins_anew() -> None:
    octets = memory(10)
    FlightRing(octets, "boot", FACTS).append([body(1)])
    ring = FlightRing(octets, "another", FACTS)
    assert ring.number == 0
    ring.append([body(7)])
    assert firsts(octets)[-1] == 7
    assert contents_untrusted(bytes(octets)).boot_id == "another"


def test_ring_begins_anew_when_its_table_of_sessions_is_full() -> None:
    octets = memory(10)
    ring = FlightRing(octets, "boot", FACTS)
    assert [ring.session(bytes([at, *TSI[1:]]), 7500 + at) for at in (1, 2, 1)] == [0, 1, 0]
    ring.close()
    ring = FlightRing(octets, "boot", FACTS)
    assert ring.session(bytes([2, *TSI[1:]]), 0) == 1
    ring.append([body(5)])
    for number in range(MOST_SESSIONS):
        ring.session(number.to_bytes(8, "big"), 1)
    assert firsts(ring.octets()) == []


def test_ring_without_room_for_more_wraps_in_what_it_has() -> None:
    room = HEAD_OCTETS + 3 * RECORD_OCTETS
    ring = FlightRing(memory(100), "boot", FACTS, lambda end: end <= room)
    ring.append([body(0)])
    assert firsts(ring.octets()) == []
    ring = FlightRing(memory(3), "boot", FACTS, lambda _: True)
    for number in range(8):
        ring.append([body(number)])
    assert firsts(ring.octets()) == [5, 6, 7]


def test_ring_file_outlives_its_writer_and_is_read_while_written(tmp_path: Path) -> None:
    path = tmp_path / "n.flight"
    file = RingFile(path, 1 << 20, FACTS)
    file.ring.set_wall_offset(12)
    file.ring.session(TSI, 7500)
    for number in range(20_000):
        file.ring.append([body(number)])
    contents = read_ring(path)
    assert contents.records["first"].tolist()[-1] == 19_999
    assert (contents.node, contents.wall_offset_ns, contents.sessions) == ("n", 12, [(TSI, 7500)])
    with pytest.raises(ProcessError, match="another process"):
        RingFile(path, 1 << 20, FACTS)
    file.close()
    file.ring.append([body(1)])  # ignored
    again = RingFile(path, 1 << 20, FACTS)
    again.ring.append([body(5)])
    assert read_ring(path).records["first"].tolist()[-2:] == [19_999, 5]
    again.close()
    RingFile(path, 1 << 21, FACTS).close()  # another size begins anew
    assert len(read_ring(path).records) == 0


def test_ring_file_of_a_link_or_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "a").chmod(0o644)
    (tmp_path / "b").symlink_to(tmp_path / "c")
    for name in ("a", "b"):
        with pytest.raises(ProcessError):
            RingFile(tmp_path / name, 1 << 20, FACTS)


def test_packed_ring_and_json_have_the_same_contents(tmp_path: Path) -> None:
    path = tmp_path / "n.flight"
    file = RingFile(path, 1 << 20, FACTS)
    place = file.ring.session(TSI, 7500)
    peer = address_octets("10.0.0.7")
    for number in range(50):
        file.ring.append([(number, -number, number, 2, place, 1, FlightKind.NAK_OUT, 0, 0, peer, 3)])
    file.close()
    read = read_ring(path)
    packed = unpack_untrusted(pack(path))
    told = from_json_untrusted(json.loads(json.dumps(to_json(read))))
    for one in (packed, told):
        assert to_json(one) == to_json(read)
    assert to_json(read)["records"][0]["peer"] == "10.0.0.7"


@given(seed=st.integers(0, 1 << 32), flips=st.integers(0, 200))
def test_damaged_ring_never_raises_anything_but_wire_errors(seed: int, flips: int) -> None:
    rng = random.Random(seed)
    octets = memory(5)
    ring = FlightRing(octets, "boot", FACTS)
    ring.session(TSI, 1)
    for number in range(7):
        ring.append([body(number)])
    damaged = bytearray(octets)
    for _ in range(flips):
        damaged[
            rng.choice(
                (rng.randrange(len(damaged)), rng.randrange(400), HEAD_OCTETS + rng.randrange(5 * RECORD_OCTETS))
            )
        ] = rng.randrange(256)
    cut = damaged[: rng.choice((len(damaged), rng.randrange(len(damaged))))]
    for read in (
        lambda: contents_untrusted(bytes(cut)),
        lambda: unpack_untrusted(zlib.compress(bytes(cut))),
        lambda: unpack_untrusted(bytes(cut)),
    ):
        try:
            to_json(read())
        except WireError:
            continue


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["version", "facts", "records", "sessions", "boot_id", "wall_offset_ns"]),
                inner,
                max_size=6,
            )
        ),
    )
)
def test_json_of_anything_is_read_or_refused(value: object) -> None:
    with contextlib.suppress(WireError):
        from_json_untrusted(value)


@pytest.mark.parametrize("address", ["", "10.1.2.3", "fd00::1"])
def test_addresses_survive_as_octets(address: str) -> None:
    assert address_text(address_octets(address)) == address
