"""Missing packets of a crowd: one row for each member and sqn, in arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Times = npt.NDArray[np.int64]

BACK_OFF, WAIT_NCF, WAIT_DATA = 0, 1, 2  # the states of `pgm.core.recovery.repair_table`
_MOST_TRY_DIFFERENCE = 2  # between ranges that a core joins


class MissingTable:
    """Rows in no order. A change of rows replaces the arrays."""

    def __init__(self) -> None:
        self.member: Rows = np.zeros(0, np.intp)
        self.sqn: Times = np.zeros(0, np.int64)
        self.state: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self.deadline: Times = np.zeros(0, np.int64)
        self.since: Times = np.zeros(0, np.int64)  # when the row entered its state
        # Adjacent sqns with one number are one range of the core: found, requested or promised together.
        self.joined: Times = np.zeros(0, np.int64)
        self._joins = 0  # numbers so far
        self.promised: Times = np.zeros(0, np.int64)  # when an NCF first promised the packet
        self.ncf_tries: Times = np.zeros(0, np.int64)  # retries so far in each state of waiting, as a core counts
        self.data_tries: Times = np.zeros(0, np.int64)
        self.data_waits: npt.NDArray[np.float64] = np.zeros(0)  # data retries in units of nak_rdata_ivl
        self.is_asked: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)  # a NAK of the member awaits its NCF

    def __len__(self) -> int:
        return len(self.member)

    def add(self, members: Rows, sqns: Times, deadlines: Times, now_ns: int) -> None:
        """Add rows in back-off."""
        count = len(members)
        self._joins += 1
        self.member = np.concatenate([self.member, members])
        self.sqn = np.concatenate([self.sqn, sqns])
        self.state = np.concatenate([self.state, np.zeros(count, np.int8)])
        self.deadline = np.concatenate([self.deadline, deadlines])
        self.since = np.concatenate([self.since, np.full(count, now_ns, np.int64)])
        self.joined = np.concatenate([self.joined, np.full(count, self._joins, np.int64)])
        self.promised = np.concatenate([self.promised, np.zeros(count, np.int64)])
        self.ncf_tries = np.concatenate([self.ncf_tries, np.zeros(count, np.int64)])
        self.data_tries = np.concatenate([self.data_tries, np.zeros(count, np.int64)])
        self.data_waits = np.concatenate([self.data_waits, np.zeros(count)])
        self.is_asked = np.concatenate([self.is_asked, np.zeros(count, np.bool_)])

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop all rows but `kept`."""
        self.member, self.sqn, self.state = self.member[kept], self.sqn[kept], self.state[kept]
        self.deadline, self.since, self.promised = self.deadline[kept], self.since[kept], self.promised[kept]
        self.ncf_tries, self.data_tries = self.ncf_tries[kept], self.data_tries[kept]
        self.data_waits, self.is_asked, self.joined = self.data_waits[kept], self.is_asked[kept], self.joined[kept]

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
