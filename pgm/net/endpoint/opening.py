"""Openings of sources and receivers: for `async with` alone, with an error that says so."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from pgm.errors import UsageError
from pgm.net.driver.event_loops import running_library

P = ParamSpec("P")
H = TypeVar("H")


class EndpointOpening(AbstractAsyncContextManager[H], Generic[H]):
    """Source or receiver that `async with` opens."""

    def __init__(self, manager: AbstractAsyncContextManager[H]) -> None:
        self._manager = manager

    async def __aenter__(self) -> H:
        running_library()
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._manager.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # type checkers refuse a plain `with` themselves

        def __enter__(self) -> Any:
            raise UsageError(
                "pgm.open_source and pgm.open_receiver open by `async with`, in an event loop of trio or asyncio",
                remedy="use pgm.blocking, which has the same names for a plain `with`",
            )

        def __exit__(self, *_: object) -> None:
            """Exist, since a `with` block looks this method up first."""


def opening(function: Callable[P, AsyncIterator[H]]) -> Callable[P, EndpointOpening[H]]:
    """Turn a generator function into one that returns an opening."""
    managed = asynccontextmanager(function)

    @functools.wraps(function)
    def open_managed(*args: P.args, **kwargs: P.kwargs) -> EndpointOpening[H]:
        return EndpointOpening(managed(*args, **kwargs))

    return open_managed
