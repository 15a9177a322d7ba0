"""Rows with the column `verified`: whether their source has said them, by the proofs of a signed stream."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pyarrow as pa

from pgm.archive.requests import ACTION_SQN_AT
from pgm.archive.session import OPENED
from pgm.archive.store.selection import matching_subjects
from pgm.errors import KeyRefused
from pgm.own_files import forbid_core_dumps, read_own_file
from pgm.spark.errors import BadOption, RecorderDown, RecorderRefused
from pgm.spark.options import VERIFIED, SourceOptions
from pgm.spark.ranges import RangePiece, RangeReader, SessionSpan, pieces_of
from pgm.spark.recorders import ask
from pgm.spark.sessions import ArchivedSession

if TYPE_CHECKING:
    from pgm.archive.signatures.session_secrets import SessionSecrets
    from pgm.trust.public_keys import PublicKeys

_log = logging.getLogger("pgm.spark")
_PROOF_COLUMNS = ("sqn", "lost", "value")
_US = 1_000_000
_KNOWN_S = 1.0  # an end by time is not asked for again for this long
_MOST_KNOWN = 4096

_ends: dict[tuple[str, int], int] = {}  # (key, next sqn) of a session of proofs -> the end of its newest proof
_late: dict[str, tuple[float, int]] = {}  # key of a session -> when its end by time was asked for, and the end


class RowReader:
    """Reader of one partition, with the column `verified` if it is wanted."""

    def __init__(self, piece: RangePiece, options: SourceOptions) -> None:
        self._piece = piece
        self._options = options

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of the columns. Raises `BadOption`, and the errors of `RangeReader.batches`."""
        if VERIFIED not in self._options.columns and self._options.key_file is None:
            yield from RangeReader(self._piece, self._options).batches()
        elif self._is_signed:
            try:
                yield from self._judged()
            except ImportError as error:
                raise BadOption(
                    f"option signatures: an executor lacks {error.name}",
                    remedy="install it on all executors: pip install 'pgm-repair-network[trust]'",
                ) from None
        else:
            stored = tuple(name for name in self._options.columns if name != VERIFIED) or ("sqn",)
            for batch in RangeReader(self._piece, attrs.evolve(self._options, columns=stored)).batches():
                yield self._with_verified(batch, pa.nulls(batch.num_rows, pa.bool_()))

    @property
    def _is_signed(self) -> bool:
        by = self._options.authority
        return by is not None and by.is_signed(self._piece.session.stream)

    def _judged(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a signed stream, each with its verdict."""
        from pgm.archive.signatures.checked_range import HeldRows, checked_range
        from pgm.archive.signatures.opened_rows import opened_rows
        from pgm.archive.signatures.row_check import RowCheck, RowVerdict
        from pgm.archive.signatures.row_packets import NEEDED
        from pgm.archive.signatures.session_proofs import SessionProofs, octets_of, tsi_octets

        piece, by = self._piece, self._options.authority
        assert by is not None
        session = piece.session
        tsi = tsi_octets(session.tsi)
        keys = by.keys_for(tsi, session.stream, session.source)
        proofs = SessionProofs(tsi, session.epoch_us, keys, by.revoked)
        is_opened = session.kind == OPENED
        secrets = _secrets(session, keys, self._options) if by.is_sealed(session.stream) else None
        spans = proofs.spans(octets_of(_proofs_from(session, piece.first, self._options)))
        check = RowCheck(
            (span for span in spans if span.end > piece.first),
            is_batched=by.is_batched(session.stream, is_opened=is_opened),
            is_opened=is_opened,
            secrets=secrets,
        )
        stored = tuple(name for name in self._options.columns if name != VERIFIED)
        options = attrs.evolve(self._options, columns=tuple(dict.fromkeys((*stored, *NEEDED))), subjects=None)

        def read(first: int, end: int) -> Iterator[pa.RecordBatch]:
            if (first, end) == (piece.first, piece.end):
                return RangeReader(piece, options).batches()
            return _rows(session, first, end, options)

        for judged in checked_range(HeldRows(read, session.oldest, session.next_sqn), check, piece.first, piece.end):
            if secrets is not None and not is_opened:
                judged = opened_rows(judged, secrets, has_batches=by.has_batches(session.stream))
            verdicts = judged.verdicts
            verified = pa.array(verdicts == RowVerdict.PROVED, mask=np.asarray(verdicts == RowVerdict.LOSS))
            yield from self._of_subjects(judged.rows, verified)
        for reason, count in proofs.rejects.items():
            _log.warning("session %s: %d proofs do not count: %s", session.key, count, reason)

    def _of_subjects(self, rows: pa.RecordBatch, verified: pa.Array) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the chosen subjects, and all losses."""
        wanted = self._options.subjects
        if wanted is not None:
            chosen = matching_subjects(wanted, rows.column("subject"), rows.column("lost"))
            rows, verified = rows.filter(chosen), verified.filter(chosen)
        if rows.num_rows:
            yield self._with_verified(rows, verified)

    def _with_verified(self, rows: pa.RecordBatch, verified: pa.Array) -> pa.RecordBatch:
        names = self._options.columns
        columns = [verified if name == VERIFIED else rows.column(name) for name in names]
        return pa.RecordBatch.from_arrays(columns, list(names))


def _secrets(
    session: ArchivedSession, sources: Mapping[str, PublicKeys], options: SourceOptions
) -> SessionSecrets | None:
    """Return the secrets that the key file opens; None without a key file. Raises `BadOption`."""
    from pgm.archive.signatures.session_proofs import octets_of, tsi_octets
    from pgm.archive.signatures.session_secrets import SessionSecrets
    from pgm.trust.private_keys import MOST_OCTETS, parse_private_file

    if options.key_file is None:
        return None
    forbid_core_dumps()  # before the octets are in memory
    try:
        path = Path(options.key_file)
        keys = parse_private_file(read_own_file(path, MOST_OCTETS), str(path)).keys
    except KeyRefused as error:
        raise BadOption(f"option keys: {error.message}", remedy=error.remedy) from None
    secrets = SessionSecrets(tsi_octets(session.tsi), session.epoch_us, sources, keys)
    held = session.key_records
    if held is not None:
        options = attrs.evolve(options, columns=_PROOF_COLUMNS, subjects=None)
        secrets.take(octets_of(_rows(held, held.oldest, held.next_sqn, options)))
    return secrets


def _rows(session: ArchivedSession, first: int, end: int, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range that any service holds."""
    options = attrs.evolve(options, fail_on_loss=False, least_partitions=1)
    for piece in pieces_of([SessionSpan(session, first, end)], options):
        yield from RangeReader(piece, options).batches()


def _proofs_from(session: ArchivedSession, first: int, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield rows of proofs that begin with the one for a sqn, or before."""
    from pgm.archive.signatures.session_proofs import position_of

    held = session.proofs
    if held is None:
        return
    options = attrs.evolve(options, columns=_PROOF_COLUMNS, subjects=None)

    def read(begin: int, end: int) -> Iterator[pa.RecordBatch]:
        return _rows(held, begin, end, options)

    yield from read(position_of(first, read, held.oldest, held.next_sqn), held.next_sqn)


def proven_sessions(sessions: Mapping[str, ArchivedSession], options: SourceOptions) -> dict[str, ArchivedSession]:
    """Return sessions whose ends wait for proofs, such that no new row is judged before its proof is on the disk.

    Rows that are older than `proofSeconds` do not wait. Raises `RecorderDown`, `RecorderRefused`.
    """
    if options.authority is None or (VERIFIED not in options.columns and options.key_file is None):
        return dict(sessions)
    signed = options.authority.streams
    return {key: _proven(one, options) if one.stream in signed else one for key, one in sessions.items()}


def _proven(session: ArchivedSession, options: SourceOptions) -> ArchivedSession:
    end = session.next_sqn
    if time.time_ns() // 1000 - session.received_us >= options.proof_s * _US:
        return session
    proven = _newest_proof(session, options)
    if proven < end:
        proven = max(proven, _end_by_time(session, options))
    return session if proven >= end else session.ending_at(max(proven, session.oldest))


def _newest_proof(session: ArchivedSession, options: SourceOptions) -> int:
    from pgm.archive.signatures.session_proofs import proven_end

    held = session.proofs
    if held is None:
        return 0
    place = held.key, held.next_sqn
    if place not in _ends:
        if len(_ends) >= _MOST_KNOWN:
            _ends.clear()
        options = attrs.evolve(options, columns=_PROOF_COLUMNS, subjects=None)
        _ends[place] = proven_end(lambda first, end: _rows(held, first, end, options), held.oldest, held.next_sqn)
    return _ends[place]


def _end_by_time(session: ArchivedSession, options: SourceOptions) -> int:
    """Return the first sqn that was received within the last `proofSeconds`."""
    now = time.monotonic()
    asked_at, end = _late.get(session.key, (-_KNOWN_S, 0))
    if now - asked_at < _KNOWN_S:
        return end
    request = {"time_us": time.time_ns() // 1000 - int(options.proof_s * _US), "tsi": session.tsi}
    for place in session.places:
        try:
            answer = ask(options, place.location, ACTION_SQN_AT, request)
        except (RecorderDown, RecorderRefused):
            continue
        for one in answer["sqns"]:
            if (one["epoch_us"], one.get("node")) == (session.epoch_us, place.node):
                end = max(end, int(one["sqn"]))
    if len(_late) >= _MOST_KNOWN:
        _late.clear()
    _late[session.key] = now, end
    return end
