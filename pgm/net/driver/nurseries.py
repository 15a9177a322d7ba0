"""Nurseries that are invisible to callers: a single exception leaves them itself, not in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import trio

N = TypeVar("N")


def open_plain_nursery() -> AbstractAsyncContextManager[trio.Nursery]:
    """Open a nursery. A task's exception can be caught by its type; several at once stay a group."""
    return without_lone_groups(trio.open_nursery())


@asynccontextmanager
async def without_lone_groups(manager: AbstractAsyncContextManager[N]) -> AsyncIterator[N]:
    """Enter a nursery or task group. A group of one exception leaves it as that exception."""
    only: BaseException
    try:
        async with manager as nursery:
            yield nursery
        return
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        only = group.exceptions[0]
    raise only  # outside of the handler, so that its cause and context stay unchanged
