"""Sessions as Spark sees them: their places, and their keys in offsets.

Two recorders use the same sqns only if both know the epoch of the session, and the epochs are equal. So a key is
`TSI@EPOCH` with the epoch in microseconds. The node is part of the key if each copy counts, or if the epoch is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import attrs

from pgm.archive.errors import TableError
from pgm.archive.session import MESSAGES, OPENED, companion_tsi
from pgm.archive.tables.files import TableFile
from pgm.archive.tables.reading import files_of, recent_table
from pgm.archive.tables.state import EACH
from pgm.spark.errors import BadOption, DataLoss, NoReplicas
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import ServiceExtent, Survey, is_wanted
from pgm.wire.formats import KEY_RECORDS_BIT, PROOFS_BIT

_NO_COMPANIONS: Mapping[str, list[ServiceExtent]] = MappingProxyType({})


@attrs.frozen
class SessionReplica:
    """One service, or table, that holds a session of one node, from `oldest` to `next_sqn - 1`. Only tables have files."""

    location: str
    node: str
    oldest: int
    next_sqn: int
    files: tuple[TableFile, ...] = ()


@attrs.frozen
class ArchivedSession:
    """One session at all its places together."""

    key: str
    tsi: str
    epoch_us: int | None
    places: tuple[SessionReplica, ...]
    octets: int  # of the largest copy, on disk
    closed: bool
    stream: str | None = None
    source: str | None = None
    received_us: int = 0  # of the newest row of any place
    kind: str = MESSAGES
    proofs: ArchivedSession | None = None  # of a signed stream, if a check was asked
    key_records: ArchivedSession | None = None  # of a sealed stream
    first_received_us: int = 0  # of the oldest row of any place

    @property
    def oldest(self) -> int:
        """First sqn that any place holds."""
        return min(place.oldest for place in self.places)

    @property
    def next_sqn(self) -> int:
        """Sqn after the last that any place holds."""
        return max(place.next_sqn for place in self.places)

    def ending_at(self, sqn: int) -> ArchivedSession:
        """Return the session without its rows from a sqn on."""
        places = tuple(attrs.evolve(place, next_sqn=min(place.next_sqn, sqn)) for place in self.places)
        return attrs.evolve(self, places=tuple(place for place in places if place.oldest <= sqn), closed=False)

    @property
    def octets_each(self) -> float:
        """Approximate octets on disk for one sqn."""
        return self.octets / max(1, max(place.next_sqn - place.oldest for place in self.places))


def sessions_of(survey: Survey, options: SourceOptions) -> dict[str, ArchivedSession]:
    """Return all sessions, by sorted key. Raises `NoReplicas`, and `DataLoss` for damage without another copy."""
    _check_damage(survey, options)
    if not options.each_copy:
        _check_epochs(survey)
    by_key: dict[str, list[ServiceExtent]] = defaultdict(list)
    for held in (*survey.held, *_of_table(options)):
        by_key[held.holding.key(each_copy=options.each_copy)].append(held)
    companions: dict[str, list[ServiceExtent]] = defaultdict(list)
    for held in survey.companions:
        companions[held.holding.key(each_copy=options.each_copy)].append(held)
    return {key: _session(key, by_key[key], companions) for key in sorted(by_key)}


def _of_table(options: SourceOptions) -> list[ServiceExtent]:
    """Return the chosen sessions of the table of former rows. Raises `BadOption`."""
    if options.history is None:
        return []
    try:
        content = recent_table(Path(options.history))
    except TableError as error:
        raise BadOption(f"option history: {error.message}", remedy=error.remedy) from None
    if content.state.copies != EACH:
        raise BadOption(
            f"option history: {options.history} has joined recordings, whose rows belong to no recorder",
            remedy="name a table that was written with copies = each",
        )
    extents = [one for one in content.state.sessions.values() if is_wanted(options, one)]
    return [ServiceExtent(options.history, one, files_of(content, one)) for one in extents]


def _session(
    key: str, copies: list[ServiceExtent], companions: Mapping[str, list[ServiceExtent]] = _NO_COMPANIONS
) -> ArchivedSession:
    first = copies[0].holding
    _check_kinds(copies)

    def companion(bit: int) -> ArchivedSession | None:
        other = companion_tsi(first.tsi, bit) + key.removeprefix(first.tsi)
        return _session(other, companions[other]) if other in companions else None

    places = tuple(
        SessionReplica(copy.location, copy.holding.node, copy.holding.oldest, copy.holding.next_sqn, copy.files)
        for copy in copies
    )
    next_sqn = max(place.next_sqn for place in places)
    return ArchivedSession(
        key,
        first.tsi,
        first.epoch_us,
        places,
        max(copy.holding.octets for copy in copies),
        any(copy.holding.closed and copy.holding.next_sqn == next_sqn for copy in copies),
        first.stream,
        first.source,
        max(copy.holding.last_received_us for copy in copies),
        first.kind,
        companion(PROOFS_BIT),
        companion(KEY_RECORDS_BIT),
        min(copy.holding.first_received_us for copy in copies),
    )


def _check_kinds(copies: list[ServiceExtent]) -> None:
    """Raise `NoReplicas` if some copies are encrypted and others are not."""
    opened = {copy.holding.kind == OPENED: copy.holding.node for copy in copies if not copy.files}
    if len(opened) > 1:
        raise NoReplicas(
            f"the recordings of session {copies[0].holding.tsi} cannot be joined: {opened[True]} has decrypted the messages, and "
            f"{opened[False]} has not",
            remedy="select one with the option node, or read every copy: copies = each",
        )


def _check_epochs(survey: Survey) -> None:
    """Raise `NoReplicas` if copies lack an epoch, without which the upper half of an sqn is a guess."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for held in survey.held:
        nodes[held.holding.tsi].add(held.holding.node)
    for held in survey.held:
        extent = held.holding
        if extent.epoch_us is None and len(nodes[extent.tsi]) > 1:
            raise NoReplicas(
                f"the recordings of session {extent.tsi} by {', '.join(sorted(nodes[extent.tsi]))} cannot be joined: that of {extent.node} does not "
                "know the session's epoch, so its 64-bit sqns are its own guess",
                remedy="select one with the option node, or read every copy: copies = each",
            )


def _check_damage(survey: Survey, options: SourceOptions) -> None:
    """Raise `DataLoss` for damage in a group that has no undamaged service."""
    if not options.fail_on_loss:
        return
    for group in options.groups:
        damaged = [location for location in group if survey.damage.get(location)]
        if damaged and not any(location in survey.damage and not survey.damage[location] for location in group):
            raise DataLoss(
                f"{damaged[0]}: PGM-ARCHIVE-CORRUPT: {survey.damage[damaged[0]][0]}",
                remedy="restore the file, add another service (recorders = A|B), or continue without the rows: failOnDataLoss = false",
            )
