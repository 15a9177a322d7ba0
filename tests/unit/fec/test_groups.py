"""Groups of packets: variable sizes, short groups, fragments, and parity of other groups."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgm.fec import groups
from pgm.wire import checksum
from pgm.wire.options import Fragment
from pgm.wire.parity import ParityPacket
from pgm.wire.train import Train
from tests.reference import DATA_PORT, TSI
from tests.unit.fec.groups import packet, packets, run_of_rows


def rebuilt(parts, parity, group, size, actual):
    return groups.decode(parts, parity, group, size, actual, groups.OriginalHeader(TSI, DATA_PORT, 3))


def octets_of(run):
    return run.rows[0].tobytes()


@st.composite
def drawn_groups(draw):
    """Draw group size, payloads, fragments, lost packets, and as many parity indexes as losses."""
    size = draw(st.sampled_from([2, 4, 8, 16]))
    actual = draw(st.one_of(st.just(size), st.integers(1, size)))
    sizes = draw(st.sampled_from([(5,), (0, 1, 3, 9), (0,), (1400, 1399)]))
    payloads = [
        draw(st.binary(min_size=one, max_size=one))
        for one in draw(st.lists(st.sampled_from(sizes), min_size=actual, max_size=actual))
    ]
    some = st.one_of(st.none(), st.builds(Fragment, *[st.integers(0, 0xFFFFFFFF)] * 3))
    fragments = draw(st.lists(some if draw(st.booleans()) else st.none(), min_size=actual, max_size=actual))
    lost = draw(st.lists(st.integers(0, actual - 1), min_size=1, max_size=actual, unique=True))
    indexes = draw(st.lists(st.integers(0, 2 * size), min_size=len(lost), max_size=len(lost), unique=True))
    return size, payloads, fragments, sorted(lost), indexes


@pytest.mark.rfc("FEC-09", "FEC-10", "FEC-11", "FEC-12")
@given(drawn_groups())
def test_groups_any_loss_within_parity_is_rebuilt(drawn):
    size, payloads, fragments, lost, indexes = drawn
    group = 64 * size
    originals = packets(group, payloads, fragments)
    parity = groups.encode(originals, group, size, indexes, len(payloads))
    longest = max(map(len, payloads))
    for one in parity:
        assert one.is_variable == (len({len(payload) for payload in payloads}) > 1)
        assert len(one.payload) == longest + 2 * one.is_variable
        assert (one.fragment is not None) == any(fragments)
        assert one.actual == (len(payloads) if len(payloads) < size else None)
    held = [run for at, run in enumerate(originals) if at not in lost]
    found = rebuilt(held, parity, group, size, len(payloads))
    assert [run.first - group for run in found] == lost
    for run in found:
        original = originals[run.first - group]
        assert run.payloads.tobytes() == original.payloads.tobytes()
        assert run.options() == original.options()
        assert checksum.is_valid(octets_of(run))
        items, rejects = Train.of(octets_of(run)).parse_untrusted()
        assert not rejects
        assert (items[0].tsi, items[0].data_port, items[0].wire_trail) == (TSI, DATA_PORT, 3)


def test_packets_may_come_as_one_run():
    rows = np.random.default_rng(1).integers(0, 256, (8, 100), np.uint8)
    whole = run_of_rows(16, rows)
    parity = groups.encode([whole.part(16, 19), whole.part(19, 24)], 16, 8, [0, 1, 2], 8)
    assert parity == groups.encode(packets(16, [row.tobytes() for row in rows]), 16, 8, [0, 1, 2], 8)
    found = rebuilt([whole.part(17, 20), whole.part(21, 23)], parity, 16, 8, 8)
    assert [(run.first, run.payloads[0].tobytes()) for run in found] == [
        (at, rows[at - 16].tobytes()) for at in (16, 20, 23)
    ]


@pytest.mark.rfc("FEC-10")
def test_groups_impossible_length_gives_nothing():
    originals = packets(0, [b"a", b"bb", b"ccc", b"d"])
    (one,) = groups.encode(originals, 0, 4, [0], 4)
    for at in range(len(one.payload)):
        broken = bytearray(one.payload)
        broken[at] ^= 0x41
        found = rebuilt(originals[1:], [attrs.evolve(one, payload=bytes(broken))], 0, 4, 4)
        # Damage to the packet's own octet is undetectable; damage to its length or padding is detected.
        assert found is None or (at == 0 and found[0].payloads.shape == (1, 1))


def test_parity_of_another_shape_gives_nothing():
    originals = packets(0, [b"aa", b"bb", b"cc", b"dd"])
    (one,) = groups.encode(originals, 0, 4, [0], 4)
    assert rebuilt(originals[1:], [attrs.evolve(one, payload=b"x")], 0, 4, 4) is None
    assert rebuilt([packet(1, b"longer than that")], [one] * 3, 0, 4, 4) is None
    assert groups.ParityShape.of(one) != groups.ParityShape.of(attrs.evolve(one, is_variable=True))
    assert isinstance(one, ParityPacket)
