"""Where a receiver's session stands."""

from __future__ import annotations

import enum


class SessionPhase(enum.Enum):
    """One source as one receiver sees it."""

    WAITING = "nothing received yet"
    HOLDING = "data but no SPM yet: it may say that the stream began earlier"
    OPEN = "open"
    SILENT = "silent"
    ENDING = "given up, delivering what is left"
    CLOSED = "closed"
