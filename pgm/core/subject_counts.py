"""Counts of messages by subject."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

NO_SUBJECT, OTHERS = "none", "others"  # no subject has these names, because subjects begin with a slash

_AT_ONCE = 65_536  # messages whose indexes wait to be counted: one pass over many costs the least
_FEW_PLACES = 15  # of a table: a pass of comparisons for each is cheaper than one `bincount`


class SubjectCounts:
    """Messages of one stream by subject: of the first `most` subjects one by one, of all others together.

    A table of subjects and its indexes are counted later, so that a batch costs next to nothing.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, int] = {}
        self._others = 0
        self._table: tuple[str, ...] = ()
        self._indexed = np.zeros(1, np.int64)  # messages of each index of the table, not yet in `_counts`
        self._waiting: list[npt.NDArray[np.unsignedinteger]] = []  # indexes not yet in `_indexed`
        self._waiting_messages = 0

    def add(self, table: tuple[str, ...], indexes: npt.NDArray[np.unsignedinteger] | int, messages: int) -> None:
        """Count messages with indexes into a table, from 1 on and 0 for none; one index may be that of all."""
        if not self._most:
            return
        if table is not self._table and table != self._table:
            self._look_up()
            self._table, self._indexed = table, np.zeros(len(table) + 1, np.int64)
        if isinstance(indexes, int):
            self._indexed[indexes] += messages
            return
        self._waiting.append(indexes)
        self._waiting_messages += messages
        if self._waiting_messages >= _AT_ONCE:
            self._count_waiting()

    def _count_waiting(self) -> None:
        indexes, places = np.concatenate(self._waiting), len(self._indexed)
        self._waiting, self._waiting_messages = [], 0
        if places <= _FEW_PLACES and len(indexes) >= _AT_ONCE:
            self._indexed += [np.count_nonzero(indexes == place) for place in range(places)]
        else:
            self._indexed += np.bincount(indexes, minlength=places)[:places]

    def _look_up(self) -> None:
        if self._waiting:
            self._count_waiting()
        for name, messages in zip((NO_SUBJECT, *self._table), self._indexed.tolist(), strict=True):
            if messages:
                self._note(name, messages)
        self._indexed[:] = 0

    def _note(self, name: str, messages: int) -> None:
        counts = self._counts
        if name in counts or len(counts) < self._most:
            counts[name] = counts.get(name, 0) + messages
        else:
            self._others += messages

    def snapshot(self) -> dict[str, int]:
        """Return the messages by subject, the most first, then those of other subjects."""
        self._look_up()
        counts = dict(sorted(self._counts.items(), key=lambda item: (-item[1], item[0])))
        return {**counts, OTHERS: self._others} if self._others else counts
