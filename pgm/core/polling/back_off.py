"""Back-off before a NAK: its draw, and NAK_BO_IVL as advertised by parents and learnt by receivers (RFC 15.2).

`nak_bo_tuning` selects the input of the interval:

- duplicates: The second NAK for a packet doubles the interval of its segment. NAK_PROBE_NUM packets without a duplicate
  halve the interval. A census with at least twice as many children also doubles the interval, if no NAK came since the
  last census. The interval then grows before the new children send NAKs.
- polls: The interval is `nak_bo_ivl_min` times the number of counted children. A receiver may use it only if that
  receiver was there when the census began. A receiver that came later was not counted, and waits for the next census.
"""

from __future__ import annotations

import math
import random

from pgm.core.polling.nak_counts import NakTally
from pgm.parameters import ROWS, Parameters
from pgm.units import MICROSECOND
from pgm.wire.options import NO_OPTIONS, NakBoIvl, NakBoRng, Options

_FACTOR = 2  # RFC 15.2.1 recommends it both ways
_GROWN = 2  # growth of the population, as a factor, that doubles the interval


def draw_back_off(parameters: Parameters, ivl_ns: int, rng: random.Random) -> int:
    """Return a random back-off from 1 to `ivl_ns`, in ns, by the distribution of `nak_bo`.

    The exponential one is that of RFC 5401: F(t) = (e^(L t/T) - 1) / (e^L - 1) with L = ln(nak_bo_group) + 1. Most nodes
    draw times near T, so that few NAKs leave before the first one silences the others.
    """
    if parameters.nak_bo == "uniform":
        return rng.randint(1, ivl_ns)
    rate = math.log(parameters.nak_bo_group) + 1
    return min(ivl_ns, 1 + int(ivl_ns * math.log1p(rng.random() * math.expm1(rate)) / rate))


class AdvertisedBackOff:
    """Interval that one parent advertises on one segment in one session; nothing with `nak_bo_tuning` off."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._mode = parameters.nak_bo_tuning
        self._low, self._high = parameters.nak_bo_ivl_min, max(parameters.nak_bo_ivl_min, parameters.nak_bo_ivl_max)
        self.ivl_ns = self._clamped(parameters.nak_bo_ivl_default)
        self._sqn = 0  # POLL_SQN of the census behind the interval; 0: no census
        self._clean_states = 0  # repair states in a row without a duplicate
        self._population = 0  # at the last census
        self._has_been_asked = False  # a NAK came since the last census

    def _clamped(self, ivl_ns: int) -> int:
        return max(self._low, min(self._high, ivl_ns))

    def note(self, tally: NakTally) -> None:
        """Take the tally of a NAK."""
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
        """Take the result of a complete census. `sqn` is the POLL_SQN of the census."""
        if self._mode == "polls":
            self.ivl_ns, self._sqn = self._clamped(population * self._low), sqn
        elif self._mode == "duplicates" and not self._has_been_asked and 0 < self._population * _GROWN <= population:
            self._set(self.ivl_ns * _FACTOR)
        self._population, self._has_been_asked = population, False

    @property
    def options(self) -> Options:
        """Return OPT_NAK_BO_IVL for SPMs, NCFs and POLLs. Return no option while no interval is advertised."""
        if self._mode == "off" or (self._mode == "polls" and not self._sqn):
            return NO_OPTIONS
        return (NakBoIvl(ivl_us=self.ivl_ns // MICROSECOND, ivl_sqn=self._sqn),)

    @property
    def range_options(self) -> Options:
        """Return OPT_NAK_BO_RNG, for the SPMs of a source."""
        if self._mode == "off":
            return NO_OPTIONS
        return (NakBoRng(max_us=self._high // MICROSECOND, min_us=self._low // MICROSECOND),)


class LearntBackOff:
    """Interval of one child: its own parameter, or the advertised one (RFC 15.2.2)."""

    def __init__(self, parameters: Parameters) -> None:
        self._default_ns = parameters.nak_bo_ivl
        self._low, self._high = parameters.nak_bo_ivl_min, max(parameters.nak_bo_ivl_min, parameters.nak_bo_ivl_max)
        self._learnt_ns: int | None = None

    @property
    def ivl_ns(self) -> int:
        """Return the upper bound of the random back-off, in ns."""
        return self._default_ns if self._learnt_ns is None else max(self._low, min(self._high, self._learnt_ns))

    def change(self, parameters: Parameters) -> None:
        """Take the interval of other parameters. An advertised one stays in force."""
        self._default_ns = parameters.nak_bo_ivl

    def on_range(self, option: NakBoRng) -> None:
        """Take the source's bounds, clipped to values of the parameter. Ignore a minimum of 0 or above the maximum."""
        if 0 < option.min_us <= option.max_us:
            self._high = min(option.max_us * MICROSECOND, int(ROWS["nak_bo_ivl_max"].high))
            self._low = min(option.min_us * MICROSECOND, self._high)

    def on_interval(self, option: NakBoIvl) -> None:
        """Take an advertised interval that this node may use."""
        self._learnt_ns = option.ivl_us * MICROSECOND
