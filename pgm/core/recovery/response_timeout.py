"""Adaptive timeout for an answer, before the request is repeated.

The parameter is the interval before the first measured answer, and the lower bound unless a lower bound is given. After
that the interval follows the measured response times, by the estimator of RFC 6298. A fixed interval would repeat
requests to an overloaded parent too early, and add to its load for ever. A parent that answers at once would be waited
for as long as a parent that must ask others first.

As in RFC 6298, a timeout doubles the interval until an unrepeated request is answered. Answers to repeated requests are
measured from the first request, and clipped to the interval without doublings. Repeats that came too early lengthen the
interval step by step. A repeat that was needed, because the first answer was lost, does not mean that the parent is
slow. In full its time would make the next losses wait several times as long.
"""

from __future__ import annotations

import attrs

_KEPT = 7 / 8  # share of the old mean after an answer (RFC 6298, 2.3)
_DEVIATION_KEPT = 3 / 4  # share of the old deviation
_DEVIATIONS = 4  # multiple of the deviation that is added to the mean


@attrs.define
class ResponseTimeout:
    """Adaptive timeout in ns: `floor_ns` before the first measured answer, then `least_ns` to `ceiling_ns`."""

    floor_ns: int
    ceiling_ns: int
    least_ns: int = attrs.Factory(lambda self: self.floor_ns, takes_self=True)
    _mean_ns: int = 0
    _deviation_ns: int = 0
    is_parent_dead: bool = False  # others are heard and the parent is not; set by `Parents`
    _factor: int = 1
    _grown_until_ns: int = 0

    def change(self, floor_ns: int, ceiling_ns: int, least_ns: int | None = None) -> None:
        """Take other bounds. What was measured stays."""
        self.floor_ns, self.ceiling_ns = floor_ns, ceiling_ns
        self.least_ns = floor_ns if least_ns is None else least_ns

    @property
    def ivl_ns(self) -> int:
        """Return how long to wait now."""
        return max(self.least_ns, min(self.ceiling_ns, self._factor * self._base_ns))

    @property
    def is_measured(self) -> bool:
        """Return whether any answer was measured."""
        return self._mean_ns > 0

    @property
    def _base_ns(self) -> int:
        """Return the interval without doublings by timeouts."""
        measured = self._mean_ns + _DEVIATIONS * self._deviation_ns
        return max(self.least_ns, measured) if self._mean_ns else self.floor_ns

    @property
    def retries(self) -> int:
        """Return the current wait as a number of `floor_ns`, so that longer waits do not delay giving up."""
        return max(1, self.ivl_ns // self.floor_ns)

    @property
    def retries_worth(self) -> float:
        """Return `retries` for a wait that may be shorter than `floor_ns`. A shorter wait counts as a fraction."""
        return min(1.0, self.ivl_ns / self.floor_ns) * self.retries

    def answered(self, took_ns: int, *, is_repeated: bool = False, times: int = 1) -> None:
        """Note `times` answers that took `took_ns` each, counted from the first request."""
        if is_repeated:
            took_ns = min(took_ns, self._base_ns)
        if self._mean_ns == 0:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
            times -= 1
        if times:  # closed form of `times` single updates
            kept, deviation_kept = _KEPT**times, _DEVIATION_KEPT**times
            error_ns = took_ns - self._mean_ns
            spread = (1 - _DEVIATION_KEPT) / (_KEPT - _DEVIATION_KEPT) * (kept - deviation_kept)
            self._deviation_ns = round(self._deviation_ns * deviation_kept + abs(error_ns) * spread)
            self._mean_ns += round(error_ns * (1 - kept))
        if not is_repeated:
            self._factor = 1

    def timed_out(self, now_ns: int) -> None:
        """Note a timeout. Timeouts that end together, or whose waits began before the last doubling, count once."""
        if now_ns < self._grown_until_ns or self.is_parent_dead:
            return
        if self.ivl_ns < self.ceiling_ns:
            self._factor *= 2
        self._grown_until_ns = now_ns + self.ivl_ns

    def relax(self) -> None:
        """Return to `floor_ns` at most: nothing is missing, so that no request of this node can overload the parent.

        An overload leaves long measured times behind. Without this, a repair that is lost after its end would be waited
        for as long as during the overload.
        """
        self._factor = 1
        base_ns = self._base_ns
        if base_ns > self.floor_ns:
            self._mean_ns = self._mean_ns * self.floor_ns // base_ns
            self._deviation_ns = self._deviation_ns * self.floor_ns // base_ns

    def start_anew(self) -> None:
        """Forget all measurements: another parent is asked from now on."""
        self._mean_ns = self._deviation_ns = self._grown_until_ns = 0
        self._factor, self.is_parent_dead = 1, False
