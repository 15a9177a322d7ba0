"""Sources that began anew: told once it is certain that the session before will not go on.

A source that is started again has a new TSI; its global source id, which comes from its host, and its data port are the same.
Several sources of a host may be alive side by side, so the earlier session must have ended or fallen silent.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgm.core.effects import NOTHING, Effects, Notice
from pgm.core.receiver.session import ReceiverSession
from pgm.wire.formats import tsi_text

_GSI_OCTETS = 6


def _are_of_one_place(one: ReceiverSession, other: ReceiverSession) -> bool:
    is_same = one.state.tsi[:_GSI_OCTETS] == other.state.tsi[:_GSI_OCTETS]
    return is_same and one.state.data_port == other.state.data_port and one is not other


def _notice(old: ReceiverSession, new: ReceiverSession) -> Effects:
    text = f"session {tsi_text(new.state.tsi)} is in place of {tsi_text(old.state.tsi)}"
    return (Notice("source-restarted", text),)


def begun_anew(new: ReceiverSession, sessions: Iterable[ReceiverSession]) -> Effects:
    """A session begins: whether one that is over or silent was of the same place."""
    before = [one for one in sessions if _are_of_one_place(one, new) and one.is_quiet]
    return _notice(max(before, key=lambda one: one.state.heard_at_ns), new) if before else NOTHING


def fell_silent(old: ReceiverSession, sessions: Iterable[ReceiverSession]) -> Effects:
    """A session falls silent: whether one of the same place began after it was last heard."""
    behind = [one for one in sessions if _are_of_one_place(old, one) and one.begun_ns > old.state.heard_at_ns]
    return _notice(old, min(behind, key=lambda one: one.begun_ns)) if behind else NOTHING
