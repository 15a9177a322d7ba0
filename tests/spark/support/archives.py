"""Archives of a few thousand rows behind range services."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.archive.recording.rows import RowBuilder, batch_of
from pgm.archive.service.collection import Archives
from pgm.archive.service.service import RangeService
from pgm.archive.session import RecordedSession
from pgm.archive.store.writer import ArchiveWriter
from pgm.parameters import Parameters
from pgm.units import SECOND
from tests.unit.archive.makers import SESSION, append, messages

FOR_EVER = attrs.evolve(Parameters(), record_secs=100 * 365 * 24 * 3600 * SECOND)
KEY = "1.2.3.4.5.6.7500@1000000"


def session(node: str = "recorder-1", **values: object) -> RecordedSession:
    """Return the session of the makers, as recorded by a node."""
    return attrs.evolve(SESSION, node=node, **values)


@contextmanager
def writing(directory: Path, parameters: Parameters = FOR_EVER) -> Iterator[Callable[..., None]]:
    """Yield a function that appends synced rows to an archive."""
    writer = ArchiveWriter(directory, parameters, lambda *_: None)

    def add(parts: Sequence[RowBuilder], of: RecordedSession = SESSION) -> None:
        append(writer, parts, of)
        writer.sync()

    try:
        yield add
    finally:
        writer.close()


def archive(directory: Path, parts: Sequence[RowBuilder] | None = None, of: RecordedSession = SESSION) -> Path:
    """Return an archive with a batch for each part; without parts, 1000 messages."""
    with writing(directory) as add:
        for part in parts if parts is not None else [messages(0, 1000)]:
            add([part], of)
    return directory


def ended_archive(directory: Path, part: RowBuilder, of: RecordedSession = SESSION) -> Path:
    """Return an archive with one batch, which ends its session."""
    writer = ArchiveWriter(directory, FOR_EVER, lambda *_: None)
    received = (part.received_us, part.received_us)
    writer.append(of, batch_of(of, [part]), part.first, part.end, received, closes=True)
    writer.close()
    return directory


@contextmanager
def served(directory: Path, port: int = 0, **values: object) -> Iterator[RangeService]:
    """Run a range service."""
    service = RangeService(Archives(directory), f"grpc://127.0.0.1:{port}", Parameters(), **values)
    try:
        yield service
    finally:
        service.end()


def at(service: RangeService) -> str:
    """Return the address of a service."""
    return f"grpc://127.0.0.1:{service.port}"
