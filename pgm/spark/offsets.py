"""Where queries begin and end: offsets are `{key of the session: next sqn}`, keys sorted, since Spark compares them as text."""

from __future__ import annotations

from collections.abc import Mapping

from pgm.spark.errors import BadOption, DataLoss, RecorderDown
from pgm.spark.options import EARLIEST, LATEST, Offsets, SourceOptions
from pgm.spark.ranges import SessionSpan
from pgm.spark.recorders import sqns_at
from pgm.spark.sessions import ArchivedSession

Sessions = Mapping[str, ArchivedSession]


def starts_of(sessions: Sessions, options: SourceOptions) -> dict[str, int]:
    """Where each session begins. Raises `BadOption`, `DataLoss`."""
    if options.starting_us is not None:
        return _at_time(sessions, options, options.starting_us)
    return _resolved(sessions, options.starting, "startingOffsets", options, EARLIEST)


def ends_of(sessions: Sessions, options: SourceOptions) -> dict[str, int]:
    """Where each session ends, in a batch. Raises `BadOption`, `DataLoss`."""
    if options.ending_us is not None:
        return _at_time(sessions, options, options.ending_us)
    return _resolved(sessions, options.ending, "endingOffsets", options, LATEST)


def spans_of(sessions: Sessions, options: SourceOptions) -> list[SessionSpan]:
    """What a batch reads. Raises `BadOption`, `DataLoss`."""
    starts, ends = starts_of(sessions, options), ends_of(sessions, options)
    for key, first in starts.items():
        if ends[key] < first and isinstance(options.starting, dict) and isinstance(options.ending, dict):
            raise BadOption(f"session {key} ends at {ends[key]}, before it begins at {first}", remedy="turn them round")
    return [SessionSpan(session, starts[key], ends[key]) for key, session in sessions.items()]


def _resolved(sessions: Sessions, given: Offsets, name: str, options: SourceOptions, other: int) -> dict[str, int]:
    """What an option says about every session; `other` for those that it does not name."""
    if isinstance(given, int):
        return {key: _sqn(session, given) for key, session in sessions.items()}
    found = {key: _sqn(session, other) for key, session in sessions.items()}
    for named, sqn in given.items():
        keys = [key for key, session in sessions.items() if named in (key, session.tsi)]
        if not keys:
            known = ", ".join(sessions) or "none"
            raise BadOption(f"{name} names session {named}, which nobody holds", remedy=f"there are: {known}")
        if len(keys) > 1 and sqn >= 0:
            raise BadOption(
                f"{name} names {named}, of which there are several sessions", remedy=f"name one: {', '.join(keys)}"
            )
        for key in keys:
            found[key] = _checked(sessions[key], _sqn(sessions[key], sqn), name, options)
    return found


def _sqn(session: ArchivedSession, given: int) -> int:
    return session.oldest if given == EARLIEST else session.next_sqn if given == LATEST else given


def _checked(session: ArchivedSession, sqn: int, name: str, options: SourceOptions) -> int:
    """An sqn that is there; the nearest one without failOnDataLoss."""
    if session.oldest <= sqn <= session.next_sqn:
        return sqn
    if options.fail_on_loss:
        raise DataLoss(
            f"{name} names sqn {sqn} of session {session.key}, which is held from {session.oldest} to {session.next_sqn - 1}",
            remedy="name an sqn that is held, earliest or latest, or take the nearest: failOnDataLoss = false",
        )
    return min(max(sqn, session.oldest), session.next_sqn)


def _at_time(sessions: Sessions, options: SourceOptions, time_us: int) -> dict[str, int]:
    """The first sqn that any recorder received at a time or later."""
    sqns = sqns_at(options, time_us)
    found = {}
    for key, session in sessions.items():
        told = [sqns.get((one.location, session.tsi, session.epoch_us, one.node)) for one in session.places]
        known = [sqn for sqn in told if sqn is not None]
        if not known:
            raise RecorderDown(
                f"nobody says where session {key} is at that time: {session.places[0].location} no longer answers",
                remedy="try again",
            )
        found[key] = min(known)
    return found


def advanced(
    start: Mapping[str, int], sessions: Sessions, limit: int | None, targets: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The offsets of the next micro-batch: never behind `start`, at most `limit` sqns further, not beyond `targets`.

    A session that `start` does not have enters where it begins; its rows come with the next micro-batch. So the log of a query has the
    beginning of every range, and a batch that is run again reads the same.
    """
    found = dict(start)
    ahead: dict[str, int] = {}
    for key, session in sessions.items():
        if targets is not None and key not in targets:
            continue
        if key not in start:
            found[key] = session.oldest
            continue
        end = session.next_sqn if targets is None else min(session.next_sqn, targets[key])
        ahead[key] = max(0, end - start[key])
    total = sum(ahead.values())
    for key, count in ahead.items():
        share = count if limit is None or total <= limit else max(1, count * limit // total) if count else 0
        found[key] = start[key] + share
    return dict(sorted(found.items()))
