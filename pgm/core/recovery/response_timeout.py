"""How long an answer may take before it is asked for again.

The parameter is what holds until an answer was measured, and the floor unless there is a lower one. Then the interval
follows what answers really take, by the estimator of RFC 6298: an overloaded parent answers late, and asking it again at
a fixed interval would only add to its load, for ever; one that answers at once should not be waited for as if it had to
ask others first. As there, an interval that passed in vain is doubled until an answer comes to something asked once. What
was asked for again is measured from the first time on, up to what one waits for an answer now: repeats that came too early
show so, and lengthen the interval step by step; one that was needed, since the first answer was lost, is no sign of a
slow parent, and counted in full would make all that is lost next wait several times as long.
"""

from __future__ import annotations

import attrs

_KEPT = 7 / 8  # of the mean, at each answer (RFC 6298, 2.3)
_DEVIATION_KEPT = 3 / 4  # of the deviation
_DEVIATIONS = 4  # added to the mean


@attrs.define
class ResponseTimeout:
    """One interval, ns: `floor_ns`, and once answers were measured between `least_ns` and `ceiling_ns`."""

    floor_ns: int
    ceiling_ns: int
    least_ns: int = attrs.Factory(lambda self: self.floor_ns, takes_self=True)
    _mean_ns: int = 0
    _deviation_ns: int = 0
    _factor: int = 1
    _grown_until_ns: int = 0

    @property
    def ivl_ns(self) -> int:
        """How long to wait now."""
        return max(self.least_ns, min(self.ceiling_ns, self._factor * self._base_ns))

    @property
    def is_measured(self) -> bool:
        """Whether any answer has come."""
        return self._mean_ns > 0

    @property
    def _base_ns(self) -> int:
        """The same for what was not waited for in vain."""
        measured = self._mean_ns + _DEVIATIONS * self._deviation_ns
        return max(self.least_ns, measured) if self._mean_ns else self.floor_ns

    @property
    def retries(self) -> int:
        """How many waits at the floor one wait is worth now: retries are counted so, and giving up comes no later."""
        return max(1, self.ivl_ns // self.floor_ns)

    @property
    def retries_worth(self) -> float:
        """The same for a wait that may be shorter than the floor, and is worth a part of one then."""
        return min(1.0, self.ivl_ns / self.floor_ns) * self.retries

    def answered(self, took_ns: int, *, is_repeated: bool = False, times: int = 1) -> None:
        """Note how long the answer took, counted from the first time that it was asked for, or so many that took as long."""
        if is_repeated:
            took_ns = min(took_ns, self._base_ns)
        if self._mean_ns == 0:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
            times -= 1
        if times:  # the sums of what each by itself would add
            kept, deviation_kept = _KEPT**times, _DEVIATION_KEPT**times
            error_ns = took_ns - self._mean_ns
            spread = (1 - _DEVIATION_KEPT) / (_KEPT - _DEVIATION_KEPT) * (kept - deviation_kept)
            self._deviation_ns = round(self._deviation_ns * deviation_kept + abs(error_ns) * spread)
            self._mean_ns += round(error_ns * (1 - kept))
        if not is_repeated:
            self._factor = 1

    def timed_out(self, now_ns: int) -> None:
        """Note a wait without an answer; those that end together, or began before the last doubling, count once."""
        if now_ns < self._grown_until_ns:
            return
        if self.ivl_ns < self.ceiling_ns:
            self._factor *= 2
        self._grown_until_ns = now_ns + self.ivl_ns

    def start_anew(self) -> None:
        """Somebody else is asked from now on."""
        self._mean_ns = self._deviation_ns = self._grown_until_ns = 0
        self._factor = 1
