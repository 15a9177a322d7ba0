"""Schedule of the key records of a source: all records at the start and after each change of the secret, then again."""

from __future__ import annotations

from collections.abc import Iterator

from pgm.core.session.key_records import PayloadSealer
from pgm.core.source.source import SourceCore
from pgm.units import NEVER


class RecordSchedule:
    """Key records on their way into their session, one at a time: a record takes some milliseconds to make."""

    def __init__(self, sealer: PayloadSealer, session: SourceCore, ivl: int) -> None:
        self._sealer = sealer
        self.session = session
        self._ivl = ivl
        self._next_ns = 0  # when the next round begins
        self._round: Iterator[bytes] | None = None

    def restart(self) -> None:
        """Begin a new round at once: the secret has changed."""
        self._next_ns, self._round = 0, None

    @property
    def is_busy(self) -> bool:
        """Whether a round is not over."""
        return self._round is not None or not self._next_ns

    @property
    def deadline_ns(self) -> int:
        """When `handle_deadline` has something to do."""
        if self.session.window.has_unsent:
            return NEVER
        return self._next_ns if self._round is None else 0

    def handle_deadline(self, now_ns: int) -> None:
        """Submit the next record that is due."""
        if self.deadline_ns > now_ns:
            return
        if self._round is None:
            self._round, self._next_ns = self._sealer.records(), now_ns + self._ivl
        record = next(self._round, None)
        if record is None:
            self._round = None
        else:
            self.session.submit((record,))
