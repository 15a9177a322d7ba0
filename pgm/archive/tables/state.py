"""Progress of a table: what it holds of each session. It is committed together with the rows.

A session has the same key as in the offsets of Spark. The next sqn of a session is the first that the table lacks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.requests import SessionExtent

EACH, JOIN = "each", "join"  # the rows of every recording, or those of joined recordings


@attrs.frozen
class TableState:
    """Sessions of a table by key. `copies` tells whether the rows of several recordings were joined."""

    copies: str
    sessions: Mapping[str, SessionExtent] = attrs.field(factory=dict)

    def next_sqn(self, key: str) -> int | None:
        """Return the first sqn of a session that the table lacks; None for an unknown session."""
        return self.sessions[key].next_sqn if key in self.sessions else None

    def with_rows(self, added: Iterable[SessionExtent]) -> TableState:
        """Return the state after the rows of `added` extents."""
        sessions = dict(self.sessions)
        for extent in added:
            key = extent.key(each_copy=self.copies == EACH)
            sessions[key] = _joined(sessions[key], extent) if key in sessions else extent
        return TableState(self.copies, dict(sorted(sessions.items())))

    def to_json(self) -> str:
        """Return the sessions as text."""
        return json.dumps([one.as_json() for one in self.sessions.values()], separators=(",", ":"))

    @classmethod
    def from_json(cls, copies: str, text: str) -> TableState:
        """Decode the result of `to_json`. Raises ValueError, TypeError."""
        return cls(copies).with_rows(SessionExtent.from_json(one) for one in json.loads(text))


def _joined(before: SessionExtent, added: SessionExtent) -> SessionExtent:
    return attrs.evolve(
        added,
        oldest=min(before.oldest, added.oldest),
        next_sqn=max(before.next_sqn, added.next_sqn),
        rows=before.rows + added.rows,
        octets=before.octets + added.octets,
        first_received_us=min(before.first_received_us, added.first_received_us),
        last_received_us=max(before.last_received_us, added.last_received_us),
        closed=before.closed or added.closed,
    )


def extents_of(rows: pa.Table) -> list[SessionExtent]:
    """Return the extent of each recorded session among rows."""
    if not rows.num_rows:
        return []
    names = ("stream", "source", "segment")
    columns = {name: rows[name] for name in ("tsi", "epoch", "node", *names, "sqn")}
    columns |= {"end": pc.add(rows["sqn"], rows["count"]), "at": rows["received"].cast(pa.int64())}
    keys = ("tsi", "epoch", "node")
    grouped = pa.table(columns).group_by(keys, use_threads=False)
    found = grouped.aggregate(
        [
            *((name, "first") for name in names),
            ("sqn", "min"),
            ("end", "max"),
            ("sqn", "count"),
            ("at", "min"),
            ("at", "max"),
        ]
    )
    epochs = found["epoch"].cast(pa.int64()).to_pylist()
    each = rows.nbytes / rows.num_rows
    return [_extent(row, epoch, each) for row, epoch in zip(found.to_pylist(), epochs, strict=True)]


def lacked_rows(rows: pa.Table, state: TableState) -> pa.Table:
    """Return the rows that a table lacks: those from its next sqns on. A loss that begins before is cut to that sqn."""
    for extent in extents_of(rows):
        known = state.next_sqn(extent.key(each_copy=state.copies == EACH))
        if known is not None and extent.oldest < known:
            rows = _from_sqn(rows, extent, known)
    return rows


def _from_sqn(rows: pa.Table, extent: SessionExtent, first: int) -> pa.Table:
    """Return rows without those of one recorded session before a sqn."""
    epoch = pc.is_null(rows["epoch"])
    if extent.epoch_us is not None:
        epoch = pc.fill_null(pc.equal(rows["epoch"].cast(pa.int64()), extent.epoch_us), False)
    is_same_node = pc.equal(rows["node"], extent.node)
    is_early = pc.and_(
        pc.and_(pc.equal(rows["tsi"], extent.tsi), pc.and_(epoch, is_same_node)), pc.less(rows["sqn"], first)
    )
    ends = pc.add(rows["sqn"], rows["count"])
    is_cut = pc.and_(is_early, pc.and_(pc.is_valid(rows["lost"]), pc.greater(ends, first)))
    columns = {
        "sqn": pc.if_else(is_cut, first, rows["sqn"]),
        "count": pc.if_else(is_cut, pc.subtract(ends, first), rows["count"]),
    }
    for name, column in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), column)
    return rows.filter(pc.or_(is_cut, pc.invert(is_early)))


def _extent(row: dict[str, Any], epoch_us: int | None, octets_each: float) -> SessionExtent:
    return SessionExtent(
        tsi=row["tsi"],
        epoch_us=epoch_us,
        stream=row["stream_first"],
        source=row["source_first"],
        node=row["node"] or "",
        segment=row["segment_first"],
        oldest=row["sqn_min"],
        next_sqn=row["end_max"],
        rows=row["sqn_count"],
        octets=round(octets_each * row["sqn_count"]),
        first_received_us=row["at_min"],
        last_received_us=row["at_max"],
        closed=False,
    )
