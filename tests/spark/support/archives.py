"""Archives of a few thousand rows behind range services, for tests of the data source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.archive.recording.rows import RowBuilder
from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService
from pgm.archive.session import RecordedSession
from pgm.archive.store.writer import ArchiveWriter
from pgm.parameters import Parameters
from pgm.units import SECOND
from tests.unit.archive.makers import SESSION, append, messages

_FOR_EVER = attrs.evolve(Parameters(), record_secs=100 * 365 * 24 * 3600 * SECOND)
KEY = "1.2.3.4.5.6.7500@1000000"


def session(node: str = "recorder-1", **values: object) -> RecordedSession:
    """The session of the makers, as a node recorded it."""
    return attrs.evolve(SESSION, node=node, **values)


@contextmanager
def writing(directory: Path) -> Iterator[Callable[..., None]]:
    """A function that appends rows, synced, to the archive."""
    writer = ArchiveWriter(directory, _FOR_EVER, lambda *_: None)

    def add(parts: Sequence[RowBuilder], of: RecordedSession = SESSION) -> None:
        append(writer, parts, of)
        writer.sync()

    try:
        yield add
    finally:
        writer.close()


def archive(directory: Path, parts: Sequence[RowBuilder] | None = None, of: RecordedSession = SESSION) -> Path:
    """An archive with a batch for each part, 1000 messages without any."""
    with writing(directory) as add:
        for part in parts if parts is not None else [messages(0, 1000)]:
            add([part], of)
    return directory


@contextmanager
def served(directory: Path, port: int = 0, **values: object) -> Iterator[RangeService]:
    """A range service."""
    service = RangeService(Archives(directory), f"grpc://127.0.0.1:{port}", Parameters(), **values)
    try:
        yield service
    finally:
        service.end()


def at(service: RangeService) -> str:
    """Where it listens."""
    return f"grpc://127.0.0.1:{service.port}"
