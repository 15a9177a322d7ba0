"""Sessions as Spark sees them: who has which sqns, and under which key the offsets count them.

The sqns of two recorders are the same numbers only if both know the epoch of the session, and the epochs are equal. So a key is
`TSI@EPOCH` with the epoch in microseconds; where each copy counts, or the epoch is unknown, the node is part of it.
"""

from __future__ import annotations

from collections import defaultdict

import attrs

from pgm.spark.errors import DataLoss, NoReplicas
from pgm.spark.options import SourceOptions
from pgm.spark.recorders import ServiceExtent, Survey


@attrs.frozen
class SessionReplica:
    """One service that holds a session of one node, from `oldest` to `next_sqn` - 1."""

    location: str
    node: str
    oldest: int
    next_sqn: int


@attrs.frozen
class ArchivedSession:
    """What is held of one session, at all places together."""

    key: str
    tsi: str
    epoch_us: int | None
    places: tuple[SessionReplica, ...]
    octets: int  # of the largest copy, on disk
    closed: bool

    @property
    def oldest(self) -> int:
        """The first sqn that anybody holds."""
        return min(one.oldest for one in self.places)

    @property
    def next_sqn(self) -> int:
        """The sqn behind the last that anybody holds."""
        return max(one.next_sqn for one in self.places)

    @property
    def octets_each(self) -> float:
        """About how many octets stand for an sqn."""
        return self.octets / max(1, max(one.next_sqn - one.oldest for one in self.places))


def key_of(held: ServiceExtent, *, each_copy: bool) -> str:
    """The key of a session in offsets."""
    one = held.holding
    if one.epoch_us is None:
        return f"{one.tsi}/{one.node}"
    return f"{one.tsi}@{one.epoch_us}/{one.node}" if each_copy else f"{one.tsi}@{one.epoch_us}"


def sessions_of(survey: Survey, options: SourceOptions) -> dict[str, ArchivedSession]:
    """All sessions by key, keys sorted. Raises `NoReplicas`, and `DataLoss` for damage that no other copy mends."""
    _check_damage(survey, options)
    if not options.each_copy:
        _check_epochs(survey)
    by_key: dict[str, list[ServiceExtent]] = defaultdict(list)
    for held in survey.held:
        by_key[key_of(held, each_copy=options.each_copy)].append(held)
    return {key: _session(key, by_key[key]) for key in sorted(by_key)}


def _session(key: str, copies: list[ServiceExtent]) -> ArchivedSession:
    first = copies[0].holding
    places = tuple(
        SessionReplica(one.location, one.holding.node, one.holding.oldest, one.holding.next_sqn) for one in copies
    )
    next_sqn = max(one.next_sqn for one in places)
    return ArchivedSession(
        key,
        first.tsi,
        first.epoch_us,
        places,
        max(one.holding.octets for one in copies),
        any(one.holding.closed and one.holding.next_sqn == next_sqn for one in copies),
    )


def _check_epochs(survey: Survey) -> None:
    """Without an epoch the upper half of an sqn is a guess of the recorder's own."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for held in survey.held:
        nodes[held.holding.tsi].add(held.holding.node)
    for held in survey.held:
        one = held.holding
        if one.epoch_us is None and len(nodes[one.tsi]) > 1:
            raise NoReplicas(
                f"the recordings of session {one.tsi} by {', '.join(sorted(nodes[one.tsi]))} cannot be joined: that of {one.node} does not "
                "know the session's epoch, so its 64-bit sqns are its own guess",
                remedy="choose one with the option node, or let every copy count: copies = each",
            )


def _check_damage(survey: Survey, options: SourceOptions) -> None:
    """Damage that a service found: another service of the group must be sound."""
    if not options.fail_on_loss:
        return
    for group in options.groups:
        damaged = [one for one in group if survey.damage.get(one)]
        if damaged and not any(one in survey.damage and not survey.damage[one] for one in group):
            raise DataLoss(
                f"{damaged[0]}: PGM-ARCHIVE-CORRUPT: {survey.damage[damaged[0]][0]}",
                remedy="restore the file, name a service that stands in (recorders = A|B), or go on without the rows: failOnDataLoss = false",
            )
