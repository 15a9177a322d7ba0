"""Searches that take turns, so that what a machine does to one of them it does to all.

A machine shares its processors with others and is faster now than in two minutes. Contenders that are measured one behind
the other may each be measured on another machine, as it were, and a ratio of the two says nothing.
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
class _Turns:
    """Who searches, and whose turn it is."""

    searching: int
    turn: trio.Lock = attrs.field(factory=trio.Lock)  # first come, first served: so all come by turns
    _found: trio.Event = attrs.field(factory=trio.Event)

    def leave(self) -> None:
        """One searches no more."""
        self.searching -= 1
        if not self.searching:
            self._found.set()

    async def all_found(self) -> None:
        """Wait until nobody searches."""
        await self._found.wait()


@attrs.define
class Searcher:
    """One of those who take turns."""

    _turns: _Turns
    _is_searching: bool = True

    def trial(self) -> AbstractAsyncContextManager[None]:
        """The time of one trial."""
        return self._turns.turn

    async def found(self) -> None:
        """Called with a rate that is to be confirmed: waits for the others, so that all are confirmed side by side."""
        self.leave()
        await self._turns.all_found()

    def leave(self) -> None:
        """The others need not wait any more. Leaving twice is leaving once."""
        if self._is_searching:
            self._is_searching = False
            self._turns.leave()


async def by_turns(searches: Sequence[Callable[[Searcher], Awaitable[T]]]) -> list[T]:
    """What each of them returns, in their order. Trials run one at a time, by turns; an error of one ends all."""
    turns = _Turns(len(searches))
    found: dict[int, T] = {}

    async def one(number: int) -> None:
        searcher = Searcher(turns)
        try:
            found[number] = await searches[number](searcher)
        finally:
            searcher.leave()

    async with open_plain_nursery() as nursery:
        for number in range(len(searches)):
            nursery.start_soon(one, number)
    return [found[number] for number in range(len(searches))]
