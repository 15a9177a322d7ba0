"""A receiver that foresees what comes next takes it as it takes anything else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pgm.units import SECOND
from pgm.wire.packets import encode
from pgm.wire.serial import wrap
from tests.reference import TSI, data_packet
from tests.unit.core.makers import MS, SOURCE, spm_packet
from tests.unit.core.reader import joined
from tests.unit.core.test_short_ways import agree, said


@given(
    first=st.sampled_from([1000, (1 << 32) - 5]),
    sizes=st.lists(st.sampled_from([7, 7, 7, 0, 70]), min_size=3, max_size=30),
    happening=st.lists(st.sampled_from([""] * 6 + ["again", "spm", "skips", "other"]), min_size=30, max_size=30),
    inbox=st.sampled_from([200, 1 << 20]),
)
def test_what_is_foreseen_is_taken_as_anything_else(first, sizes, happening, inbox):
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


def test_who_spins_reads_no_header_of_what_it_foresees(monkeypatch):
    """Otherwise the tests above would compare one way with itself."""
    core = joined(1000, trail=900).core
    for sqn in range(1010, 1020):
        if sqn == 1012:
            monkeypatch.setattr("pgm.core.receiver.read_plain_untrusted", None)
        assert core.receive_alone(data_packet(sqn, bytes(7), trail=950), SOURCE, 1001 * SECOND) == (TSI, sqn)
        core.note_passed()
    assert core.counters.delivered_packets - 10 == 10 - core.counters.lost_sqns
    assert core.status(1001 * SECOND)[0].next_sqn == 1020
