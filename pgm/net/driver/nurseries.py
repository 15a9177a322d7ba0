"""Nurseries that are invisible to callers: a single exception leaves them itself, not in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_plain_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery. A task's exception can be caught by its type; several at once stay a group."""
    only: BaseException
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
        return
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        only = group.exceptions[0]
    raise only  # outside of the handler, so that its cause and context stay unchanged
