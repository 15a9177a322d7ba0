"""Publishing what clients put: at once, or in batches that are published once however often they are asked for.

A batch is put as attempts, of which each is kept in memory; the action `publish_batch` names the attempts that count, and the writer and
number of the batch. Numbers of a writer ascend: one that is not above the last was published before, and is left alone. A file
remembers them over restarts.
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
from pgm.archive.requests import ACTION_DISCARD
from pgm.parameters import Parameters

Publish = Callable[[str, Sequence[bytes]], None]  # stream, messages; waits while the source is busy

_MOST_WRITERS = 10_000  # that are remembered; the one that published longest ago goes first
_CHUNK = 4096  # messages that are handed to the source at once


@attrs.define(eq=False)
class _Attempt:
    values: list[pa.Array] = attrs.field(factory=list)
    octets: int = 0
    touched_ns: int = 0


def _warn(text: str) -> None:
    print(f"publish-again: {text}", file=sys.stderr, flush=True)


class Publications:
    """Attempts that wait, and what was published. For any number of threads."""

    def __init__(
        self,
        publish: Publish,
        state: Path | None,
        parameters: Parameters,
        log: Callable[[str], None] = _warn,
    ) -> None:
        """Read the file that remembers; without one nothing is remembered. Raises `ArchiveError`."""
        self.publish = publish
        self._state = state
        self._parameters = parameters
        self._log = log
        self._lock = threading.Lock()
        self._publishing = threading.Lock()  # one batch at a time
        self._attempts: dict[str, _Attempt] = {}
        self._writers: dict[str, dict[str, Any]] = {}  # writer -> the last batch, and whether it is done; oldest first
        if state is not None and state.exists():
            try:
                self._writers = dict(json.loads(state.read_bytes())["writers"])
            except (OSError, ValueError, KeyError, TypeError) as error:
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
        """`publish_batch` or `discard_batch`. Raises `BadRequest`, `NotStaged`."""
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
            return self._publish_batch(str(asked.get("stream", "")), writer, batch, names)

    def _discard(self, names: list[str]) -> None:
        with self._lock:
            for name in names:
                self._attempts.pop(name, None)

    def _publish_batch(self, stream: str, writer: str, batch: int, names: list[str]) -> dict[str, Any]:
        last = self._writers.get(writer)
        if last is not None and batch <= last["batch"] and last["done"]:
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
        if last is not None and batch == last["batch"]:
            self._log(f"batch {batch} of {writer} was begun before and never ended: part of it may come twice")
        self._remember(writer, batch, is_done=False)
        count = 0
        for value in values:
            for at in range(0, len(value), _CHUNK):
                self.publish(stream, value.slice(at, _CHUNK).to_pylist())
            count += len(value)
        self._remember(writer, batch, is_done=True)
        self._discard(names)
        return {"published": count, "repeated": False}

    def _remember(self, writer: str, batch: int, *, is_done: bool) -> None:
        """Onto the disk before anything else happens."""
        self._writers.pop(writer, None)
        self._writers[writer] = {"batch": batch, "done": is_done}
        while len(self._writers) > _MOST_WRITERS:
            del self._writers[next(iter(self._writers))]
        if self._state is None:
            return
        new = self._state.with_name(self._state.name + ".new")
        try:
            with new.open("wb") as file:
                file.write(json.dumps({"writers": self._writers}).encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._state)
        except OSError as error:
            raise ArchiveError(
                f"{self._state}: {error.strerror}; batch {batch} of {writer} is not published",
                remedy="make room, or name another file with --publish-state",
            ) from error
