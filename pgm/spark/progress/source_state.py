"""Figures of a source at the start of a micro-batch, from the index of the archives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from pgm.spark.options import SourceOptions
from pgm.spark.sessions import ArchivedSession

STATE = "progress"  # key in the offset for monitoring; keys of sessions have an @ or a /
_US = 1_000_000


@attrs.frozen
class SourceState:
    """Figures of a source once the micro-batch that begins is read. Octets are those on disk, approximately."""

    source: str
    sessions: int
    sqns: int  # of the micro-batch
    octets: int
    lag_sqns: int  # after the micro-batch
    lag_octets: int
    lag_s: float  # from the newest row that is read to the newest one that is held

    def as_json(self) -> dict[str, Any]:
        """Return the figures with stable keys."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceState:
        """Decode the result of `as_json`, or that of another version."""
        return cls(**{field.name: value.get(field.name, 0) for field in attrs.fields(cls)})


def described(options: SourceOptions) -> str:
    """Return what a source reads, in words."""
    services = ",".join("|".join(group) for group in options.groups)
    chosen = (
        ("stream", options.streams),
        ("session", options.tsis),
        ("node", options.nodes),
        ("subject", options.subjects),
    )
    words = [f"{name} {' or '.join(names)}" for name, names in chosen if names is not None]
    return ", ".join([f"archives of {services}", *words, "each copy" if options.each_copy else "copies joined"])


def state_of(
    options: SourceOptions,
    sessions: Mapping[str, ArchivedSession],
    start: Mapping[str, int],
    end: Mapping[str, int],
    reached_us: int | None,
) -> SourceState:
    """Return the figures for a micro-batch from `start` to `end`.

    `reached_us` is the receive time of its newest row, None if it takes all rows that are held.
    """
    taken = {key: end[key] - start[key] for key in sessions if key in start and key in end}
    left = {key: one.next_sqn - end.get(key, one.oldest) for key, one in sessions.items()}
    newest_us = max((one.received_us for one in sessions.values()), default=0)
    return SourceState(
        described(options),
        len(sessions),
        sum(taken.values()),
        round(sum(count * sessions[key].octets_each for key, count in taken.items())),
        sum(left.values()),
        round(sum(count * sessions[key].octets_each for key, count in left.items())),
        0.0 if reached_us is None else max(0, newest_us - reached_us) / _US,
    )
