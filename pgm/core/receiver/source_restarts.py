"""Notices about restarted sources.

A restarted source has a new TSI, but the same global source id, which comes from its name, and the same data port. A
notice is given once it is certain that the earlier session will not continue. Several sources of a host may be active
side by side, so the earlier session must have ended or fallen silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.receiver.session import ReceiverSession
from pgm.core.source_names import GSI_OCTETS
from pgm.wire.formats import tsi_text


def _are_same_origin(left: ReceiverSession, right: ReceiverSession) -> bool:
    is_same = left.state.tsi[:GSI_OCTETS] == right.state.tsi[:GSI_OCTETS]
    return is_same and left.state.data_port == right.state.data_port and left is not right


def _notice(old: ReceiverSession, new: ReceiverSession) -> Effects:
    text = f"session {tsi_text(new.state.tsi)} is in place of {tsi_text(old.state.tsi)}"
    return (Notice("source-restarted", text),)


def restart_of_new_session(new: ReceiverSession, sessions: Iterable[ReceiverSession]) -> Effects:
    """Return a notice if a new session replaces a session that ended or fell silent."""
    before = [session for session in sessions if _are_same_origin(session, new) and session.is_quiet]
    return _notice(max(before, key=lambda session: session.state.heard_at_ns), new) if before else NOTHING


def restart_of_silent_session(old: ReceiverSession, sessions: Iterable[ReceiverSession]) -> Effects:
    """Return a notice if a session that fell silent was already replaced."""
    later = [
        session for session in sessions if _are_same_origin(old, session) and session.begun_ns > old.state.heard_at_ns
    ]
    return _notice(old, min(later, key=lambda session: session.begun_ns)) if later else NOTHING
