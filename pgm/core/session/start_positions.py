"""Positions at which single sessions are to begin: those that an application has reached before."""

from __future__ import annotations

from typing import Protocol

from pgm.core.session.state import SessionState


class StartPositions(Protocol):
    """Memory of an application, as the start of a session sees it."""

    def start_of(self, state: SessionState) -> int | None:
        """Return the sqn at which a session with known edges is to begin; None: where `join_from` says."""


class _ByParameters:
    """Application without a memory."""

    def start_of(self, state: SessionState) -> int | None:
        return None


BY_PARAMETERS: StartPositions = _ByParameters()
