"""A receiver that foresees what comes next takes it as it takes anything else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgm.core.receiver.single_packet import PredictedPacket, predict
from pgm.units import SECOND
from pgm.wire.control_packets import encode
from pgm.wire.formats import DATA_HEADER_OCTETS
from pgm.wire.sequence_numbers import wrap
from pgm.wire.single_odata import header_as_int, is_plain_untrusted, read_plain_untrusted
from tests.memory import kept_by
from tests.reference import TSI, data_packet, sealed, without_checksum
from tests.unit.core.makers import MS, SOURCE, spm_packet
from tests.unit.core.reader import joined
from tests.unit.core.receiver.test_fast_paths import agree, said


@given(
    first=st.sampled_from([1000, (1 << 32) - 5]),
    sizes=st.lists(st.sampled_from([7, 7, 7, 0, 70]), min_size=3, max_size=30),
    happening=st.lists(st.sampled_from([""] * 6 + ["again", "spm", "skips", "other"]), min_size=30, max_size=30),
    inbox=st.sampled_from([200, 1 << 20]),
)
def test_predicted_packet_is_taken_like_any_other(first, sizes, happening, inbox):
    """In order, one by one, and now and then the same again, an SPM, one too many, or another session's."""
    cores = [joined(first, trail=first - 100, inbox_bytes=inbox).core for _ in range(2)]
    sqn, now, spm_sqn = first + 10, 1001 * SECOND, 2
    for size, what in zip(sizes, happening, strict=False):
        packets = [data_packet(wrap(sqn), bytes([size]) * size, trail=wrap(first - 50))]
        if what == "again":
            packets *= 2
        elif what == "spm":
            packets.insert(0, encode(spm_packet(spm_sqn, wrap(first - 100), wrap(sqn - 1))))
            spm_sqn += 1
        elif what == "skips":
            packets = [data_packet(wrap(sqn + 1), bytes(size), trail=wrap(first - 50)), *packets]
        elif what == "other":
            packets.append(data_packet(wrap(sqn), bytes(size), trail=wrap(first - 50), tsi=bytes(8)))
        for packet in packets:
            assert said(cores[0], packet, now, is_alone=True) == said(cores[1], packet, now, is_alone=False)
        sqn += 2 if what == "skips" else 1
        now += MS
    agree(cores, now)


@given(
    size=st.sampled_from([0, 1, 7, 100, 1400]),
    sqns=st.tuples(*[st.sampled_from([0, 5, 6, (1 << 32) - 1])] * 4),
    change=st.none() | st.tuples(st.integers(0, 30), st.integers(1, 255)),
    cut=st.sampled_from([0, 0, 0, 1, 20]),
    seal=st.sampled_from([sealed, sealed, bytes, without_checksum]),
)
def test_predicted_header_matches_what_is_read(size, sqns, change, cut, seal):
    """Damaged anywhere, with another number or trail, cut off, and with a checksum that fits that or none."""
    sqn, trail, its_sqn, its_trail = sqns
    octets = bytearray(data_packet(its_sqn, (bytes(range(256)) * 6)[:size], trail=its_trail))
    length = len(octets) - DATA_HEADER_OCTETS
    if change is not None and change[0] < len(octets):
        octets[change[0]] ^= change[1]
    packet = seal(bytes(octets[: len(octets) - cut]))
    front, gsi, *_ = read_plain_untrusted(data_packet(0, b"", trail=0))
    head = header_as_int(front, gsi, length, sqn, trail)
    is_so = read_plain_untrusted(packet) == (front, gsi, sqn, trail) and len(packet) == length + DATA_HEADER_OCTETS
    assert is_plain_untrusted(packet, head, length + DATA_HEADER_OCTETS) == is_so


def test_packet_without_checksum_with_fitting_sum_is_not_predicted():
    """It would be zero, which says that there is none."""
    packet = sealed(data_packet(5, bytes(2), trail=0))
    packet = without_checksum(packet)[:-2] + packet[6:8]
    front, gsi, *_ = read_plain_untrusted(data_packet(0, b"", trail=0))
    head = header_as_int(front, gsi, 2, 5, 0)
    assert not int.from_bytes(packet, "little") % 0xFFFF
    assert read_plain_untrusted(packet) is None
    assert not is_plain_untrusted(packet, head, len(packet))
    assert is_plain_untrusted(data_packet(5, b"ab", trail=0), head, len(packet))


def test_prediction_equals_general_result():
    """Also where the lowest octet of the sqn begins anew, and where the sqn does."""
    for first in (1000, (1 << 32) - 20):
        core = joined(first, trail=first - 100).core
        [session] = core.sessions
        for sqn in range(first + 10, first + 50):
            packet = data_packet(wrap(sqn), bytes(7), trail=wrap(first - 50))
            assert core.single.begin(packet, SOURCE, 1001 * SECOND) is not None
            core.single.commit()
            [predicted] = [one for one in kept_by(core.single) if isinstance(one, PredictedPacket)]
            assert predicted == predict(session, wrap(sqn + 1), wrap(first - 50), len(packet))


def test_busy_poll_receiver_with_prediction_reads_no_header(monkeypatch):
    """Otherwise the tests above would compare one way with itself."""
    core = joined(1000, trail=900).core
    for sqn in range(1010, 1020):
        if sqn == 1012:
            monkeypatch.setattr("pgm.core.receiver.single_packet.read_plain_untrusted", None)
        assert core.single.begin(data_packet(sqn, bytes(7), trail=950), SOURCE, 1001 * SECOND) == (TSI, sqn)
        core.single.commit()
    assert core.counters.delivered_packets - 10 == 10 - core.counters.lost_sqns
    assert core.status(1001 * SECOND)[0].next_sqn == 1020
