"""Publication of client rows, at once or in batches that are published once.

A batch is put as attempts, which stay in memory. The action `publish_batch` names the valid attempts, the writer, and
the writer's batch number. Batch numbers of a writer ascend. A number not above the last was published before, and is
ignored.

A file keeps these numbers over restarts. The rows of a batch, and each step of the publication, are on disk before the
rows are sent. A service that was killed resumes with the rows not known to be sent. The file also records which rows a
session may have sent twice.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from pgm.archive.errors import ArchiveError, BadRequest, NotStaged
from pgm.archive.requests import ACTION_DISCARD, ACTION_PUBLISHED
from pgm.archive.service.publication_journal import (
    PUBLISHED,
    PendingPublication,
    PublicationJournal,
    PublicationStep,
)
from pgm.errors import UsageError
from pgm.messages.arguments import require_node
from pgm.messages.subjects import require_absolute
from pgm.own_files import replace_synced
from pgm.parameters import Parameters
from pgm.telemetry.logger import log_line

Publish = Callable[[str, pa.Table], None]  # stream, rows of `PUBLISHED`; blocks while the source is busy
# Blocks until all messages have left; returns the session (TSI) and the next sqn.
Where = Callable[[], tuple[str, int]]

_MAX_WRITERS = 10_000  # writers remembered; the writer with the oldest publication is dropped first
_CHUNK = 4096  # messages handed to the source at once, which may be sent twice after a kill
_MAX_REPEATS = 1000  # repeats remembered, the newest


@attrs.frozen
class PublicationTarget:
    """Source that publishes the rows of clients.

    `state` is the file that records published batches; without one, no batch number is remembered. `where` returns the
    session and the next sqn of the source. `has_names` tells whether messages may have subjects and destination nodes.
    """

    publish: Publish
    state: Path | None = None
    where: Where | None = None
    has_names: bool = True


@attrs.define(eq=False)
class _Attempt:
    rows: list[pa.Table] = attrs.field(factory=list)
    octets: int = 0
    touched_ns: int = 0


def _warn(text: str) -> None:
    log_line("publish-again", text)


class Publications:
    """Staged attempts, the batch in progress, and the numbers already published. Any thread may call the methods."""

    def __init__(self, target: PublicationTarget, parameters: Parameters, log: Callable[[str], None] = _warn) -> None:
        """Read the state file of the target. Raises `ArchiveError`."""
        state = target.state
        self._publish = target.publish
        self._has_names = target.has_names
        self._where: Where = target.where if target.where is not None else lambda: ("", 0)
        self._state = state
        self._journal = PublicationJournal(state.with_name(state.name + ".batch")) if state is not None else None
        self._parameters = parameters
        self._log = log
        self._lock = threading.Lock()
        self._publishing = threading.Lock()  # one batch at a time
        self._attempts: dict[str, _Attempt] = {}
        self._writers: dict[str, int] = {}  # writer -> number of the last batch; oldest publication first
        self._repeats: list[dict[str, Any]] = []
        if state is not None and state.exists():
            try:
                remembered = json.loads(state.read_bytes())
                self._writers = {name: int(batch) for name, batch in remembered["writers"].items()}
                self._repeats = list(remembered["repeats"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ArchiveError(
                    f"{state} does not say which batches were published: {error}",
                    remedy="restore it, or remove it: a batch that is put again is then published again",
                ) from None

    # Attempts

    def stage(self, name: str, rows: pa.Table) -> None:
        """Stage rows of an attempt. Raises `BadRequest` for invalid names, and if there is no room."""
        self._check_names(rows)
        with self._lock:
            self._expire()
            held_octets = sum(attempt.octets for attempt in self._attempts.values())
            if held_octets + rows.nbytes > self._parameters.archive_stage_bytes:
                raise BadRequest(
                    f"{held_octets} octets wait to be published already",
                    remedy="put smaller batches (maxOffsetsPerTrigger), or raise archive_stage_bytes",
                )
            attempt = self._attempts.setdefault(name, _Attempt())
            attempt.rows.append(rows)
            attempt.octets += rows.nbytes
            attempt.touched_ns = time.monotonic_ns()

    def _expire(self) -> None:
        oldest = time.monotonic_ns() - self._parameters.archive_stage_ivl
        for name in [name for name, attempt in self._attempts.items() if attempt.touched_ns < oldest]:
            del self._attempts[name]

    # Batches

    def do(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        """Perform `publish_batch`, `discard_batch` or `published`. Raises `BadRequest`, `NotStaged`, `ArchiveError`."""
        if action == ACTION_PUBLISHED:
            return {"writers": dict(self._writers), "repeats": list(self._repeats)}
        names = request.get("attempts", [])
        if not isinstance(names, list):
            raise BadRequest("attempts is no list", remedy="name the attempts in their order")
        if action == ACTION_DISCARD:
            self._discard(names)
            return {"discarded": len(names)}
        writer, batch = request.get("writer"), request.get("batch")
        if not isinstance(writer, str) or not writer or not isinstance(batch, int):
            raise BadRequest("writer or batch is missing", remedy="writer is a text, batch a whole number")
        with self._publishing:
            self._finish()
            return self._publish_batch(str(request.get("stream", "")), writer, batch, names)

    def publish(self, stream: str, rows: pa.Table) -> None:
        """Publish rows that belong to no batch. Raises `BadRequest` for invalid names."""
        self._check_names(rows)
        with self._publishing:
            self._finish()
            self._publish(stream, rows)

    def _check_names(self, rows: pa.Table) -> None:
        """Raise `BadRequest` for names that the source would refuse: a begun batch must not fail."""
        for column, check in (("subject", require_absolute), ("to", require_node)):
            names = pc.unique(rows[column].drop_null()).to_pylist()
            if names and not self._has_names:
                raise BadRequest(
                    f"the rows have the column {column}, and the messages of this stream have none",
                    remedy='leave out the column, or publish on a stream with framing = "batch"',
                )
            try:
                for name in names:
                    check(name)
            except UsageError as error:
                raise BadRequest(f"column {column}: {error.message}", remedy=error.remedy) from None

    def finish(self) -> None:
        """Publish the rest of a batch begun before a restart. Raises `ArchiveError`, and the source's errors."""
        with self._publishing:
            self._finish()

    def _discard(self, names: list[str]) -> None:
        with self._lock:
            for name in names:
                self._attempts.pop(name, None)

    def _publish_batch(self, stream: str, writer: str, batch: int, names: list[str]) -> dict[str, Any]:
        if batch <= self._writers.get(writer, -1):
            self._discard(names)
            return {"published": 0, "repeated": True}
        with self._lock:
            missing = [name for name in names if name not in self._attempts]
            if missing:
                raise NotStaged(
                    f"batch {batch} of {writer} is not here: {len(missing)} of {len(names)} attempts are missing",
                    remedy="put it again: the service was restarted, or the attempt expired after archive_stage_ivl",
                )
            rows = pa.concat_tables(
                [PUBLISHED.empty_table(), *(part for name in names for part in self._attempts[name].rows)]
            )
        if self._journal is not None:
            self._journal.begin(writer, batch, stream, rows)
        self._send(PendingPublication(writer, batch, stream, rows, None))
        self._discard(names)
        return {"published": len(rows), "repeated": False}

    def _finish(self) -> None:
        """Resume the batch in the journal, if there is one."""
        pending = self._journal.read() if self._journal is not None else None
        if pending is None:
            return
        if pending.batch > self._writers.get(pending.writer, -1):
            if pending.last is not None:
                self._record_repeat(pending, pending.last)
            self._send(pending)
        elif self._journal is not None:
            self._journal.end()

    def _record_repeat(self, pending: PendingPublication, last: PublicationStep) -> None:
        """Record which rows may be sent twice, before that happens."""
        tsi, sqn = self._where()
        end = sqn if tsi == last.tsi else None
        repeat = {"tsi": last.tsi, "first": last.sqn, "end": end, "writer": pending.writer, "batch": pending.batch}
        repeat |= {"row": last.row, "rows": last.to - last.row, "again": {"tsi": tsi, "first": sqn}}
        others = [other for other in self._repeats if (other["tsi"], other["first"]) != (last.tsi, last.sqn)]
        self._repeats = [*others, repeat][-_MAX_REPEATS:]
        self._remember()
        self._log(
            f"batch {pending.batch} of {pending.writer} resumes at row {last.row}: rows that session {last.tsi} sent from sqn {last.sqn} on "
            f"come again in session {tsi} from sqn {sqn} on"
        )

    def _send(self, pending: PendingPublication) -> None:
        """Publish a batch from its last step, then record its number."""
        start = pending.last.row if pending.last is not None else 0
        for row in range(start, len(pending.rows), _CHUNK):
            part = pending.rows.slice(row, _CHUNK)
            if self._journal is not None:
                self._journal.step(PublicationStep(row, row + len(part), *self._where()))
            self._publish(pending.stream, part)
        self._where()
        self._writers.pop(pending.writer, None)
        self._writers[pending.writer] = pending.batch
        while len(self._writers) > _MAX_WRITERS:
            del self._writers[next(iter(self._writers))]
        self._remember()
        if self._journal is not None:
            self._journal.end()

    def _remember(self) -> None:
        """Write the state file, and sync it."""
        if self._state is None:
            return
        try:
            replace_synced(self._state, json.dumps({"writers": self._writers, "repeats": self._repeats}).encode())
        except OSError as error:
            raise ArchiveError(
                f"{self._state}: {error.strerror}; batches are not published",
                remedy="make room, or name another file with --publish-state",
            ) from error
