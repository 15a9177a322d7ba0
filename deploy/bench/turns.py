"""Interleaved rate searches.

Contenders alternate trial by trial, so that a slow period of the machine affects all of them. The speed of a shared
machine changes within minutes. Consecutive searches would compare contenders under different conditions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import attrs
import trio

from pgm.net.driver.nurseries import open_plain_nursery

T = TypeVar("T")


@attrs.define
class _SharedTurns:
    """State shared by interleaved searches."""

    searching: int
    turn: trio.Lock = attrs.field(factory=trio.Lock)  # fair: searches get the lock in the order of their requests
    _all_done: trio.Event = attrs.field(factory=trio.Event)

    def leave(self) -> None:
        """Mark one search as complete."""
        self.searching -= 1
        if not self.searching:
            self._all_done.set()

    async def all_complete(self) -> None:
        """Wait until all searches are complete."""
        await self._all_done.wait()


@attrs.define
class Searcher:
    """One of the interleaved searches."""

    _turns: _SharedTurns
    _is_searching: bool = True

    def trial(self) -> AbstractAsyncContextManager[None]:
        """Return the lock that one trial holds."""
        return self._turns.turn

    async def on_rate_found(self) -> None:
        """Wait for the other searches before a rate is confirmed. All rates are then confirmed in the same period."""
        self.leave()
        await self._turns.all_complete()

    def leave(self) -> None:
        """Stop making the other searches wait. A second call does nothing."""
        if self._is_searching:
            self._is_searching = False
            self._turns.leave()


async def run_interleaved(searches: Sequence[Callable[[Searcher], Awaitable[T]]]) -> list[T]:
    """Run searches interleaved, one trial at a time, and return their results in order. One error cancels all."""
    turns = _SharedTurns(len(searches))
    results: dict[int, T] = {}

    async def run_search(number: int) -> None:
        searcher = Searcher(turns)
        try:
            results[number] = await searches[number](searcher)
        finally:
            searcher.leave()

    async with open_plain_nursery() as nursery:
        for number in range(len(searches)):
            nursery.start_soon(run_search, number)
    return [results[number] for number in range(len(searches))]
