"""Names of recorded sessions, and the feed that describes a session. Nothing here needs Arrow."""

from __future__ import annotations

import json

import attrs

from pgm.archive.session import (
    COMPANIONS,
    KEY_RECORDS,
    MESSAGES,
    OPENED,
    PROOFS,
    SIGNED,
    ReachedSession,
    RecordedSession,
)
from pgm.core.session.key_records import key_port
from pgm.core.session.proofs import proof_port
from pgm.core.session.state import NO_EPOCH, SessionState
from pgm.core.source_names import node_of
from pgm.wire.formats import Tsi, tsi_text


@attrs.frozen
class RowNames:
    """Names that a node's rows carry: node, segment, and streams by data port."""

    node: str
    segment: str | None
    streams: dict[int, str] = attrs.Factory(dict)
    batched: frozenset[int] = frozenset()  # data ports of streams with batches
    signed: frozenset[int] = frozenset()  # data ports of streams whose packets are proved
    sealed: frozenset[int] = frozenset()  # data ports of sealed streams
    opened: frozenset[int] = frozenset()  # data ports of sealed streams that the node decrypts

    def kind_of(self, port: int) -> tuple[int, str]:
        """Return the data port of the stream that a session belongs to, and the kind of the session."""
        for companion, kind, of in (proof_port(port), PROOFS, self.signed), (key_port(port), KEY_RECORDS, self.sealed):
            if port not in self.streams and companion in of:
                return companion, kind
        return port, OPENED if port in self.opened else SIGNED if port in self.signed else MESSAGES


@attrs.frozen(eq=False)
class SessionFeed:
    """Session as the protocol delivers it. `shift` is added to the node's own sqns to get those of the source."""

    session: RecordedSession
    shift: int = 0
    has_batches: bool = False  # messages share packets and have subjects (framing = "batch")

    def reached(self, end: int) -> ReachedSession:
        """Return the session as one that has ended, before the node's own sqn `end`."""
        return ReachedSession(self.session.tsi, self.session.epoch_us, end + self.shift, is_closed=True)

    def to_bytes(self) -> bytes:
        """Encode the feed for the writer process."""
        return json.dumps(attrs.asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, octets: bytes) -> SessionFeed:
        """Decode a feed in the writer process."""
        fields = json.loads(octets)
        return cls(RecordedSession(**fields["session"]), fields["shift"], fields["has_batches"])


def feed_of(tsi: Tsi, path: SessionState | None, names: RowNames) -> SessionFeed:
    """Return the feed that describes a session by its present state."""
    if path is None:  # the session was evicted before any of its data was delivered
        return SessionFeed(RecordedSession(tsi_text(tsi), node=names.node, segment=names.segment))
    port, kind = names.kind_of(path.data_port)
    session = RecordedSession(
        tsi=tsi_text(tsi),
        epoch_us=None if path.epoch is NO_EPOCH else path.epoch.started_ns // 1000,
        stream=names.streams.get(port),
        source=node_of(path.tsi) or None,
        node=names.node,
        segment=names.segment,
        kind=kind,
    )
    return SessionFeed(session, path.epoch.shift, kind not in COMPANIONS and port in names.batched)
