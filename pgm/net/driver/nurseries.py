"""Nurseries that callers need not know of: one exception leaves them as itself, not as a group of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_plain_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery; what one task of it raises can be caught by its type. Several at once stay a group."""
    only: BaseException
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
        return
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        only = group.exceptions[0]
    raise only  # out here, so that its own cause and context stay what they were
