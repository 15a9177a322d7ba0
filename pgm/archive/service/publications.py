"""Publishing what clients put: at once, or in batches that are published once however often they are asked for.

A batch is put as attempts, of which each is kept in memory; the action `publish_batch` names the attempts that count, and the writer and
number of the batch. Numbers of a writer ascend: one that is not above the last was published before, and is left alone. A file
remembers them over restarts. What is begun is finished: the rows of a batch are on the disk before the first goes out, and so is
where it goes; a service that was killed goes on with the rows of which it is not known that they left, and remembers which of
them a session may have sent before.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa

from pgm.archive.errors import ArchiveError, BadRequest, NotStaged
from pgm.archive.requests import ACTION_DISCARD, ACTION_PUBLISHED
from pgm.archive.service.publication_journal import PendingPublication, PublicationJournal, PublicationStep
from pgm.parameters import Parameters

Publish = Callable[[str, Sequence[bytes]], None]  # stream, messages; waits while the source is busy
Where = Callable[
    [], tuple[str, int]
]  # waits until everything has left; the session (TSI), and the sqn of what comes next

_MOST_WRITERS = 10_000  # that are remembered; the one that published longest ago goes first
_CHUNK = 4096  # messages that are handed to the source at once, and may come twice after a kill
_MOST_REPEATS = 1000  # that are remembered, the newest


@attrs.define(eq=False)
class _Attempt:
    values: list[pa.Array] = attrs.field(factory=list)
    octets: int = 0
    touched_ns: int = 0


def _warn(text: str) -> None:
    print(f"publish-again: {text}", file=sys.stderr, flush=True)


class Publications:
    """Attempts that wait, what is on its way, and what was published. For any number of threads."""

    def __init__(
        self,
        publish: Publish,
        state: Path | None,
        parameters: Parameters,
        log: Callable[[str], None] = _warn,
        where: Where | None = None,
    ) -> None:
        """Read the file that remembers; without one nothing is remembered. Raises `ArchiveError`."""
        self._publish = publish
        self._where: Where = where if where is not None else lambda: ("", 0)
        self._state = state
        self._journal = PublicationJournal(state.with_name(state.name + ".batch")) if state is not None else None
        self._parameters = parameters
        self._log = log
        self._lock = threading.Lock()
        self._publishing = threading.Lock()  # one batch at a time
        self._attempts: dict[str, _Attempt] = {}
        self._writers: dict[str, int] = {}  # writer -> the last batch; oldest first
        self._repeats: list[dict[str, Any]] = []
        if state is not None and state.exists():
            try:
                told = json.loads(state.read_bytes())
                self._writers = {name: int(batch) for name, batch in told["writers"].items()}
                self._repeats = list(told["repeats"])
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ArchiveError(
                    f"{state} does not say which batches were published: {error}",
                    remedy="restore it, or remove it: then a batch that is repeated is published again",
                ) from None

    # Attempts

    def stage(self, name: str, values: pa.Array) -> None:
        """Keep rows of an attempt. Raises `BadRequest` where there is no room."""
        with self._lock:
            self._expire()
            held = sum(one.octets for one in self._attempts.values())
            if held + values.nbytes > self._parameters.archive_stage_bytes:
                raise BadRequest(
                    f"{held} octets wait to be published already",
                    remedy="put smaller batches (maxOffsetsPerTrigger), or raise archive_stage_bytes",
                )
            one = self._attempts.setdefault(name, _Attempt())
            one.values.append(values)
            one.octets += values.nbytes
            one.touched_ns = time.monotonic_ns()

    def _expire(self) -> None:
        oldest = time.monotonic_ns() - self._parameters.archive_stage_ivl
        for name in [name for name, one in self._attempts.items() if one.touched_ns < oldest]:
            del self._attempts[name]

    # Batches

    def do(self, action: str, asked: dict[str, Any]) -> dict[str, Any]:
        """`publish_batch`, `discard_batch` or `published`. Raises `BadRequest`, `NotStaged`, `ArchiveError`."""
        if action == ACTION_PUBLISHED:
            return {"writers": dict(self._writers), "repeats": list(self._repeats)}
        names = asked.get("attempts", [])
        if not isinstance(names, list):
            raise BadRequest("attempts is no list", remedy="name the attempts in their order")
        if action == ACTION_DISCARD:
            self._discard(names)
            return {"discarded": len(names)}
        writer, batch = asked.get("writer"), asked.get("batch")
        if not isinstance(writer, str) or not writer or not isinstance(batch, int):
            raise BadRequest("writer or batch is missing", remedy="writer is a text, batch a whole number")
        with self._publishing:
            self._finish()
            return self._publish_batch(str(asked.get("stream", "")), writer, batch, names)

    def publish(self, stream: str, values: Sequence[bytes]) -> None:
        """Publish what belongs to no batch."""
        with self._publishing:
            self._finish()
            self._publish(stream, values)

    def finish(self) -> None:
        """Publish the rest of a batch that was begun before a restart. Raises `ArchiveError`, and what the source raises."""
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
                    remedy="put it again: the service was started anew, or it waited longer than archive_stage_ivl",
                )
            values = [value for name in names for value in self._attempts[name].values]
        rows = pa.chunked_array(values, pa.binary())
        if self._journal is not None:
            self._journal.begin(writer, batch, stream, rows)
        self._send(PendingPublication(writer, batch, stream, rows, None))
        self._discard(names)
        return {"published": len(rows), "repeated": False}

    def _finish(self) -> None:
        """Go on with the batch that was begun, if there is one."""
        begun = self._journal.read() if self._journal is not None else None
        if begun is None:
            return
        if begun.batch > self._writers.get(begun.writer, -1):
            if begun.last is not None:
                self._tell_repeat(begun, begun.last)
            self._send(begun)
        elif self._journal is not None:
            self._journal.end()

    def _tell_repeat(self, begun: PendingPublication, last: PublicationStep) -> None:
        """Remember what may come again, before it does."""
        tsi, sqn = self._where()
        end = sqn if tsi == last.tsi else None
        repeat = {"tsi": last.tsi, "first": last.sqn, "end": end, "writer": begun.writer, "batch": begun.batch}
        repeat |= {"row": last.row, "rows": last.to - last.row, "again": {"tsi": tsi, "first": sqn}}
        known = [one for one in self._repeats if (one["tsi"], one["first"]) != (last.tsi, last.sqn)]
        self._repeats = [*known, repeat][-_MOST_REPEATS:]
        self._remember()
        self._log(
            f"batch {begun.batch} of {begun.writer} goes on at row {last.row}: what session {last.tsi} sent from sqn {last.sqn} on "
            f"comes again in session {tsi} from sqn {sqn} on"
        )

    def _send(self, begun: PendingPublication) -> None:
        """Publish a batch from where it is, and remember that it was."""
        start = begun.last.row if begun.last is not None else 0
        for row in range(start, len(begun.values), _CHUNK):
            part = begun.values.slice(row, _CHUNK)
            if self._journal is not None:
                self._journal.step(PublicationStep(row, row + len(part), *self._where()))
            self._publish(begun.stream, part.to_pylist())
        self._where()
        self._writers.pop(begun.writer, None)
        self._writers[begun.writer] = begun.batch
        while len(self._writers) > _MOST_WRITERS:
            del self._writers[next(iter(self._writers))]
        self._remember()
        if self._journal is not None:
            self._journal.end()

    def _remember(self) -> None:
        """Onto the disk before anything else happens."""
        if self._state is None:
            return
        new = self._state.with_name(self._state.name + ".new")
        try:
            with new.open("wb") as file:
                file.write(json.dumps({"writers": self._writers, "repeats": self._repeats}).encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._state)
        except OSError as error:
            raise ArchiveError(
                f"{self._state}: {error.strerror}; batches are not published",
                remedy="make room, or name another file with --publish-state",
            ) from error
