"""End of a closed source (RFC 9.7.2). A closed source serves NAKs until none come, for TXW_SECS at most."""

from __future__ import annotations

from pgm.core.window.transmit_window import TransmitWindow
from pgm.parameters import Parameters
from pgm.units import NEVER
from pgm.wire.options import Fin, Options, Rst


class StreamEnd:
    """Close or abort of a source, and the time from its first FIN to its end."""

    def __init__(self, window: TransmitWindow, parameters: Parameters, now_ns: int) -> None:
        self._window = window
        self._parameters = parameters
        self.is_closed = False  # no more messages are accepted
        self.serves_naks = True  # False after an abort that says so
        self._reset: tuple[Rst, ...] = ()
        self._fin_at_ns = NEVER
        self._last_nak_ns = now_ns
        self._was_over = False  # at the last check

    @property
    def has_begun(self) -> bool:
        """Whether the first FIN was sent."""
        return self._fin_at_ns != NEVER

    def close(self, *reset: Rst) -> None:
        """Note that the source is closed, or aborted with a reset."""
        self.is_closed, self._reset = True, reset
        self.serves_naks = not any(one.no_naks for one in reset)

    def spm_options(self) -> Options:
        """Return OPT_RST after an abort, and OPT_FIN after all data of a closed source was sent."""
        if self._reset or not self.is_closed or self._window.has_unsent:
            return self._reset
        return (Fin(),)

    def begin(self, now_ns: int) -> None:
        """Note that the first FIN is sent."""
        self._fin_at_ns = now_ns

    def on_nak(self, now_ns: int) -> None:
        """Note that a NAK came."""
        self._last_nak_ns, self._was_over = now_ns, False

    def is_over(self, now_ns: int) -> bool:
        """Return whether the source may end: after `fin_quiet_ivl` without NAKs, or after `txw_secs` (SRC-27)."""
        return now_ns >= self._over_at_ns

    def check(self, now_ns: int) -> None:
        """Check the timer at a deadline, so that the caller learns of the end."""
        self._was_over = self.is_over(now_ns)

    @property
    def deadline_ns(self) -> int:
        """When the source may end; NEVER once a check has found that it may."""
        return NEVER if self._was_over else self._over_at_ns

    @property
    def _over_at_ns(self) -> int:
        if not self.has_begun:
            return NEVER
        if self._window.lead >= self._window.unstable_from:  # some member of an acknowledged stream lacks packets
            return self._fin_at_ns + self._parameters.txw_secs
        quiet = max(self._fin_at_ns, self._last_nak_ns) + self._parameters.fin_quiet_ivl
        return min(quiet, self._fin_at_ns + self._parameters.txw_secs)
