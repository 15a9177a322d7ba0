"""Which messages an application wants, as a SUB socket of ZeroMQ says it: by prefixes of the first part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from pgm.errors import UsageError
from pgm.messages.zmtp import Parts

EVERYTHING = b""
_FEW = 8  # so many prefixes are tried one by one; more are looked up by length


class Subscriptions:
    """A bag of prefixes. Without any nothing is wanted; the empty one wants everything."""

    def __init__(self, prefixes: Iterable[bytes] = (EVERYTHING,)) -> None:
        self._counts: Counter[bytes] = Counter()
        for prefix in prefixes:
            self._counts[_checked(prefix)] += 1
        self._prepare()

    @property
    def prefixes(self) -> tuple[bytes, ...]:
        """What is subscribed, each once."""
        return tuple(self._counts)

    def add(self, prefix: bytes) -> None:
        """Subscribe. Twice the same must be unsubscribed twice, as with ZeroMQ."""
        self._counts[_checked(prefix)] += 1
        self._prepare()

    def remove(self, prefix: bytes) -> None:
        """Unsubscribe. Raises `UsageError` for what is not subscribed."""
        if not self._counts[_checked(prefix)]:
            del self._counts[prefix]
            known = ", ".join(repr(one) for one in self._counts) or "nothing is"
            raise UsageError(f"{prefix!r} is not subscribed", remedy=f"unsubscribe what is: {known}")
        self._counts[prefix] -= 1
        if not self._counts[prefix]:
            del self._counts[prefix]
        self._prepare()

    def _prepare(self) -> None:
        self._takes_all = EVERYTHING in self._counts
        self._few = tuple(self._counts) if len(self._counts) <= _FEW else ()
        self._lengths = sorted({len(prefix) for prefix in self._counts})

    def wants(self, parts: Parts) -> bool:
        """Whether a message is wanted."""
        if self._takes_all:
            return True
        topic = parts[0]
        if self._few:
            return topic.startswith(self._few)
        return any(topic[:length] in self._counts for length in self._lengths)

    def select(self, messages: Sequence[Parts]) -> list[int] | None:
        """The places of those that are wanted, or None for all."""
        if self._takes_all:
            return None
        return [place for place, parts in enumerate(messages) if self.wants(parts)]


def _checked(prefix: bytes) -> bytes:
    if not isinstance(prefix, bytes):
        raise UsageError(f"{prefix!r} is no prefix", remedy='prefixes are octets: b"EUR"')
    return prefix
