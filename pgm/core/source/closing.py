"""When a closed source may go: NAKs are served until nobody asks any more, for TXW_SECS at most (RFC 9.7.2)."""

from __future__ import annotations

from pgm.core.window.transmit_window import TransmitWindow
from pgm.parameters import Parameters
from pgm.units import NEVER


class ClosingTimer:
    """The time between a source's first FIN and its end."""

    def __init__(self, window: TransmitWindow, parameters: Parameters, now_ns: int) -> None:
        self._window = window
        self._parameters = parameters
        self._fin_at_ns: int | None = None
        self._asked_ns = now_ns
        self._was_over = False  # at the last look

    @property
    def has_begun(self) -> bool:
        """Whether the first FIN went out."""
        return self._fin_at_ns is not None

    def begin(self, now_ns: int) -> None:
        """The first FIN goes out."""
        self._fin_at_ns = now_ns

    def asked(self, now_ns: int) -> None:
        """A NAK came."""
        self._asked_ns, self._was_over = now_ns, False

    def is_over(self, now_ns: int) -> bool:
        """Whether the source may go: silent for fin_quiet_ivl, or txw_secs over (SRC-27)."""
        return now_ns >= self._over_at_ns

    def look(self, now_ns: int) -> None:
        """A deadline came: whoever asks may know now."""
        self._was_over = self.is_over(now_ns)

    @property
    def deadline_ns(self) -> int:
        """When it is over; NEVER once a look has found that."""
        return NEVER if self._was_over else self._over_at_ns

    @property
    def _over_at_ns(self) -> int:
        if self._fin_at_ns is None:
            return NEVER
        if self._window.lead >= self._window.unstable_from:  # some member of an acknowledged stream lacks something
            return self._fin_at_ns + self._parameters.txw_secs
        quiet = max(self._fin_at_ns, self._asked_ns) + self._parameters.fin_quiet_ivl
        return min(quiet, self._fin_at_ns + self._parameters.txw_secs)
