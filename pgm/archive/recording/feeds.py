"""What is recorded, as its rows name it: sessions, and how a node's deliveries become theirs. Nothing here needs Arrow."""

from __future__ import annotations

import json

import attrs

from pgm.archive.session import RecordedSession
from pgm.core.session.state import SessionState
from pgm.wire.formats import Tsi, tsi_text


@attrs.frozen
class RowNames:
    """How the rows name what a node records: its own name, its segment, and by data port its streams and their sources."""

    node: str
    segment: str | None
    streams: dict[int, str] = attrs.Factory(dict)
    sources: dict[int, str] = attrs.Factory(dict)
    batched: frozenset[int] = frozenset()  # data ports of streams with batches


@attrs.frozen(eq=False)
class SessionFeed:
    """One session as the protocol delivers it. `shift` makes the node's own sqns those of the source."""

    session: RecordedSession
    shift: int = 0
    has_batches: bool = False  # messages share packets and have subjects (framing = "batch")

    def to_bytes(self) -> bytes:
        """As it goes to the writing process."""
        return json.dumps(attrs.asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, octets: bytes) -> SessionFeed:
        """Read it there."""
        told = json.loads(octets)
        return cls(RecordedSession(**told["session"]), told["shift"], told["has_batches"])


def feed_of(tsi: Tsi, path: SessionState | None, names: RowNames) -> SessionFeed:
    """How a session is recorded, by what is known of it now."""
    if path is None:  # it was evicted before anything came of it
        return SessionFeed(RecordedSession(tsi_text(tsi), node=names.node, segment=names.segment))
    epoch_us = None if path.started_ns is None or path.epoch_shift is None else path.started_ns // 1000
    session = RecordedSession(
        tsi=tsi_text(tsi),
        epoch_us=epoch_us,
        stream=names.streams.get(path.data_port),
        source=names.sources.get(path.data_port),
        node=names.node,
        segment=names.segment,
    )
    return SessionFeed(session, (path.epoch_shift or 0) if epoch_us is not None else 0, path.data_port in names.batched)
