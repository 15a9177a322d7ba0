"""Offsets of a streaming query as its checkpoint keeps them: the next sqn of each session, and which sessions have ended.

A session that has ended keeps its offset after its archive is gone. Its rows then come once, also if the archive returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from pgm.spark.sessions import ArchivedSession

ENDED = "ended"  # key in the JSON; keys of sessions have an @ or a /
MOST_GONE = 1000  # ended sessions that no service holds any longer


@attrs.frozen
class StreamOffsets:
    """Next sqn of each session by key. `ended` has the sessions of which nothing more is expected, the first to end first."""

    sqns: dict[str, int]
    ended: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> StreamOffsets:
        """Return the offsets of a checkpoint. Those of earlier versions do not tell of ends."""
        ended = value.get(ENDED, {})
        return cls({key: sqn for key, sqn in value.items() if key != ENDED} | ended, tuple(ended))

    def as_json(self) -> dict[str, Any]:
        """Return the value for a checkpoint. Its order is always the same, since Spark compares offsets as text."""
        ended = {key: self.sqns[key] for key in self.ended}
        following = {key: sqn for key, sqn in sorted(self.sqns.items()) if key not in ended}
        return following | ({ENDED: ended} if ended else {})

    def with_ends(self, sessions: Mapping[str, ArchivedSession]) -> StreamOffsets:
        """Return the offsets with the sessions that are read to their ends. One that has grown since has not ended."""
        grown = {key for key, one in sessions.items() if key in self.sqns and one.next_sqn > self.sqns[key]}
        closed = sorted(key for key, one in sessions.items() if one.closed and key in self.sqns and key not in grown)
        return StreamOffsets(self.sqns, tuple(key for key in self.ended if key not in grown)).ending(closed)

    def ending(self, keys: Iterable[str]) -> StreamOffsets:
        """Return the offsets with further sessions of which nothing more is expected."""
        return attrs.evolve(self, ended=tuple(dict.fromkeys((*self.ended, *keys))))

    def without_oldest(self, sessions: Mapping[str, ArchivedSession]) -> StreamOffsets:
        """Return the offsets of all sessions that are held, and of the newest `MOST_GONE` that are gone."""
        gone = [key for key in self.ended if key not in sessions]
        forgotten = set(gone[:-MOST_GONE])
        sqns = {key: sqn for key, sqn in self.sqns.items() if key not in forgotten}
        return StreamOffsets(sqns, tuple(key for key in self.ended if key not in forgotten))
