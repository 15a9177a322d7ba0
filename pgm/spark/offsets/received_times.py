"""Receive times of sessions, asked of the range services: of batches by their index, of packets by their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.requests import ACTION_BLOCKS, RangeRequest
from pgm.spark.errors import RecorderDown, RecorderRefused
from pgm.spark.filters import FilterBounds
from pgm.spark.offsets.time_order import PacketTimes, ReadLimits, TimeCut, TimedBlock, cut_by_time
from pgm.spark.options import SourceOptions
from pgm.spark.ranges import RangeReader, SessionSpan, pieces_of
from pgm.spark.recorders import BAD_REQUEST, RetrySchedule, ask, explained
from pgm.spark.sessions import SessionReplica

_COLUMNS = ("sqn", "count", "received")
_MOST_SQNS = 1 << 20  # of a table whose times are read at once
_BLOCK_PACKETS = 4096

Spans = Mapping[str, SessionSpan]
_Problems = dict[str, RecorderDown | RecorderRefused]  # by location


@attrs.define(eq=False)
class _BlockList:
    """Blocks that the services have told. All rows received before `until_us` are in them."""

    blocks: list[TimedBlock] = attrs.field(factory=list)
    until_us: int | None = None
    free: dict[str, int] = attrs.field(factory=dict)  # ends of ranges without any row that is held

    def bound(self, time_us: int | None) -> None:
        if time_us is not None:
            self.until_us = time_us if self.until_us is None else min(self.until_us, time_us)


class ReceivedTimes:
    """Receive times of ranges at their range services."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = attrs.evolve(
            options, columns=_COLUMNS, subjects=None, bounds=FilterBounds(), least_partitions=1
        )

    def cut(self, spans: Spans, limits: ReadLimits, until_us: int | None) -> TimeCut:
        """Return the ends of the next rows of several sessions in the order of time.

        Raises `DataLoss`, `RecorderDown`, `RecorderRefused`.
        """
        listed = self._blocks(spans, limits)
        listed.bound(until_us)

        def packets_of(block: TimedBlock) -> PacketTimes:
            return self._packets_of(spans[block.key], block)

        found = cut_by_time(listed.blocks, limits, listed.until_us, packets_of)
        return attrs.evolve(found, ends=found.ends | listed.free)

    def _blocks(self, spans: Spans, limits: ReadLimits) -> _BlockList:
        """Ask one place of each session; other places stand in for one that is down or refuses."""
        retry = RetrySchedule(self._options.retry_s)
        silent: _Problems = {}
        while True:
            try:
                chosen = _chosen(spans, silent)
            except RecorderDown as error:
                if not retry.wait():
                    raise explained(self._options, next(iter(silent)), error) from None
                silent.clear()
                continue
            listed = _BlockList()
            for location, places in chosen.items():
                try:
                    if places[0][1].files:
                        self._read_table(places, limits, listed)
                    else:
                        self._ask(location, places, limits, listed)
                except (RecorderDown, RecorderRefused) as error:
                    silent[location] = error
                    break
            else:
                return listed

    def _ask(
        self,
        location: str,
        places: list[tuple[SessionSpan, SessionReplica]],
        limits: ReadLimits,
        listed: _BlockList,
    ) -> None:
        """Ask for the blocks of ranges. A request that the service refuses as too large is halved."""
        asked: dict[str, Any] = {
            "sessions": [_range_of(span, place) for span, place in places],
            **{name: limit for name, limit in attrs.asdict(limits).items() if limit is not None},
        }
        try:
            answer = ask(self._options, location, ACTION_BLOCKS, asked)
        except RecorderRefused as error:
            if error.service_code != BAD_REQUEST or len(places) == 1:
                raise
            half = len(places) // 2
            for part in (places[:half], places[half:]):
                self._ask(location, part, limits, listed)
            return
        latest: dict[int, int] = {}
        for number, first, end, rows, low_us, high_us in answer["blocks"]:
            listed.blocks.append(TimedBlock(places[number][0].session.key, first, end, rows, low_us, high_us))
            latest[number] = high_us
        listed.bound(answer["until_us"])
        for number, (span, place) in enumerate(places):
            if answer["until_us"] is None and number not in latest:
                listed.free[span.session.key] = span.end
            elif place.next_sqn < span.end:  # another place has the rest, whose times are not told here
                listed.bound(latest.get(number))

    def _read_table(
        self, places: list[tuple[SessionSpan, SessionReplica]], limits: ReadLimits, listed: _BlockList
    ) -> None:
        """Make blocks of the rows of a table, which has no index of times."""
        for span, place in places:
            wanted = min(one for one in (limits.sqns, limits.rows, _MOST_SQNS) if one is not None)
            end = min(span.end, place.next_sqn, span.first + wanted)
            packets = self._packets_of(
                span, TimedBlock(span.session.key, span.first, end, 0, 0, span.session.received_us)
            )
            blocks = list(_blocks_of(span.session.key, packets, end))
            listed.blocks += blocks
            if end < span.end:
                listed.bound(blocks[-1].high_us)

    def _packets_of(self, span: SessionSpan, block: TimedBlock) -> PacketTimes:
        """Read the times of the packets of a block. Sqns without a row at the end count as the last packet."""
        pieces = pieces_of([SessionSpan(span.session, block.first, block.end)], self._options)
        batches = [batch for piece in pieces for batch in RangeReader(piece, self._options).batches()]
        packets = [_packets(batch) for batch in batches if batch.num_rows]
        end = max((int(one.sqns[-1] + one.counts[-1]) for one in packets), default=block.first)
        if end < block.end:
            missing = ([end], [block.end - end], [0], [block.high_us])
            packets.append(PacketTimes(*(np.array(values, np.int64) for values in missing)))
        return PacketTimes(*(np.concatenate(columns) for columns in zip(*map(_columns_of, packets), strict=True)))


def _chosen(spans: Spans, silent: _Problems) -> dict[str, list[tuple[SessionSpan, SessionReplica]]]:
    """Return a place for each range, by location. Raises `RecorderDown`, `RecorderRefused`."""
    chosen: dict[str, list[tuple[SessionSpan, SessionReplica]]] = defaultdict(list)
    for span in spans.values():
        place = _place_of(span, silent)
        chosen[place.location].append((span, place))
    return chosen


def _place_of(span: SessionSpan, silent: _Problems) -> SessionReplica:
    """Return a place that holds the first sqn of a range, or the next one held. Raises `RecorderDown`, `RecorderRefused`."""
    places = [place for place in span.session.places if place.location not in silent]
    if not places:
        raise next(
            error for location, error in silent.items() if location in {one.location for one in span.session.places}
        )
    holders = [place for place in places if place.oldest <= span.first < place.next_sqn]
    return max(holders, key=lambda one: one.next_sqn) if holders else min(places, key=lambda one: one.oldest)


def _blocks_of(key: str, packets: PacketTimes, end: int) -> Iterator[TimedBlock]:
    """Yield blocks of packets. Times ascend: a time that falls counts as the latest one before it."""
    times = np.maximum.accumulate(packets.times_us)
    for at in range(0, len(times), _BLOCK_PACKETS):
        to = min(at + _BLOCK_PACKETS, len(times))
        behind = int(packets.sqns[to]) if to < len(times) else end
        rows = int(packets.rows[at:to].sum())
        yield TimedBlock(key, int(packets.sqns[at]), behind, rows, int(times[at]), int(times[to - 1]))


def _range_of(span: SessionSpan, place: SessionReplica) -> dict[str, Any]:
    session = span.session
    asked = RangeRequest(session.tsi, session.epoch_us, span.first, span.end, node=place.node)
    return attrs.asdict(asked, filter=lambda field, value: value != field.default)


def _columns_of(packets: PacketTimes) -> Iterator[Any]:
    return iter((packets.sqns, packets.counts, packets.rows, packets.times_us))


def _packets(batch: pa.RecordBatch) -> PacketTimes:
    """Return the packets of rows. Messages that share a packet are one."""
    sqns, counts, times = (
        np.asarray(batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)) for name in _COLUMNS
    )
    starts = np.flatnonzero(np.diff(sqns, prepend=sqns[0] - 1))
    rows = np.diff(starts, append=len(sqns))
    return PacketTimes(sqns[starts], np.maximum(1, counts[starts]), rows, times[starts])
