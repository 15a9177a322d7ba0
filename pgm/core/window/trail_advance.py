"""Strategies for the trail of a transmit window, named as in RFC 3208 section 16.

* **Advance with time** (16.3): packets older than TXW_SECS leave the window, whether or not more data was sent. NAKs do
  not extend that time (TXW_ADV_IVL is 0), and an idle window closes. A window may be too small for TXW_SECS. Packets
  that leave such a window early are lost for good to the receivers that miss them. While receivers request packets from
  its oldest part, a full window therefore waits a bounded time before it advances.
* **Advance with data** (16.2): the last TXW_BYTES stay, however old. TXW_ADV_SECS, the ambient SPM interval and the
  join interval are measured in data. One second has passed when as many octets were sent as TXW_MAX_RTE allows in one
  second. A full window advances when no NAK for its oldest increment came for TXW_ADV_IVL. If the oldest half of the
  window is smaller than that increment, only NAKs for that half count.
* **Application control** (16.4): the trail advances when the application says so.

TXW_ADV_IVL_TMR runs in real time in all strategies. The RFC calls TXW_ADV_IVL_TMR data-driven too, but nothing is sent
while the window is full, so no data could drive the timer.
"""

from __future__ import annotations

from typing import Protocol

from pgm.parameters import Parameters
from pgm.units import NEVER, SECOND

_WATCHED = 3  # With time: NAKs for the oldest 1 / _WATCHED of the window hold the window.
# With data: the share is larger, because receivers that are too slow for the window send their NAKs late.
_WATCHED_OF_DATA = 2


class Advance(Protocol):
    """Strategy that decides when the trail of a window may advance."""

    def change(self, parameters: Parameters) -> None:
        """Take other parameters."""

    def elapsed_ns(self, real_ns: int) -> int:
        """Return how long the window's timers have run after `real_ns` of real time."""

    def sent(self, octets: int) -> None:
        """Count octets of data sent for the first time."""

    def nak(self, now_ns: int) -> None:
        """Note a NAK for the watched part of the window."""

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """Return the end of the watched part of the window.

        NAKs for sqns below this end hold the window. The window has the sqns `trail` to `end - 1`. Its oldest increment
        ends at `next_trail`.
        """

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """Return whether a full window must not advance.

        The method is called only while the window is full. `is_owed` says that a repair from the watched part is still
        to be sent.
        """

    def moved(self) -> None:
        """Note that the window has room."""

    def retry_at(self) -> int:
        """Return when a full window may advance by itself."""

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """Return when the oldest increment leaves a window that has room."""


class AdvanceWithTime:
    """Advance in real time alone (SRC-13).

    NAKs may hold a window that is full before TXW_SECS has passed. The hold lasts at most `txw_hold_share` times the
    time the window took to fill.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._txw_secs = parameters.txw_secs
        self._nak_ivl = parameters.txw_adv_ivl
        self._share = parameters.txw_hold_share
        self._nak_ns = self._moved_ns = -NEVER
        self._full_since_ns: int | None = None

    def change(self, parameters: Parameters) -> None:
        """Keep packets as long as other parameters say."""
        self._txw_secs = parameters.txw_secs

    def elapsed_ns(self, real_ns: int) -> int:
        """Return `real_ns`: timers run in real time."""
        return real_ns

    def sent(self, octets: int) -> None:
        """Do nothing: the trail does not depend on the data sent."""

    def nak(self, now_ns: int) -> None:
        """Note the time of a NAK for the oldest part."""
        self._nak_ns = now_ns

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """Return the end of the oldest third. The share leaves time to request a lost repair again."""
        return trail + (end - trail) // _WATCHED

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """Return whether the oldest part was requested recently: new data would make its packets unrepairable."""
        if self._full_since_ns is None:
            self._full_since_ns = now_ns
        if is_owed:
            self._nak_ns = now_ns
        if now_ns < self.retry_at():
            return True
        self._moved_ns, self._full_since_ns = now_ns, None
        return False

    def moved(self) -> None:
        """End the hold; the next hold starts with its full time."""
        self._full_since_ns = None

    def retry_at(self) -> int:
        """Return when a full window advances: `txw_adv_ivl` after the last NAK, or at the end of the longest hold."""
        if self._full_since_ns is None:
            return NEVER
        took_ns = self._nak_ivl if self._moved_ns < 0 else self._full_since_ns - self._moved_ns
        longest_ns = round(self._share * took_ns)
        return min(self._nak_ns + self._nak_ivl, self._full_since_ns + longest_ns)

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """Return TXW_SECS after the increment's last packet. An idle window therefore closes completely."""
        return increment_ended_ns + self._txw_secs


class AdvanceWithData:
    """Advance by octets sent (SRC-11, SRC-12). NAKs hold a full window for TXW_ADV_SECS at most."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._sent_octets = 0
        self._nak_ns = -NEVER
        self._full_since_ns: int | None = None

    def change(self, parameters: Parameters) -> None:
        """Do nothing: parameters are read at each use."""

    def elapsed_ns(self, real_ns: int) -> int:
        """Return the time that the octets sent so far stand for, at TXW_MAX_RTE."""
        return self._sent_octets * SECOND // self._parameters.txw_max_rte

    def sent(self, octets: int) -> None:
        """Advance the clock by the octets sent."""
        self._sent_octets += octets

    def nak(self, now_ns: int) -> None:
        """Restart TXW_ADV_IVL_TMR."""
        self._nak_ns = now_ns

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """Return the end of the oldest increment or half of the window.

        The smaller of the two counts, so an increment that is most of the window leaves in parts. NAKs for the newest
        packets then hold nothing.
        """
        return min(next_trail, trail + -(-(end - trail) // _WATCHED_OF_DATA))

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """Return whether TXW_ADV_IVL_TMR runs, for TXW_ADV_SECS at most, so that NAKs cannot hold it for ever."""
        if self._full_since_ns is None:
            self._full_since_ns = now_ns
        is_quiet = now_ns - self._nak_ns >= self._parameters.txw_adv_ivl
        return not is_quiet and now_ns - self._full_since_ns < self._parameters.txw_adv_secs

    def moved(self) -> None:
        """End the hold; the next hold starts with its full time."""
        self._full_since_ns = None

    def retry_at(self) -> int:
        """Return when TXW_ADV_IVL_TMR expires."""
        return self._nak_ns + self._parameters.txw_adv_ivl

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """Return when an idle window closes (SRC-15); NEVER without `txw_idle_ivl`."""
        return last_sent_ns + self._parameters.txw_idle_ivl if self._parameters.txw_idle_ivl else NEVER


class ApplicationControl:
    """Advance only when the application says so (SRC-14)."""

    def change(self, parameters: Parameters) -> None:
        """Do nothing: the application decides."""

    def elapsed_ns(self, real_ns: int) -> int:
        """Return `real_ns`: timers run in real time."""
        return real_ns

    def sent(self, octets: int) -> None:
        """Do nothing: the trail does not depend on the data sent."""

    def nak(self, now_ns: int) -> None:
        """Do nothing: NAKs do not hold the window."""

    def watched_end(self, trail: int, next_trail: int, end: int) -> int:
        """Return the trail: no part is watched."""
        return trail

    def holds(self, now_ns: int, *, is_owed: bool) -> bool:
        """Return True: a full window waits for the application."""
        return True

    def moved(self) -> None:
        """Do nothing: the strategy keeps no hold."""

    def retry_at(self) -> int:
        """Return NEVER: only the application advances the window."""
        return NEVER

    def expires_at(self, increment_ended_ns: int, last_sent_ns: int) -> int:
        """Return NEVER: increments do not expire."""
        return NEVER


def strategy_of(parameters: Parameters) -> Advance:
    """Return the strategy that `txw_adv_mode` names."""
    if parameters.txw_adv_mode == "data":
        return AdvanceWithData(parameters)
    return ApplicationControl() if parameters.txw_adv_mode == "application" else AdvanceWithTime(parameters)
