"""Client of range services, for one reader: holdings, and the rows of a range as columns.

pyarrow is loaded with the first connection.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pgm.archive.errors import ArchiveError, RangeDropped
from pgm.archive.requests import ACTION_HOLDINGS, RangeRequest, SessionExtent
from pgm.messages.batch_decoder import NO_TIME
from pgm.messages.columns import Columns

_COLUMNS = ("sqn", "count", "index", "subject", "lost", "value")
_FRAME = "frame"
_DROPPED = RangeDropped.code


@attrs.frozen(eq=False)
class ArchivedMessages:
    """Consecutive messages: values and subjects, and for each message its first packet and the packets it stands for."""

    columns: Columns
    sqns: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    sent_us: npt.NDArray[np.int64] | None = None  # NO_TIME where the stream does not say; None if not asked for
    frames: Mapping[int, bytes] = attrs.field(factory=dict)  # of messages by their place, if asked for

    @property
    def first(self) -> int:
        """Return the first sqn."""
        return int(self.sqns[0])

    @property
    def end(self) -> int:
        """Return the sqn behind the last packet."""
        return int((self.sqns + self.counts).max())


@attrs.frozen
class ArchivedLoss:
    """Loss that the archive recorded, with the cause as its row names it."""

    first: int
    end: int
    cause: str


class RangeClient:
    """Connection to one range service."""

    def __init__(self, location: str, patience_s: float, tls: Mapping[str, Any] | None = None) -> None:
        """Connect to `grpc://HOST:PORT`, or to `grpc+tls://HOST:PORT` with the arguments `tls` of a client of Flight.

        `pgm.mutual_tls.flight.flight_client_options` makes them for mutual TLS. A call fails after `patience_s`, even if rows
        have come. Raises `ArchiveError` if pyarrow is missing.
        """
        try:
            import pyarrow.flight as flight
        except ImportError as error:
            raise ArchiveError(
                "reading an archive needs pyarrow", remedy="pip install 'pgm-repair-network[arrow]'"
            ) from error
        self._flight = flight
        self._client = flight.connect(location, **(tls or {}))
        self._options = flight.FlightCallOptions(timeout=patience_s)

    def holdings(self, tsi: str | None) -> list[SessionExtent]:
        """Return what the service holds of a TSI; None for all sessions of messages. Raises `ArchiveError` if it cannot be asked."""
        asked = b"" if tsi is None else json.dumps({"tsi": tsi}).encode()
        action = self._flight.Action(ACTION_HOLDINGS, asked)
        try:
            [answer] = self._client.do_action(action, self._options)
            value = json.loads(answer.body.to_pybytes())
            return [SessionExtent.from_json(one) for one in value["holdings"]]
        except Exception as error:
            raise _failure(error) from error

    def rows(
        self, request: RangeRequest, *, has_times: bool = False, has_frames: bool = False
    ) -> Iterator[ArchivedMessages | ArchivedLoss]:
        """Yield the rows of a range in order. Raises `ArchiveError`, and `RangeDropped` for a range that begins too early.

        `has_times` asks for the time at which each message was sent, and `has_frames` for the frames of signed streams.
        """
        columns = (*_COLUMNS, *(("sent",) if has_times else ()), *((_FRAME,) if has_frames else ()))
        ticket = self._flight.Ticket(attrs.evolve(request, columns=columns).to_bytes())
        try:
            for chunk in self._client.do_get(ticket, self._options):
                yield from _pieces_of(chunk.data)
        except Exception as error:
            raise _failure(error) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class RangeServices:
    """Range services that are known, with one connection to each. Any thread may ask."""

    def __init__(self, locations: Sequence[str], patience_s: float, rest_s: float = 0.0) -> None:
        """Leave out a service at one of `locations` for `rest_s` after a question without an answer."""
        self._locations = tuple(one if "://" in one else f"grpc://{one}" for one in locations)
        self._patience_s = patience_s
        self._rest_s = rest_s
        self._rests_until_s: dict[str, float] = {}
        self._clients: dict[str, RangeClient] = {}
        self._lock = threading.Lock()

    def _client(self, location: str) -> RangeClient:
        with self._lock:
            client = self._clients.get(location)
            if client is None:
                client = self._clients[location] = RangeClient(location, self._patience_s)
            return client

    def extents(self, tsi: str, epoch_us: int | None) -> Iterator[tuple[RangeClient, SessionExtent]]:
        """Yield what the services hold of a session. A service that does not answer is left out."""
        for location in self._locations:
            if time.monotonic() < self._rests_until_s.get(location, 0.0):
                continue
            try:
                client = self._client(location)
                held = client.holdings(tsi)
            except ArchiveError:
                self._rests_until_s[location] = time.monotonic() + self._rest_s
                continue
            for extent in held:
                if not epoch_us or extent.epoch_us in (None, epoch_us):
                    yield client, extent


def _failure(error: Exception) -> ArchiveError:
    if isinstance(error, ArchiveError):
        return error
    return (RangeDropped if _DROPPED in str(error) else ArchiveError)(str(error).split("\n")[0])


def _pieces_of(batch: Any) -> Iterator[ArchivedMessages | ArchivedLoss]:
    """Yield the rows of a record batch: each loss alone, and the messages between losses together."""
    sqns, counts = batch["sqn"].to_numpy(), batch["count"].to_numpy()
    lost = batch["lost"]
    at = 0
    for row in np.flatnonzero(lost.is_valid().to_numpy(zero_copy_only=False)).tolist():
        if row > at:
            yield _messages_of(batch, sqns, counts, at, row)
        yield ArchivedLoss(int(sqns[row]), int(sqns[row] + counts[row]), lost[row].as_py())
        at = row + 1
    if at < len(sqns):
        yield _messages_of(batch, sqns, counts, at, len(sqns))


def _messages_of(batch: Any, sqns: Any, counts: Any, first: int, end: int) -> ArchivedMessages:
    values = batch["value"][first:end]
    _, offsets, octets = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if octets is None else np.frombuffer(octets, np.uint8)[ends[0] : ends[-1]]
    subjects = batch["subject"][first:end].dictionary_encode()
    names = {}
    if len(subjects.dictionary):
        places = subjects.indices.fill_null(-1).to_numpy() + 1
        names = {"subjects": tuple(subjects.dictionary.to_pylist()), "subject": places.astype(np.uint32)}
    sent_us = None
    if "sent" in batch.schema.names:
        sent_us = batch["sent"][first:end].cast("int64").fill_null(NO_TIME).to_numpy(zero_copy_only=False)
    columns = Columns.of_sizes(data, np.diff(ends), **names)
    frames = {}
    if _FRAME in batch.schema.names:
        held = batch[_FRAME][first:end]
        frames = {
            row: held[row].as_py() for row in np.flatnonzero(held.is_valid().to_numpy(zero_copy_only=False)).tolist()
        }
    return ArchivedMessages(columns, sqns[first:end], counts[first:end], sent_us, frames)
