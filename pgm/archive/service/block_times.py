"""Receive times of batches, from the index alone: by them a reader of several sessions reads all in the order of time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from pgm.archive.errors import BadRequest, UnknownSession
from pgm.archive.requests import RangeRequest
from pgm.archive.service.collection import Archives

_MOST_SESSIONS = 10_000  # of a request
_KEYS = ("sessions", "sqns", "rows")


@attrs.frozen(order=True)
class ReceivedBlock:
    """Sqns `first` to `end - 1` of a session, in `rows` rows at most, received from `low_us` to `high_us`.

    `session` is the place of the session in the request. Times never fall within a session, also if the clock did.
    """

    low_us: int
    high_us: int
    session: int
    first: int
    end: int
    rows: int

    def as_json(self) -> tuple[int, ...]:
        """Return the fields in the order of an answer."""
        return self.session, self.first, self.end, self.rows, self.low_us, self.high_us


def block_times(archives: Archives, request: dict[str, Any], most: int) -> dict[str, Any]:
    """Return the batches of ranges in the order of their first receive times, `most` at the most.

    The list ends when the rows received before the next batch exceed `sqns` or `rows` of the request. `until_us` is then the
    time of that batch: all rows received earlier are in the list. Sessions that are no longer held have no batches.
    Raises `BadRequest`.
    """
    for name in request:
        if name not in _KEYS:
            raise BadRequest(f"block times have no key {name!r}", remedy=f"the keys are {', '.join(_KEYS)}")
    limits = [_limit(request, "sqns"), _limit(request, "rows")]
    ordered = heapq.merge(*(_blocks_of(archives, at, one) for at, one in enumerate(_ranges(request))))
    found: list[ReceivedBlock] = []
    open_blocks: list[tuple[int, int, int]] = []  # end of receiving, sqns and rows of blocks that reach beyond the next
    received = [0, 0]  # sqns and rows before the next block
    for block in ordered:
        while open_blocks and open_blocks[0][0] <= block.low_us:
            _, sqns, rows = heapq.heappop(open_blocks)
            received = [received[0] + sqns, received[1] + rows]
        if len(found) >= most or any(
            limit is not None and have > limit for limit, have in zip(limits, received, strict=True)
        ):
            return {"blocks": [one.as_json() for one in found], "until_us": block.low_us}
        found.append(block)
        heapq.heappush(open_blocks, (block.high_us, block.end - block.first, block.rows))
    return {"blocks": [one.as_json() for one in found], "until_us": None}


def _ranges(request: dict[str, Any]) -> Sequence[RangeRequest]:
    sessions = request.get("sessions")
    if not isinstance(sessions, list) or len(sessions) > _MOST_SESSIONS:
        raise BadRequest(
            f"sessions is missing, or no list of at most {_MOST_SESSIONS:,}", remedy="each is the object of a ticket"
        )
    return [RangeRequest.from_json(one) for one in sessions]


def _limit(request: dict[str, Any], name: str) -> int | None:
    limit = request.get(name)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise BadRequest(f"{name} = {limit!r:.100} is no whole number", remedy=f"leave {name} out, or name a limit")
    return limit


def _blocks_of(archives: Archives, at: int, asked: RangeRequest) -> Iterator[ReceivedBlock]:
    """Yield the batches of a range, as far as they are held."""
    try:
        held = archives.read(attrs.evolve(asked, first=None))
    except UnknownSession:
        return
    high = 0
    first = held.at if asked.first is None else max(asked.first, held.at)
    for entry in held.reader.entries(held.session, first):
        begin, end = max(entry.first, first), entry.end if asked.end is None else min(entry.end, asked.end)
        if end <= begin:
            return
        low, high = max(entry.received_us[0], high), max(entry.received_us[1], high)
        yield ReceivedBlock(low, high, at, begin, end, entry.rows)
