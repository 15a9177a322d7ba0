"""Waiting under trio for what the benchmark says."""

from __future__ import annotations

import trio

from deploy.bench.peers.control import STDIN, Control


async def next_word(control: Control) -> str:
    """The next word; empty when nobody can say any more."""
    while not (word := control.word()) and not control.is_over:
        await trio.lowlevel.wait_readable(STDIN)
    return word


async def until_word(control: Control, wanted: str) -> None:
    """Wait for one word, or the end."""
    while await next_word(control) != wanted and not control.is_over:
        pass


async def until_over(control: Control) -> None:
    """Wait for the end."""
    while not control.is_over:
        await next_word(control)
