"""Subscriptions by prefixes of a message's first part, as in a SUB socket of ZeroMQ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pgm.errors import UsageError
from pgm.messages.zmtp import Parts

EVERYTHING = b""
_FEW = 8  # maximum prefixes for a linear search; more are looked up by length


class Subscriptions:
    """Bag of prefixes. An empty bag accepts no message. The empty prefix accepts every message."""

    def __init__(self, prefixes: Iterable[bytes] = (EVERYTHING,)) -> None:
        self._counts: Counter[bytes] = Counter()
        for prefix in prefixes:
            self._counts[_checked(prefix)] += 1
        self._prepare()

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        """Return the distinct prefixes."""
        return tuple(self._counts)

    def add(self, prefix: bytes) -> None:
        """Add a prefix. A prefix that was added twice must be removed twice, as in ZeroMQ."""
        self._counts[_checked(prefix)] += 1
        self._prepare()

    def remove(self, prefix: bytes) -> None:
        """Remove a prefix. Raises `UsageError` for a prefix that is not subscribed."""
        if not self._counts[_checked(prefix)]:
            del self._counts[prefix]
            known = ", ".join(map(repr, self._counts)) or "none"
            raise UsageError(f"{prefix!r} is not subscribed", remedy=f"unsubscribe one of these: {known}")
        self._counts[prefix] -= 1
        if not self._counts[prefix]:
            del self._counts[prefix]
        self._prepare()

    def _prepare(self) -> None:
        self._takes_all = EVERYTHING in self._counts
        self._few = tuple(self._counts) if len(self._counts) <= _FEW else ()
        self._lengths = sorted({len(prefix) for prefix in self._counts})

    def wants(self, parts: Parts) -> bool:
        """Return whether the subscriptions accept a message."""
        if self._takes_all:
            return True
        topic = parts[0]
        if self._few:
            return topic.startswith(self._few)
        return any(topic[:length] in self._counts for length in self._lengths)

    def select(self, messages: Sequence[Parts]) -> list[int] | None:
        """Return the indexes of the accepted messages, or None for all."""
        if self._takes_all:
            return None
        return [place for place, parts in enumerate(messages) if self.wants(parts)]


def _checked(prefix: bytes) -> bytes:
    if not isinstance(prefix, bytes):
        raise UsageError(f"{prefix!r} is no prefix", remedy='prefixes are octets: b"EUR"')
    return prefix
