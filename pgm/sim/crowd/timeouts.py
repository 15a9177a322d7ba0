"""Adaptive timeouts of all members of a crowd: `pgm.core.recovery.response_timeout` in arrays, with its roundings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_KEPT, _DEVIATION_KEPT, _DEVIATIONS = 7 / 8, 3 / 4, 4

Times = npt.NDArray[np.int64]
Members = npt.NDArray[np.intp]


class CrowdTimeouts:
    """One timeout for each member, ns. A closing source lowers the ceiling to the floor."""

    def __init__(self, count: int, floor_ns: int, ceiling_ns: int, least_ns: int) -> None:
        self.floor_ns, self.ceiling_ns, self._least_ns = floor_ns, ceiling_ns, least_ns
        self._mean: Times = np.zeros(count, np.int64)
        self._deviation: Times = np.zeros(count, np.int64)
        self._base: Times = np.full(count, floor_ns, np.int64)  # without doublings
        self._factor: Times = np.ones(count, np.int64)
        self._grown_until: Times = np.zeros(count, np.int64)

    def ivl(self, members: Members) -> Times:
        """Return how long each of some members waits now."""
        waits: Times = np.minimum(max(self.ceiling_ns, self._least_ns), self._factor[members] * self._base[members])
        return waits

    def answered(self, members: Members, took_ns: Times, is_repeated: npt.NDArray[np.bool_], times: int = 1) -> Members:
        """Note `times` answers for each of some members, all different. Return those whose first answers these are."""
        took = np.where(is_repeated, np.minimum(took_ns, self._base[members]), took_ns)
        mean, deviation = self._mean[members], self._deviation[members]
        is_first = mean == 0
        mean, deviation = np.where(is_first, took, mean), np.where(is_first, took // 2, deviation)
        error = took - mean  # 0 for first answers
        if times == 1:  # the usual case; powers of arrays take longer than all the rest
            moved = np.rint(deviation * _DEVIATION_KEPT + np.abs(error) * (1 - _DEVIATION_KEPT)).astype(np.int64)
            deviation = np.where(is_first, deviation, moved)
            mean += np.rint(error * (1 - _KEPT)).astype(np.int64)
        else:
            left = times - is_first
            kept, deviation_kept = _KEPT**left, _DEVIATION_KEPT**left
            spread = (1 - _DEVIATION_KEPT) / (_KEPT - _DEVIATION_KEPT) * (kept - deviation_kept)
            deviation = np.rint(deviation * deviation_kept + np.abs(error) * spread).astype(np.int64)
            mean += np.rint(error * (1 - kept)).astype(np.int64)
        self._mean[members], self._deviation[members] = mean, deviation
        self._base[members] = np.maximum(self._least_ns, mean + _DEVIATIONS * deviation)
        self._factor[members[~is_repeated]] = 1
        first: Members = members[is_first]
        return first

    def timed_out(self, members: Members, now_ns: int) -> None:
        """Note a timeout of each of some members, all different."""
        grows = members[self._grown_until[members] <= now_ns]
        if len(grows):
            self._factor[grows[self.ivl(grows) < self.ceiling_ns]] *= 2
            self._grown_until[grows] = now_ns + self.ivl(grows)

    def relax(self, members: Members) -> None:
        """Return to the floor at most, for members that miss nothing; a member may be named twice."""
        self._factor[members] = 1
        high = members[self._base[members] > self.floor_ns]
        if len(high):
            base = self._base[high]
            self._mean[high] = self._mean[high] * self.floor_ns // base
            self._deviation[high] = self._deviation[high] * self.floor_ns // base
            self._base[high] = np.maximum(self._least_ns, self._mean[high] + _DEVIATIONS * self._deviation[high])
