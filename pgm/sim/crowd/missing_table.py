"""Missing packets of a crowd: one row for each member and sqn, in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Times = npt.NDArray[np.int64]

BACK_OFF, WAIT_NCF, WAIT_DATA = 0, 1, 2  # the states of `pgm.core.recovery.repair_table`
_FIRST_ROOM = 64  # rows; a full table doubles its room
_MOST_TRY_DIFFERENCE = 2  # between ranges that a core joins


class MissingTable:
    """Rows in no order, in the first places of longer arrays. An addition or a removal changes the numbers of rows."""

    member: Rows
    sqn: Times
    state: npt.NDArray[np.int8]
    deadline: Times
    since: Times  # when the row entered its state
    # Adjacent sqns with one number are one range of the core: found, requested or promised together.
    joined: Times
    promised: Times  # when an NCF first promised the packet
    ncf_tries: Times  # retries so far in each state of waiting, as a core counts
    data_tries: Times
    data_waits: npt.NDArray[np.float64]  # data retries in units of nak_rdata_ivl
    is_asked: npt.NDArray[np.bool_]  # a NAK of the member awaits its NCF

    def __init__(self, members: int) -> None:
        kinds = (*[np.int64] * 8, np.int8, np.float64, np.bool_)
        self._columns: list[npt.NDArray[Any]] = [np.zeros(_FIRST_ROOM, kind) for kind in kinds]
        self._rows_of = np.zeros(members, np.int64)  # number of rows of each member
        self._joins = 0  # numbers so far
        self._show(0)

    def _show(self, count: int) -> None:
        shown = [column[:count] for column in self._columns]
        self.member, self.sqn, self.deadline, self.since, self.joined, self.promised, *others = shown
        self.ncf_tries, self.data_tries, self.state, self.data_waits, self.is_asked = others

    def __len__(self) -> int:
        return len(self.member)

    def add(self, members: Rows, sqns: Times, deadlines: Times, now_ns: int) -> None:
        """Add rows in back-off."""
        new = slice(len(self), len(self) + len(members))
        if new.stop > len(self._columns[0]):
            more = max(len(self._columns[0]), len(members))
            self._columns = [np.concatenate([column, np.zeros(more, column.dtype)]) for column in self._columns]
        self._show(new.stop)
        for column in self._columns:
            column[new] = 0
        self._joins += 1
        self.member[new], self.sqn[new], self.deadline[new] = members, sqns, deadlines
        self.since[new], self.joined[new] = now_ns, self._joins
        np.add.at(self._rows_of, members, 1)

    def remove(self, rows: Rows) -> Rows:
        """Remove rows. Return the members that miss nothing any more; a member may be named twice."""
        members, left = self.member[rows], len(self) - len(rows)
        stays = np.ones(len(rows), np.bool_)  # of the last rows, which move into the free places
        stays[rows[rows >= left] - left] = False
        moved, free = stays.nonzero()[0] + left, rows[rows < left]
        for column in self._columns:
            column[free] = column[moved]
        self._show(left)
        np.subtract.at(self._rows_of, members, 1)
        idle: Rows = members[self._rows_of[members] == 0]
        return idle

    def has_outstanding(self, member: int, more_than: int) -> bool:
        """Return whether a member has requested more sqns than a number, and may still get them."""
        if self._rows_of[member] <= more_than:
            return False
        return bool(((self.member == member) & (self.state != BACK_OFF)).sum() > more_than)

    def join(self, rows: Rows) -> None:
        """Join adjacent sqns of a member, all in one state with one deadline, as `Recovery` joins its ranges."""
        self._joins += 1
        self.joined[rows] = self._joins
        if len(rows) == 1:
            return
        order = rows[np.lexsort((self.sqn[rows], self.member[rows]))]
        left, right = order[:-1], order[1:]
        touches = (self.sqn[right] - self.sqn[left] == 1) & (self.member[right] == self.member[left])
        if touches.any():
            for part in np.split(order, (~touches).nonzero()[0] + 1):
                self._join_part(part.tolist())

    def _join_part(self, rows: list[int]) -> None:
        """Join adjacent rows in order: the first tells the promise, and the one with the fewest tries tells these."""
        self._joins += 1
        begin = 0
        for at, row in enumerate(rows):
            if at and self._is_like(rows[begin], row):
                for tries in (self.ncf_tries, self.data_tries, self.data_waits):
                    tries[rows[begin : at + 1]] = min(tries[rows[begin]], tries[row])
                self.since[row], self.promised[row] = self.since[rows[begin]], self.promised[rows[begin]]
            elif at:
                self._joins += 1
                begin = at
            self.joined[row] = self._joins

    def _is_like(self, row: int, other: int) -> bool:
        """Return whether a core joins two rows: both await an NCF or none, and their tries differ little."""
        return bool(
            self.is_asked[row] == self.is_asked[other]
            and abs(self.ncf_tries[row] - self.ncf_tries[other]) <= _MOST_TRY_DIFFERENCE
            and abs(self.data_tries[row] - self.data_tries[other]) <= _MOST_TRY_DIFFERENCE
        )
