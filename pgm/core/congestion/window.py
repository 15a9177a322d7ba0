"""PGMCC's window: tokens for packets, opened by acks and halved by losses, as TCP does it (draft-ietf-rmt-bb-pgmcc-03, 2.2).

Pure arithmetic. A packet that is found lost gives its token back, as one that is acknowledged does, for it is in flight no longer;
the draft leaves that open, and without it every loss would shrink the window for good.
"""

from __future__ import annotations

from collections import deque

_SSTHRESH = 4.0  # packets: below it every ack counts double (2.2)
_DUPLICATES = 3  # packets acknowledged behind one that is not: then that is lost (2.2)
MAP_BITS = 32  # sqns that an ack tells of
_KEPT_TIMES = 4096  # trains whose time of sending is known: far more than are in flight


class CongestionWindow:
    """Window `window` and tokens `tokens`, in packets, neither whole (CC-32)."""

    def __init__(self) -> None:
        self.window = 1.0
        self.tokens = 1.0
        self._in_flight: dict[int, None] = {}
        self._frozen_until = -1  # the window stays as it is until feedback for this sqn comes
        self._times: deque[tuple[int, int, int]] = deque(maxlen=_KEPT_TIMES)  # first, end, when

    @property
    def has_in_flight(self) -> bool:
        """Whether an ack is owed."""
        return bool(self._in_flight)

    def sent(self, first: int, end: int, now_ns: int) -> None:
        """Note ODATA: a token each."""
        self.tokens -= end - first
        self._in_flight.update(dict.fromkeys(range(first, end)))
        self._times.append((first, end, now_ns))

    def sent_at(self, sqn: int) -> int | None:
        """When a packet was sent, ns; None if that was too long ago."""
        for first, end, at_ns in reversed(self._times):
            if first <= sqn < end:
                return at_ns
            if end <= sqn:
                return None
        return None

    def acked(self, rx_max: int, bitmap: int, lead: int) -> tuple[int, int]:
        """Take an ack: everything older than its map is taken as received. Returns new acks and losses, in packets."""
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
        """CC-33; while the window is frozen acks give back their tokens and nothing else."""
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
        """No ack for too long: begin anew (CC-38)."""
        self.window = self.tokens = 1.0
        self._in_flight.clear()
        self._frozen_until = -1


def slowness(rtt_s: float, loss: float) -> float:
    """The square of one over the throughput that TCP would have: larger is slower (2.4, CC-36)."""
    return rtt_s**2 * loss * (1 + 9 * loss * (1 + 32 * loss**2)) ** 2
