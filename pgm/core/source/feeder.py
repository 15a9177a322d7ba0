"""What gives a source its packets later than the application gave the messages: it waits for more to share a packet."""

from __future__ import annotations

from typing import Protocol


class MessageBatcher(Protocol):
    """Something with messages that wait, and a time at which they should go."""

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do; NEVER while nothing waits."""

    def handle_deadline(self, now_ns: int) -> None:
        """Submit what has waited long enough."""
