"""Interface of a batcher, which submits messages to a source later and waits for more that can share a packet."""

from __future__ import annotations

from typing import Protocol

from pgm.units import NEVER


class MessageBatcher(Protocol):
    """Batcher with waiting messages, and a time to submit them."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do; NEVER while no message waits."""

    def handle_deadline(self, now_ns: int) -> None:
        """Submit messages that have waited long enough."""


class NoBatcher:
    """Batcher of a source whose messages never wait."""

    deadline_ns = NEVER

    def handle_deadline(self, now_ns: int) -> None:
        """Do nothing: no message waits."""
