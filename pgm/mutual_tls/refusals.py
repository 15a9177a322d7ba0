"""Refused connections: numbers by reason, and an event for each new combination of reason and peer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from pgm.errors import PeerRefused

REASONS: Mapping[str, str] = {
    "handshake": "no certificate, or one that no key of the topology file has signed",
    "unnamed": "a certificate whose first name is not that of keys",
    "unknown": "keys that are no longer in the topology file",
    "revoked": "revoked keys",
    "early": "keys that are not yet valid",
    "expired": "expired keys",
    "not-permitted": "a node that is not among the permitted ones",
}
MOST_TOLD = 64  # events; numbers go on

Tell = Callable[[str, str], None]  # code of an event, text


def tell_nobody(code: str, text: str) -> None:
    """Drop an event."""


class Refusals:
    """Numbers of refused connections and calls by reason. Any thread may add."""

    def __init__(self, tell: Tell = tell_nobody) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._told: set[str] = set()

    def add(self, error: PeerRefused) -> None:
        """Count a refusal. The event `refused-peer` tells each text once, and `MOST_TOLD` texts at most."""
        with self._lock:
            self._counts[error.reason] += 1
            is_new = error.message not in self._told and len(self._told) < MOST_TOLD
            if is_new:
                self._told.add(error.message)
        if is_new:
            self._tell("refused-peer", f"{error.message}; {error.remedy}" if error.remedy else error.message)

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of refusals for each of `REASONS`."""
        with self._lock:
            return {reason: self._counts[reason] for reason in REASONS}
