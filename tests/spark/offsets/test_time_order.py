"""Cuts by receive time: no row that is left was received before one that is taken, and every row comes once."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pgm.spark.offsets.time_order import PacketTimes, ReadLimits, TimedBlock, cut_by_time

_KEYS = ("a", "b", "c")
_Packet = tuple[int, int, int]  # sqns, rows, time


@attrs.frozen
class DrawnSession:
    """Packets of a session in blocks."""

    key: str
    blocks: tuple[tuple[_Packet, ...], ...]

    def times(self) -> list[int]:
        """Return the time of each sqn."""
        return [time for block in self.blocks for count, _, time in block for _ in range(count)]

    def packets(self, first: int, end: int) -> PacketTimes:
        """Return the packets of a range, the first and the last cut to it."""
        found, sqn = [], 0
        for block in self.blocks:
            for count, rows, time in block:
                low, high = max(sqn, first), min(sqn + count, end)
                if low < high:
                    found.append((low, high - low, rows, time))
                sqn += count
        return PacketTimes(*(np.array(column, np.int64) for column in zip(*found, strict=True)))

    def ahead(self, start: int, until_us: int) -> list[TimedBlock]:
        """Return the blocks from a sqn on that begin by a time."""
        found, sqn = [], 0
        for block in self.blocks:
            end = sqn + sum(count for count, _, _ in block)
            if end > start and block[0][2] <= until_us:
                rows = sum(rows for _, rows, _ in block)
                found.append(TimedBlock(self.key, max(sqn, start), end, rows, block[0][2], block[-1][2]))
            sqn = end
        return found


@st.composite
def sessions(draw: st.DrawFn, most_count: int = 4) -> list[DrawnSession]:
    """Draw sessions whose times overlap, touch or are hours apart."""
    found = []
    for key in _KEYS[: draw(st.integers(1, 3))]:
        time = draw(st.integers(0, 20))
        blocks = []
        for _ in range(draw(st.integers(1, 5))):
            packets = []
            for _ in range(draw(st.integers(1, 5))):
                time += draw(st.sampled_from((0, 0, 1, 3, 3600)))
                packets.append((draw(st.integers(1, most_count)), draw(st.integers(1, 3)), time))
            blocks.append(tuple(packets))
        found.append(DrawnSession(key, tuple(blocks)))
    return found


def _cut(all_of: Sequence[DrawnSession], at: dict[str, int], limits: ReadLimits, until: int | None) -> dict[str, int]:
    by_key = {one.key: one for one in all_of}
    blocks = [block for one in all_of for block in one.ahead(at[one.key], 1 << 60)]

    def packets_of(block: TimedBlock) -> PacketTimes:
        return by_key[block.key].packets(block.first, block.end)

    found = cut_by_time(blocks, limits, until, packets_of)
    begun = [block for block in blocks if block.first < found.ends.get(block.key, 0)]
    assert not begun or found.reached_us <= max(block.high_us for block in begun)
    return found.ends


@given(sessions(), st.integers(1, 30) | st.none(), st.integers(1, 30) | st.none())
def test_cuts_follow_the_receive_times_to_the_end(
    all_of: list[DrawnSession], sqns: int | None, rows: int | None
) -> None:
    times = {one.key: one.times() for one in all_of}
    at = dict.fromkeys(times, 0)
    latest = 0
    while any(at[key] < len(times[key]) for key in times):
        ends = _cut(all_of, at, ReadLimits(sqns, rows), None)
        taken = [time for key, end in ends.items() for time in times[key][at[key] : end]]
        assert taken, "no progress"
        assert all(end > at[key] for key, end in ends.items())
        assert sqns is None or len(taken) <= sqns
        assert min(taken) >= latest, "a row is late"
        latest = max(taken)
        at |= ends
        left = [times[key][at[key]] for key in times if at[key] < len(times[key])]
        assert min(left, default=latest) >= latest
        assert not left or sqns is None or rows is not None or len(taken) == sqns, "less than the limit"


@given(sessions(most_count=1), st.integers(1, 12))
def test_rows_keep_to_their_limit_or_are_one_packet(all_of: list[DrawnSession], rows: int) -> None:
    weights = {one.key: [rows for block in one.blocks for _, rows, _ in block] for one in all_of}
    at = dict.fromkeys(weights, 0)
    while any(at[key] < len(weights[key]) for key in weights):
        ends = _cut(all_of, at, ReadLimits(rows=rows), None)
        taken = [count for key, end in ends.items() for count in weights[key][at[key] : end]]
        assert sum(taken) <= rows or len(taken) == 1
        at |= ends


@given(sessions(), st.integers(0, 40), st.integers(1, 30))
def test_rows_after_a_time_are_left(all_of: list[DrawnSession], until: int, sqns: int) -> None:
    ends = _cut(all_of, dict.fromkeys(_KEYS, 0), ReadLimits(sqns), until)
    taken = [time for one in all_of for time in one.times()[: ends.get(one.key, 0)]]
    wanted = sorted(time for one in all_of for time in one.times() if time <= until)
    assert sorted(taken) == wanted[:sqns]


def test_an_overlap_of_two_sessions_alone_is_read() -> None:
    blocks = [TimedBlock("a", 100 * at, 100 * at + 100, 100, 10 * at, 10 * at + 9) for at in range(100)]

    def refuse(block: TimedBlock) -> PacketTimes:
        raise AssertionError(block)

    assert cut_by_time(blocks, ReadLimits(4250), None, refuse).ends == {"a": 4250}
    read = []

    def packets_of(block: TimedBlock) -> PacketTimes:
        read.append(block)
        sqns = np.arange(block.first, block.end)
        return PacketTimes(
            sqns, np.ones_like(sqns), np.ones_like(sqns), np.linspace(block.low_us, block.high_us, 100).astype(int)
        )

    both = [*blocks, *(attrs.evolve(one, key="b", low_us=one.low_us + 5, high_us=one.high_us + 5) for one in blocks)]
    ends = cut_by_time(both, ReadLimits(8000), None, packets_of).ends
    assert sum(ends.values()) == 8000
    assert abs(ends["a"] - ends["b"]) < 100
    assert len(read) <= 4
