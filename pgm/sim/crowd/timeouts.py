"""Adaptive timeouts of all members of a crowd: those of the production cores, made for members that need one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pgm.core.recovery.response_timeout import ResponseTimeout

Times = npt.NDArray[np.int64]
Members = npt.NDArray[np.intp]


class CrowdTimeouts:
    """One timeout for each member, ns. The values are those of `ResponseTimeout`."""

    def __init__(self, count: int, floor_ns: int, ceiling_ns: int, least_ns: int) -> None:
        self.floor_ns, self._least_ns = floor_ns, least_ns
        self._ceiling_ns: Times = np.full(count, ceiling_ns, np.int64)
        self._by_member: dict[int, ResponseTimeout] = {}
        self._ivl: Times = np.full(count, floor_ns, np.int64)  # of each member now

    def ivl(self, members: Members) -> Times:
        """Return how long each of some members waits now."""
        return self._ivl[members]

    def _of(self, member: int) -> ResponseTimeout:
        timeout = self._by_member.get(member)
        if timeout is None:
            timeout = self._by_member[member] = ResponseTimeout(
                self.floor_ns, int(self._ceiling_ns[member]), self._least_ns
            )
        return timeout

    def close(self, members: Members) -> None:
        """Lower the upper bound of some members to `floor_ns`, because their source closes."""
        self._ceiling_ns[members] = self.floor_ns
        for member in members.tolist():
            timeout = self._by_member.get(member)
            if timeout is not None:
                timeout.change(self.floor_ns, self.floor_ns, self._least_ns)
                self._ivl[member] = timeout.ivl_ns

    def retries(self, members: Members) -> Times:
        """Return how many retries the present wait of each of some members counts for."""
        return np.array([self._of(member).retries for member in members.tolist()], np.int64)

    def retries_worth(self, members: Members) -> npt.NDArray[np.float64]:
        """Return `retries` of each of some members, as a fraction for a wait shorter than `floor_ns`."""
        return np.array([self._of(member).retries_worth for member in members.tolist()], np.float64)

    def answered(self, members: Members, took_ns: Times, is_repeated: npt.NDArray[np.bool_], times: int = 1) -> Members:
        """Note `times` answers for each of some members, all different. Return those whose first answers these are."""
        first = []
        for member, took, repeated in zip(members.tolist(), took_ns.tolist(), is_repeated.tolist(), strict=True):
            timeout = self._of(member)
            if not timeout.is_measured:
                first.append(member)
            timeout.answered(took, is_repeated=repeated, times=times)
            self._ivl[member] = timeout.ivl_ns
        return np.array(first, np.intp)

    def timed_out(self, members: Members, now_ns: int) -> None:
        """Note a timeout of each of some members, all different."""
        for member in members.tolist():
            timeout = self._of(member)
            timeout.timed_out(now_ns)
            self._ivl[member] = timeout.ivl_ns

    def relax(self, members: Members) -> None:
        """Return to `floor_ns` at most, for members that miss nothing. A member may be named twice."""
        for member in set(members.tolist()):
            timeout = self._by_member.get(member)
            if timeout is not None:
                timeout.relax()
                self._ivl[member] = timeout.ivl_ns
