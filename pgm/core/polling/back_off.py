"""NAK_BO_IVL, as parents advertise it and as receivers learn it (RFC 15.2).

Two things may determine it, by `nak_bo_tuning`. **Duplicates**: the second NAK for a packet doubles the interval of its
segment, NAK_PROBE_NUM packets without one halve it; and should a census show that the children have become many more
while nobody asked for anything, it is doubled too, before they all ask. **Polls**: the interval is `nak_bo_ivl_min` for
each child counted, and receivers may use it only if they were there when that census began: whoever came later was not
counted, and waits for the next one.
"""

from __future__ import annotations

from pgm.core.polling.nak_counts import NakTally
from pgm.parameters import ROWS, Parameters
from pgm.units import MICROSECOND
from pgm.wire.options import NO_OPTIONS, NakBoIvl, NakBoRng, Options

_FACTOR = 2  # RFC 15.2.1 recommends it both ways
_GROWN = 2  # times as many children are many more


class AdvertisedBackOff:
    """What one parent advertises to the children on one segment in one session; nothing unless it is tuned."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._mode = parameters.nak_bo_tuning
        self._low, self._high = parameters.nak_bo_ivl_min, max(parameters.nak_bo_ivl_min, parameters.nak_bo_ivl_max)
        self.ivl_ns = self._clamped(parameters.nak_bo_ivl_default)
        self._sqn = 0  # POLL_SQN that it was derived from
        self._clean_states = 0  # repair states without a duplicate, one after the other
        self._population = 0  # at the last census
        self._has_been_asked = False  # since then

    def _clamped(self, ivl_ns: int) -> int:
        return max(self._low, min(self._high, ivl_ns))

    def note(self, tally: NakTally) -> None:
        """A NAK came."""
        self._has_been_asked = True
        if self._mode != "duplicates":
            return
        if tally.is_first_duplicate:
            self._set(self.ivl_ns * _FACTOR)
        elif tally.is_new and not tally.duplicates:
            self._clean_states += 1
            if self._clean_states >= self._parameters.nak_probe_num:
                self._set(self.ivl_ns // _FACTOR)

    def _set(self, ivl_ns: int) -> None:
        self.ivl_ns = self._clamped(ivl_ns)
        self._clean_states = 0

    def counted(self, population: int, sqn: int) -> None:
        """A census is complete."""
        if self._mode == "polls":
            self.ivl_ns, self._sqn = self._clamped(population * self._low), sqn
        elif self._mode == "duplicates" and not self._has_been_asked and 0 < self._population * _GROWN <= population:
            self._set(self.ivl_ns * _FACTOR)
        self._population, self._has_been_asked = population, False

    @property
    def options(self) -> Options:
        """OPT_NAK_BO_IVL for SPMs, NCFs and POLLs; none while there is nothing to say."""
        if self._mode == "off" or (self._mode == "polls" and not self._sqn):
            return NO_OPTIONS
        return (NakBoIvl(ivl_us=self.ivl_ns // MICROSECOND, ivl_sqn=self._sqn),)

    @property
    def range_options(self) -> Options:
        """OPT_NAK_BO_RNG, for the SPMs of a source."""
        if self._mode == "off":
            return NO_OPTIONS
        return (NakBoRng(max_us=self._high // MICROSECOND, min_us=self._low // MICROSECOND),)


class LearntBackOff:
    """What one child goes by in one session: its own parameter, until somebody above knows better (RFC 15.2.2)."""

    def __init__(self, parameters: Parameters) -> None:
        self._default_ns = parameters.nak_bo_ivl
        self._low, self._high = parameters.nak_bo_ivl_min, max(parameters.nak_bo_ivl_min, parameters.nak_bo_ivl_max)
        self._told_ns: int | None = None

    @property
    def ivl_ns(self) -> int:
        """Bound of the random back-off."""
        return self._default_ns if self._told_ns is None else max(self._low, min(self._high, self._told_ns))

    def on_range(self, told: NakBoRng) -> None:
        """Take the source's bounds, as far as a parameter could say the same; a range that is none is ignored."""
        if 0 < told.min_us <= told.max_us:
            self._high = min(told.max_us * MICROSECOND, int(ROWS["nak_bo_ivl_max"].high))
            self._low = min(told.min_us * MICROSECOND, self._high)

    def on_interval(self, told: NakBoIvl) -> None:
        """Take an interval that may be used."""
        self._told_ns = told.ivl_us * MICROSECOND
