"""Missing packets of a crowd: one row for each member and sqn, in arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.intp]
Times = npt.NDArray[np.int64]

BACK_OFF, WAIT_NCF, WAIT_DATA = 0, 1, 2  # the states of `pgm.core.recovery.repair_table`


class MissingTable:
    """Rows in no order. A change of rows replaces the arrays."""

    def __init__(self) -> None:
        self.member: Rows = np.zeros(0, np.intp)
        self.sqn: Times = np.zeros(0, np.int64)
        self.state: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self.deadline: Times = np.zeros(0, np.int64)
        self.since: Times = np.zeros(0, np.int64)  # when the row entered its state
        # Adjacent sqns with one instant are one range of the core: found, requested or promised together.
        self.joined: Times = np.zeros(0, np.int64)
        self.promised: Times = np.zeros(0, np.int64)  # when an NCF first promised the packet
        self.ncf_tries: npt.NDArray[np.int16] = np.zeros(0, np.int16)  # timeouts so far, in each state of waiting
        self.data_tries: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self.is_asked: npt.NDArray[np.bool_] = np.zeros(0, np.bool_)  # a NAK of the member awaits its NCF

    def __len__(self) -> int:
        return len(self.member)

    def add(self, members: Rows, sqns: Times, deadlines: Times, now_ns: int) -> None:
        """Add rows in back-off."""
        count = len(members)
        self.member = np.concatenate([self.member, members])
        self.sqn = np.concatenate([self.sqn, sqns])
        self.state = np.concatenate([self.state, np.zeros(count, np.int8)])
        self.deadline = np.concatenate([self.deadline, deadlines])
        self.since = np.concatenate([self.since, np.full(count, now_ns, np.int64)])
        self.joined = np.concatenate([self.joined, np.full(count, now_ns, np.int64)])
        self.promised = np.concatenate([self.promised, np.zeros(count, np.int64)])
        self.ncf_tries = np.concatenate([self.ncf_tries, np.zeros(count, np.int16)])
        self.data_tries = np.concatenate([self.data_tries, np.zeros(count, np.int16)])
        self.is_asked = np.concatenate([self.is_asked, np.zeros(count, np.bool_)])

    def keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop all rows but `kept`."""
        self.member, self.sqn, self.state = self.member[kept], self.sqn[kept], self.state[kept]
        self.deadline, self.since, self.promised = self.deadline[kept], self.since[kept], self.promised[kept]
        self.ncf_tries, self.data_tries = self.ncf_tries[kept], self.data_tries[kept]
        self.is_asked, self.joined = self.is_asked[kept], self.joined[kept]
