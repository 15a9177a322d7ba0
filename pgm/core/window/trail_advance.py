"""Strategies for the trail of a transmit window, named as in RFC 3208 section 16.

* **Advance with time** (16.3): what is older than TXW_SECS goes, whether anything was sent meanwhile or not. NAKs hold
  nothing of that (TXW_ADV_IVL is 0), and an idle window closes. A window that has no room for so long a time is what
  receivers lose for good: while something of its oldest part is asked for, it waits a bounded time before it moves on.
* **Advance with data** (16.2): the last TXW_BYTES stay, however old. TXW_ADV_SECS, the ambient SPM interval and the join
  interval are measured in data: a second has passed when as much was sent as TXW_MAX_RTE lets out in one. A full window
  moves on when no NAK for its oldest increment came for TXW_ADV_IVL, or for its oldest half where that is less.
* **Application control** (16.4): the trail moves when the application says so.

TXW_ADV_IVL_TMR runs in real time in all of them. The RFC calls it data-driven too; but while the window is full nothing is
sent that could drive it.
"""

from __future__ import annotations

from typing import Protocol

from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND

_WATCHED = 3  # the oldest of so many parts of a window that time alone moves, ...
_WATCHED_OF_DATA = 2  # ... and of one that data move, whose receivers may have been too slow for it: they ask late


class Advance(Protocol):
    """When the trail of a window may move."""

    def elapsed_ns(self, real_ns: int) -> int:
        """How long the window's timers have run when `real_ns` have passed in real time."""

    def sent(self, octets: int) -> None:
        """Note data sent for the first time."""

    def nak(self, now_ns: int) -> None:
        """Note a NAK for what is watched."""

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """Up to where sqns that are asked for hold a window from `trail` to `end - 1`; its oldest increment ends at `next_trail`."""

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """Whether a full window must stay as it is; `is_owed` says that a repair of what is watched is still to leave. Asked only while it is full."""

    def moved(self) -> None:
        """Note that there was room, or is again."""

    def retry_at(self) -> int:
        """When a full window may move on by itself."""

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """When the oldest increment goes though there is room."""


class AdvanceWithTime:
    """Real time alone (SRC-13). NAKs hold a window that is full before its time, for as long again as it took to fill at most."""

    def __init__(self, parameters: Parameters) -> None:
        self._txw_secs = parameters.txw_secs
        self._nak_ivl = parameters.txw_adv_ivl
        self._share = parameters.txw_hold_share
        self._nak_ns = self._moved_ns = -NEVER
        self._full_since_ns: int | None = None

    def elapsed_ns(self, real_ns: int) -> int:
        """Timers run in real time."""
        return real_ns

    def sent(self, octets: int) -> None:
        """Nothing depends on it."""

    def nak(self, now_ns: int) -> None:
        """Note when something old was asked for."""
        self._nak_ns = now_ns

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """A part, so that a repair that gets lost can be asked for again."""
        return trail + (end - trail) // _WATCHED

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """While something old was asked for a moment ago: sending what follows would lose it for good."""
        if self._full_since_ns is None:
            self._full_since_ns = now_ns
        if is_owed:
            self._nak_ns = now_ns
        if now_ns < self.retry_at():
            return True
        self._moved_ns, self._full_since_ns = now_ns, None
        return False

    def moved(self) -> None:
        """A new hold begins afresh."""
        self._full_since_ns = None

    def retry_at(self) -> int:
        """When a full window moves on: once nobody asks any more, or after a share of the time since it moved last."""
        if self._full_since_ns is None:
            return NEVER
        took_ns = self._nak_ivl if self._moved_ns < 0 else self._full_since_ns - self._moved_ns
        longest_ns = round(self._share * took_ns)
        return min(self._nak_ns + self._nak_ivl, self._full_since_ns + longest_ns)

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """TXW_SECS after its last packet: an idle window closes altogether."""
        return increment_ended_ns + self._txw_secs


class AdvanceWithData:
    """Octets drive the window; NAKs hold it, for TXW_ADV_SECS in all at most (SRC-11, SRC-12)."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._sent_octets = 0
        self._nak_ns = -NEVER
        self._full_since_ns: int | None = None

    def elapsed_ns(self, real_ns: int) -> int:
        """Timers run by what was sent."""
        return self._sent_octets * SECOND // self._parameters.txw_max_rte

    def sent(self, octets: int) -> None:
        """The clock goes on."""
        self._sent_octets += octets

    def nak(self, now_ns: int) -> None:
        """Restart TXW_ADV_IVL_TMR."""
        self._nak_ns = now_ns

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """The oldest increment. One that is most of the window leaves by parts, so that NAKs for what came last hold nothing."""
        return min(next_trail, trail + -(-(end - trail) // _WATCHED_OF_DATA))

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """While TXW_ADV_IVL_TMR runs; a storm of NAKs cannot make that last for ever."""
        if self._full_since_ns is None:
            self._full_since_ns = now_ns
        is_quiet = now_ns - self._nak_ns >= self._parameters.txw_adv_ivl
        return not is_quiet and now_ns - self._full_since_ns < self._parameters.txw_adv_secs

    def moved(self) -> None:
        """A new hold begins afresh."""
        self._full_since_ns = None

    def retry_at(self) -> int:
        """When TXW_ADV_IVL_TMR runs out."""
        return self._nak_ns + self._parameters.txw_adv_ivl

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """Never, unless a window that stays idle shall close (SRC-15)."""
        return last_sent_ns + self._parameters.txw_idle_ivl if self._parameters.txw_idle_ivl else NEVER


class ApplicationControl:
    """The application steps the window (SRC-14)."""

    def elapsed_ns(self, real_ns: int) -> int:
        """Timers run in real time."""
        return real_ns

    def sent(self, octets: int) -> None:
        """Nothing depends on it."""

    def nak(self, now_ns: int) -> None:
        """NAKs decide nothing."""

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """Nothing."""
        return trail

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """A full window waits for the application."""
        return True

    def moved(self) -> None:
        """Nothing was held."""

    def retry_at(self) -> int:
        """Nobody but the application moves it on."""
        return NEVER

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """Never."""
        return NEVER


def strategy_of(parameters: Parameters) -> Advance:
    """The strategy that `txw_adv_mode` names."""
    if parameters.txw_adv_mode == "data":
        return AdvanceWithData(parameters)
    return ApplicationControl() if parameters.txw_adv_mode == "application" else AdvanceWithTime(parameters)
