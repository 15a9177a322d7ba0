"""Adaptive timeouts of all members of a crowd: `pgm.core.recovery.response_timeout` in arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_KEPT, _DEVIATION_KEPT, _DEVIATIONS = 7 / 8, 3 / 4, 4

Floats = npt.NDArray[np.float64]
Members = npt.NDArray[np.intp]


class CrowdTimeouts:
    """One timeout for each member, ns. A closing source lowers the ceiling to the floor."""

    def __init__(self, count: int, floor_ns: int, ceiling_ns: int, least_ns: int) -> None:
        self.floor_ns, self.ceiling_ns, self._least_ns = floor_ns, ceiling_ns, least_ns
        self._mean: Floats = np.zeros(count)
        self._deviation: Floats = np.zeros(count)
        self._base: Floats = np.full(count, float(floor_ns))  # without doublings
        self._factor: Floats = np.ones(count)
        self._grown_until: Floats = np.zeros(count)

    def ivl(self, members: Members) -> npt.NDArray[np.int64]:
        """Return how long each of some members waits now."""
        waits: Floats = np.minimum(max(self.ceiling_ns, self._least_ns), self._factor[members] * self._base[members])
        whole: npt.NDArray[np.int64] = waits.astype(np.int64)
        return whole

    def answered(self, members: Members, took_ns: Floats, is_repeated: npt.NDArray[np.bool_]) -> Members:
        """Note one answer for each of some members, all different. Return those whose first answer this is."""
        took = np.where(is_repeated, np.minimum(took_ns, self._base[members]), took_ns)
        mean, deviation = self._mean[members], self._deviation[members]
        is_first = mean == 0
        error = took - mean
        mean = np.where(is_first, took, mean + error * (1 - _KEPT))
        updated = deviation * _DEVIATION_KEPT + np.abs(error) * (1 - _DEVIATION_KEPT)
        deviation = np.where(is_first, took / 2, updated)
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
            share = self.floor_ns / self._base[high]
            self._mean[high] = self._mean[high] * share
            self._deviation[high] = self._deviation[high] * share
            self._base[high] = np.maximum(self._least_ns, self._mean[high] + _DEVIATIONS * self._deviation[high])
