"""Offsets of queries: the sqns of each session where a batch begins and ends, or where a stream begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from pgm.archive.requests import RangeRequest
from pgm.archive.tables.reading import sqn_at
from pgm.spark.errors import BadOption, DataLoss, RecorderDown
from pgm.spark.filters import FilterBounds
from pgm.spark.options import EARLIEST, LATEST, Offsets, SourceOptions
from pgm.spark.ranges import SessionSpan
from pgm.spark.recorders import sqns_at
from pgm.spark.sessions import ArchivedSession, SessionReplica

Sessions = Mapping[str, ArchivedSession]


def starts_of(sessions: Sessions, options: SourceOptions) -> dict[str, int]:
    """Return the first sqn of each session. Raises `BadOption`, `DataLoss`."""
    if options.starting_us is not None:
        return _at_time(sessions, options, options.starting_us)
    return _resolved(sessions, options.starting, "startingOffsets", options, EARLIEST)


def ends_of(sessions: Sessions, options: SourceOptions) -> dict[str, int]:
    """Return the end of each session in a batch. Raises `BadOption`, `DataLoss`."""
    if options.ending_us is not None:
        return _at_time(sessions, options, options.ending_us)
    return _resolved(sessions, options.ending, "endingOffsets", options, LATEST)


def spans_of(sessions: Sessions, options: SourceOptions) -> list[SessionSpan]:
    """Return the ranges that a batch reads. Raises `BadOption`, `DataLoss`."""
    starts, ends = starts_of(sessions, options), ends_of(sessions, options)
    for key, first in starts.items():
        if ends[key] < first and isinstance(options.starting, dict) and isinstance(options.ending, dict):
            raise BadOption(f"session {key} ends at {ends[key]}, before it begins at {first}", remedy="swap them")
    return [SessionSpan(session, starts[key], ends[key]) for key, session in sessions.items()]


def narrowed(spans: Sequence[SessionSpan], bounds: FilterBounds) -> list[SessionSpan]:
    """Return the parts of ranges that the filters of a query leave.

    A part begins one sqn early. A loss that begins before the filter's first sqn is then cut to that sqn, and Spark's own
    filter drops the row, as for a range that is read whole. Of chosen recordings comes what they hold.
    """
    low, high = bounds.sqns
    found = []
    for span in spans:
        if bounds.tsis is not None and span.session.tsi not in bounds.tsis:
            continue
        places = tuple(place for place in span.session.places if bounds.nodes is None or place.node in bounds.nodes)
        first = span.first if low is None else max(span.first, low - 1)
        end = span.end if high is None else min(span.end, high)
        if places == span.session.places:
            found.append(SessionSpan(span.session, first, end))
        elif places:
            session = attrs.evolve(span.session, places=places)
            found += _held_spans(session, first, end)
    return found


def _held_spans(session: ArchivedSession, first: int, end: int) -> Iterator[SessionSpan]:
    """Yield the parts of a range that any place of a session holds. The executors lack the ranges of the cores."""
    at = first
    for place in sorted(session.places, key=lambda one: one.oldest):
        begin, stop = max(at, place.oldest), min(end, place.next_sqn)
        if begin < stop:
            yield SessionSpan(session, begin, stop)
            at = stop


def _resolved(sessions: Sessions, given: Offsets, name: str, options: SourceOptions, default: int) -> dict[str, int]:
    """Return the sqn that an option gives each session. Sessions that the option does not name get `default`."""
    if isinstance(given, int):
        return {key: _sqn(session, given) for key, session in sessions.items()}
    sqns = {key: _sqn(session, default) for key, session in sessions.items()}
    for session_name, sqn in given.items():
        keys = [key for key, session in sessions.items() if session_name in (key, session.tsi)]
        if not keys:
            held = ", ".join(sessions) or "none"
            raise BadOption(f"{name} names session {session_name}, which no service holds", remedy=f"held are: {held}")
        if len(keys) > 1 and sqn >= 0:
            raise BadOption(
                f"{name} names {session_name}, of which there are several sessions",
                remedy=f"name one: {', '.join(keys)}",
            )
        for key in keys:
            sqns[key] = _checked(sessions[key], _sqn(sessions[key], sqn), name, options)
    return sqns


def _sqn(session: ArchivedSession, given: int) -> int:
    return session.oldest if given == EARLIEST else session.next_sqn if given == LATEST else given


def _checked(session: ArchivedSession, sqn: int, name: str, options: SourceOptions) -> int:
    """Return a held sqn; the nearest one without failOnDataLoss."""
    if session.oldest <= sqn <= session.next_sqn:
        return sqn
    if options.fail_on_loss:
        raise DataLoss(
            f"{name} names sqn {sqn} of session {session.key}, which is held from {session.oldest} to {session.next_sqn - 1}",
            remedy="name an sqn that is held, earliest or latest, or use the nearest: failOnDataLoss = false",
        )
    return min(max(sqn, session.oldest), session.next_sqn)


def _at_time(sessions: Sessions, options: SourceOptions, time_us: int) -> dict[str, int]:
    """Return the first sqn of each session received at or after a time. The sqn counts if any recorder received it."""
    sqns = sqns_at(options, time_us)
    firsts = {}
    for key, session in sessions.items():
        answers = [_of_place(session, place, sqns, time_us) for place in session.places]
        known = [sqn for sqn in answers if sqn is not None]
        if not known:
            raise RecorderDown(
                f"no service knows the sqn of session {key} at that time: {session.places[0].location} no longer answers",
                remedy="try again",
            )
        firsts[key] = min(known)
    return firsts


def _of_place(
    session: ArchivedSession,
    place: SessionReplica,
    sqns: Mapping[tuple[str, str, int | None, str | None], int],
    time_us: int,
) -> int | None:
    """Return the first sqn of a session from a time on at a place; None if the place does not say."""
    if not place.files:
        return sqns.get((place.location, session.tsi, session.epoch_us, place.node))
    request = RangeRequest(session.tsi, session.epoch_us, node=place.node)
    found = sqn_at(place.files, request, time_us)
    return place.next_sqn if found is None else found
