"""PGMCC window: tokens for packets, opened by acks and halved by losses.

Reference: draft-ietf-rmt-bb-pgmcc-03, section 2.2, which follows TCP. This module is pure arithmetic. A lost packet
returns its token as an acknowledged one does, because neither is in flight any more. The draft leaves this point open.
Without the return every loss would shrink the window for good.
"""

from __future__ import annotations

from collections import deque

_SSTHRESH = 4.0  # packets: in a smaller window every ack counts double (2.2)
_DUPLICATES = 3  # acknowledged later packets that prove the loss of a packet (2.2)
MAP_BITS = 32  # sqns in the map of an ack
_KEPT_TIMES = 4096  # trains with a known time of sending: far more than are in flight


class CongestionWindow:
    """Window and tokens in packets, both with fractions (CC-32)."""

    def __init__(self) -> None:
        self.window = 1.0
        self.tokens = 1.0
        self._in_flight: dict[int, None] = {}
        self._frozen_until = -1  # the window does not change before feedback for this sqn
        self._times: deque[tuple[int, int, int]] = deque(maxlen=_KEPT_TIMES)  # first, end, when

    @property
    def has_in_flight(self) -> bool:
        """Return whether any packet is in flight."""
        return bool(self._in_flight)

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note ODATA that was sent, at one token for each packet."""
        self.tokens -= end - first
        self._in_flight.update(dict.fromkeys(range(first, end)))
        self._times.append((first, end, now_ns))

    def elapsed_ns(self, sqn: int, at_ns: int) -> int:
        """Return the time since a packet was sent, at least 0; -1 if that was too long ago."""
        for first, end, sent_ns in reversed(self._times):
            if first <= sqn < end:
                return max(0, at_ns - sent_ns)
            if end <= sqn:
                return -1
        return -1

    def acked(self, rx_max: int, bitmap: int, lead: int) -> tuple[int, int]:
        """Take an ack. Return counts of newly acknowledged and lost packets; any older than the map is received."""
        got: list[int] = []
        lost: list[int] = []
        for sqn in self._in_flight:
            back = rx_max - sqn
            if back < 0:
                break
            if back >= MAP_BITS or bitmap >> back & 1:
                got.append(sqn)
            elif (bitmap & ((1 << back) - 1)).bit_count() >= _DUPLICATES:
                lost.append(sqn)
        for sqn in (*got, *lost):
            del self._in_flight[sqn]
        is_frozen = rx_max < self._frozen_until
        if lost and not is_frozen:
            self.tokens -= self.window / 2
            self.window = max(1.0, self.window / 2)
            self._frozen_until = lead + 1
            is_frozen = True
        self._open(len(got), grows=not is_frozen)
        self.tokens = min(self.window, self.tokens + len(lost))
        return len(got), len(lost)

    def _open(self, count: int, *, grows: bool) -> None:
        """Return tokens to the window, and open it if it `grows` (CC-33). A frozen window gets only its tokens."""
        if not grows:
            self.tokens += count
            return
        if self.window < _SSTHRESH:
            fast = min(float(count), _SSTHRESH - self.window)
            self.tokens += 2 * fast
            self.window += fast
            rest = count - fast
        else:
            rest = float(count)
        self.tokens += rest * (1 + 1 / self.window)
        self.window += rest / self.window

    def timed_out(self) -> None:
        """Reset the window after a timeout (CC-38)."""
        self.window = self.tokens = 1.0
        self._in_flight.clear()
        self._frozen_until = -1


def slowness(rtt_s: float, loss: float) -> float:
    """Return the square of TCP's inverse throughput for `rtt_s` in seconds and `loss` of 0 to 1 (2.4, CC-36)."""
    return rtt_s**2 * loss * (1 + 9 * loss * (1 + 32 * loss**2)) ** 2
