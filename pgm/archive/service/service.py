"""Range service: an archive over Arrow Flight.

docs/guide/archive.md describes requests and answers. The service only reads the files of the archive. It runs as a process of
its own, with or without a recorder, and takes no time from the protocol.
"""

from __future__ import annotations

import hmac
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pyarrow.flight as flight

from pgm.archive.errors import BadRequest, TooManyStreams
from pgm.archive.requests import (
    ACTION_BLOCKS,
    ACTION_DISCARD,
    ACTION_FILES,
    ACTION_HOLDINGS,
    ACTION_PUBLISH,
    ACTION_PUBLISHED,
    ACTION_READS,
    ACTION_SQN_AT,
    RangeRequest,
    read_json,
)
from pgm.archive.service.batch_joining import joined
from pgm.archive.service.block_times import block_times
from pgm.archive.service.collection import Archives
from pgm.archive.service.pace import RowPace
from pgm.archive.service.publication_journal import PUBLISHED, completed_rows
from pgm.archive.service.publications import Publications, PublicationTarget
from pgm.archive.session import COMPANIONS
from pgm.archive.store.reader import RangeRead
from pgm.errors import PeerRefused, PgmError
from pgm.parameters import Parameters
from pgm.telemetry.logger import log_line
from pgm.units import SECOND

if TYPE_CHECKING:
    from pgm.mutual_tls.gate import PeerGate

_MAX_RANGES = 4096  # in one answer: about 100 KB of JSON
_TOKEN_SCHEME = "Bearer "


def _flight_error(error: PgmError) -> Exception:
    kind = flight.FlightServerError
    if isinstance(error, TooManyStreams):
        kind = flight.FlightUnavailableError
    elif isinstance(error, PeerRefused):
        kind = flight.FlightUnauthenticatedError
    flight_error: Exception = kind(f"{error.code}: {error}")
    return flight_error


@contextmanager
def _flight_errors() -> Iterator[None]:
    try:
        yield
    except PgmError as error:
        raise _flight_error(error) from error


def is_on_this_machine(peer: str) -> bool:
    """Return whether a client has an address of this machine. `peer` is gRPC's text, as in `ipv4:192.0.2.1:5000`."""
    kind, _, place = unquote(peer).partition(":")
    if kind == "unix":
        return True
    host = place.rpartition(":")[0].strip("[]").removeprefix("::ffff:")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # the kernel reaches an address of its own from this address; nothing is sent
            own: str = probe.getsockname()[0]
    except (OSError, UnicodeError):
        return False
    return own == host.partition("%")[0]


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Middleware that admits only calls with the token."""

    def __init__(self, token: str) -> None:
        self._wanted = (_TOKEN_SCHEME + token).encode()

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> None:
        for name, values in headers.items():
            if name.lower() == "authorization" and any(self._is_good(value) for value in values):
                return
        raise flight.FlightUnauthenticatedError(
            "PGM-ARCHIVE-TOKEN: the token is missing or wrong: send authorization: Bearer TOKEN"
        )

    def _is_good(self, value: str | bytes) -> bool:
        return hmac.compare_digest(value if isinstance(value, bytes) else value.encode(), self._wanted)


def _name_of_client(context: Any) -> str:
    """Return the first name of the verified certificate of a client."""
    name = context.peer_identity()
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


@attrs.frozen(kw_only=True)
class ServiceAccess:
    """Protection of a service: its certificate and key as PEM, and the token that clients must send.

    With `gate` the service has a certificate of its node instead, and takes calls of the permitted nodes alone.
    """

    certificate: tuple[bytes, bytes] | None = None
    token: str | None = None
    gate: PeerGate | None = None

    @property
    def scheme(self) -> str:
        """Return the scheme of the service's address."""
        return "grpc" if self.certificate is None and self.gate is None else "grpc+tls"

    def server_options(self) -> dict[str, Any]:
        """Return the arguments of a server of Flight."""
        if self.gate is not None:
            from pgm.mutual_tls.flight import flight_server_options

            return flight_server_options(self.gate.identity)
        return {} if self.certificate is None else {"tls_certificates": [self.certificate]}


_OPEN_ACCESS = ServiceAccess()


class RangeService(flight.FlightServerBase):  # type: ignore[misc]
    """Service of one archive, or of several.

    `port` is the port in use; `shutdown()` ends the service. `location` is `grpc://HOST:PORT`, or `grpc+tls://` with a
    certificate or with a gate.
    """

    def __init__(
        self,
        archives: Archives,
        location: str,
        parameters: Parameters,
        *,
        node: str = "",
        access: ServiceAccess = _OPEN_ACCESS,
        target: PublicationTarget | None = None,
        files: bool = True,
    ) -> None:
        """Listen for clients.

        `target` publishes the rows that clients put. With `files`, clients on this machine may ask where rows lie.
        Raises OSError, `ArchiveError` or `pa.ArrowException` if the address cannot be bound.
        """
        self._archives = archives
        self._parameters = parameters
        self._node = node
        self._gate = access.gate
        self._tells_files = files
        self._publications = Publications(target, parameters) if target is not None else None
        self._lock = threading.Lock()
        self._streams: Counter[str] = Counter()  # by client
        self._reads = {"read_octets": 0, "skipped_octets": 0, "sent_octets": 0}
        self._ends = threading.Event()
        self._pace = RowPace(parameters.archive_rte, self._ends)
        super().__init__(
            location,
            **access.server_options(),
            middleware={"token": _TokenCheck(access.token)} if access.token is not None else None,
        )
        if self._publications is not None:  # a client that publishes meanwhile waits for this thread
            threading.Thread(target=self._finish, args=(self._publications,), daemon=True).start()

    def end(self) -> bool:
        """End live tails, then stop.

        Return False if clients with open calls prevented the stop for `archive_end_ivl`. Their threads cannot be
        stopped, so the process should exit without waiting for them.
        """
        self._ends.set()
        stopping = threading.Thread(target=self.shutdown, daemon=True)
        stopping.start()
        stopping.join(self._parameters.archive_end_ivl / SECOND)
        return not stopping.is_alive()

    @contextmanager
    def _call(self, context: Any) -> Iterator[None]:
        """Admit the client of a call for a block, and convert errors."""
        with _flight_errors():
            if self._gate is not None:
                self._gate.admit_untrusted(_name_of_client(context))
            yield

    # Holdings

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        """Perform one of `list_actions`."""
        with self._call(context):
            body = self._bounded(action.body)
            request = read_json(body)
            self._archives.refresh()
            if action.type == ACTION_HOLDINGS:
                answer: dict[str, Any] = {
                    "node": self._node,
                    "holdings": [
                        holding.as_json()
                        for holding in self._archives.holdings()
                        if _matches(holding.as_json(), request)
                    ],
                    "damage": [error.message for error in self._archives.damage],
                }
            elif action.type == ACTION_SQN_AT:
                answer = {"sqns": self._sqns_at(request)}
            elif action.type == ACTION_BLOCKS:
                answer = block_times(self._archives, request, _MAX_RANGES)
            elif action.type == ACTION_FILES and self._may_see_files(context):
                range_read = self._archives.read(RangeRequest.from_bytes(body))
                spots = range_read.spots(_MAX_RANGES)
                self._count(range_read)
                answer = {
                    "directory": str(range_read.reader.directory.resolve()),
                    "spots": spots,
                    "next_sqn": range_read.at,
                }
            elif action.type == ACTION_READS:
                with self._lock:
                    answer = dict(self._reads)
            elif action.type in (ACTION_PUBLISH, ACTION_DISCARD, ACTION_PUBLISHED):
                answer = self._publishing().do(action.type, request)
            else:
                known = ", ".join(name for name, _ in self._actions(context))
                raise BadRequest(f"there is no action {action.type!r} here", remedy=f"ask for one of {known}")
        yield json.dumps(answer).encode()

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        """Return the actions of `do_action`, with descriptions."""
        with self._call(context):
            return self._actions(context)

    def _actions(self, context: Any) -> list[tuple[str, str]]:
        files = [(ACTION_FILES, "where the rows of a ticket lie, for clients on this machine")]
        return [
            (ACTION_HOLDINGS, "extent of every recorded session, as JSON"),
            (ACTION_SQN_AT, "the first sqn received at time_us or later, for every session or for one tsi"),
            (ACTION_BLOCKS, "sqns and receive times of batches of several ranges, in the order of time"),
            *(files if self._may_see_files(context) else ()),
            (ACTION_READS, "octets of batches read, passed over by a filter, and sent, since the start"),
            (ACTION_PUBLISH, "publish a batch that was put as attempts, once"),
            (ACTION_DISCARD, "forget attempts"),
            (ACTION_PUBLISHED, "the last batch of every writer, and the rows repeated after the service was killed"),
        ]

    def _may_see_files(self, context: Any) -> bool:
        return self._tells_files and is_on_this_machine(context.peer())

    def _bounded(self, octets: Any) -> bytes:
        """Return the octets of a request. Raises `BadRequest` before a request without bound is parsed."""
        most = self._parameters.archive_request_bytes
        if len(octets) > most:
            raise BadRequest(
                f"a request of {len(octets):,} octets", remedy=f"archive_request_bytes is the limit: {most:,} octets"
            )
        return bytes(octets)

    def _sqns_at(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        time_us = request.get("time_us")
        if not isinstance(time_us, int):
            raise BadRequest("time_us is missing, or no whole number", remedy="microseconds since 1970")
        sqns = []
        for reader, session in self._archives.sessions(request.get("tsi")):
            recorded = session.session
            sqn = reader.sqn_at(session, time_us)
            sqns.append({"tsi": recorded.tsi, "epoch_us": recorded.epoch_us, "node": recorded.node, "sqn": sqn})
        return sqns

    # Flights

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """Yield a flight for each session."""
        with self._call(context):
            criterion = read_json(self._bounded(criteria))
            self._archives.refresh()
            for holding in self._archives.holdings():
                if _matches(holding.as_json(), criterion):
                    yield self._info(RangeRequest(holding.tsi, holding.epoch_us, node=holding.node))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Return the tickets of a range."""
        with self._call(context):
            self._archives.refresh()
            return self._info(RangeRequest.from_bytes(self._bounded(descriptor.command or b"")))

    def _info(self, request: RangeRequest) -> Any:
        range_read = self._archives.read(request)
        entries = [
            entry
            for entry in range_read.reader.entries(range_read.session, range_read.at)
            if range_read.end is None or entry.first < range_read.end
        ]
        octets = sum(entry.octets for entry in entries)
        cuts, seen = [range_read.at], 0
        for entry in entries:
            if entry.first > cuts[-1] and seen * request.parts >= octets * len(cuts):
                cuts.append(entry.first)
            seen += entry.octets
        tickets = [
            attrs.evolve(
                request,
                first=first,
                end=end,
                parts=1,
                epoch_us=range_read.session.session.epoch_us,
                node=range_read.session.session.node,
            )
            for first, end in zip(cuts, [*cuts[1:], range_read.end], strict=True)
        ]
        return flight.FlightInfo(
            range_read.schema,
            flight.FlightDescriptor.for_command(request.to_bytes()),
            [flight.FlightEndpoint(ticket.to_bytes(), []) for ticket in tickets],
            sum(entry.rows for entry in entries),
            octets,
        )

    # Rows

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Return the rows of a ticket."""
        with self._call(context):
            request = RangeRequest.from_bytes(self._bounded(ticket.ticket))
            self._archives.refresh()
            range_read = self._archives.read(request)
        rows = self._stream(context, range_read, request.tail)
        return flight.GeneratorStream(range_read.schema, self._pace.slowed(rows) if request.paced else rows)

    def _stream(self, context: Any, range_read: RangeRead, is_tail: bool) -> Iterator[Any]:
        client = context.peer().rpartition(":")[0]
        with _flight_errors(), self._counted_stream(client):
            yield from self._rows(range_read)
            while is_tail and not range_read.is_over and not context.is_cancelled():
                if self._ends.wait(self._parameters.archive_poll_ivl / SECOND):
                    return
                if self._gate is not None:  # the keys of the client may be revoked meanwhile
                    self._gate.admit_untrusted(_name_of_client(context))
                if self._archives.refresh():
                    yield from self._rows(range_read)

    def _rows(self, range_read: RangeRead) -> Iterator[Any]:
        """Yield the present rows of a range, and count their octets."""
        sent = 0
        try:
            for batch in joined(range_read.batches()):
                sent += batch.nbytes
                yield batch
        finally:
            self._count(range_read, sent)

    def _count(self, range_read: RangeRead, sent: int = 0) -> None:
        with self._lock:
            self._reads["read_octets"] += range_read.read_octets
            self._reads["skipped_octets"] += range_read.skipped_octets
            self._reads["sent_octets"] += sent
        range_read.read_octets = range_read.skipped_octets = 0

    @contextmanager
    def _counted_stream(self, client: str) -> Iterator[None]:
        """Count a stream of a client for a block. Raises `TooManyStreams`."""
        with self._lock:
            count, limit = self._streams[client], self._parameters.archive_client_streams
            if count >= limit:
                raise TooManyStreams(
                    f"{client} reads {count} ranges already", remedy="archive_client_streams is the limit; try again"
                )
            if self._streams.total() >= self._parameters.archive_streams:
                raise TooManyStreams(
                    f"{self._streams.total()} ranges are read already", remedy="archive_streams is the limit; try again"
                )
            self._streams[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[client] -= 1
                if not self._streams[client]:
                    del self._streams[client]

    @property
    def streams(self) -> int:
        """Ranges that are being read."""
        with self._lock:
            return self._streams.total()

    # Publishing

    @staticmethod
    def _finish(publications: Publications) -> None:
        try:
            publications.finish()
        except (PgmError, OSError) as error:  # the next publication tries again, and its client gets the error
            log_line("publish-again", str(error))

    def _publishing(self) -> Publications:
        if self._publications is None:
            raise BadRequest(
                "this service does not publish",
                remedy="start the service with a source: --publish FILE --publish-node NODE",
            )
        return self._publications

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Publish the columns `value`, `subject` and `to`, or stage them for an attempt at a batch."""
        with self._call(context):
            publications = self._publishing()
            request = read_json(self._bounded(descriptor.command or b""))
            for name in request:
                if name not in ("stream", "attempt", "columns"):
                    raise BadRequest(f"a put has no key {name!r}", remedy="its keys are stream, attempt and columns")
            _check_columns(request.get("columns", []))
            attempt = request.get("attempt")
            taken = 0
            for chunk in reader:
                rows = _rows_of(chunk.data)
                taken += len(rows)
                if attempt is not None:
                    publications.stage(str(attempt), rows)
                else:
                    publications.publish(str(request.get("stream", "")), rows)
                answer = {"published" if attempt is None else "staged": taken}
                writer.write(pa.py_buffer(json.dumps(answer).encode()))


def _check_columns(names: object) -> None:
    """Raise `BadRequest` if a put has columns that it would lose."""
    known = PUBLISHED.names
    if not isinstance(names, list) or any(name not in known for name in names):
        raise BadRequest(f"columns {names!r:.100} cannot be published", remedy=f"put {', '.join(known)}")


def _rows_of(batch: pa.RecordBatch) -> pa.Table:
    """Return the rows that a put publishes; other columns are ignored. Raises `BadRequest`."""
    if "value" not in batch.schema.names:
        raise BadRequest("the rows have no column value", remedy="put rows with a binary column value")
    column = batch.column("value")
    if not (pa.types.is_binary(column.type) or pa.types.is_string(column.type)) or column.null_count:
        raise BadRequest("the column value has nulls, or is neither binary nor text", remedy="put binary values")
    columns = {"value": column.cast(pa.binary())}
    for name in PUBLISHED.names:
        if name in batch.schema.names and name not in columns:
            if batch.schema.field(name).type not in (pa.string(), pa.large_string(), pa.null()):
                raise BadRequest(f"the column {name} is no text", remedy="put text, and null for none")
            columns[name] = batch.column(name).cast(pa.string())
    return completed_rows(pa.table(columns))


def _matches(holding: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Return whether a session is wanted. Sessions of proofs and key records are, if asked for or named."""
    wanted = dict(asked)
    has_companions = wanted.pop("companions", False) is True or "tsi" in wanted
    for name in wanted:
        if name not in ("tsi", "stream", "node"):
            raise BadRequest(f"sessions cannot be selected by {name!r}", remedy="select by tsi, stream or node")
    is_shown = has_companions or holding["kind"] not in COMPANIONS
    return is_shown and all(holding[name] == value for name, value in wanted.items())
