"""Phases of a receiver's session."""

from __future__ import annotations

import enum


class SessionPhase(enum.Enum):
    """Phase of one source's session at one receiver."""

    WAITING = "nothing received yet"
    HOLDING = "data but no SPM yet, which may announce an earlier start of the stream"
    OPEN = "open"
    SILENT = "silent"
    ENDING = "given up, delivering the rest"
    CLOSED = "closed"
