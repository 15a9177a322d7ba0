"""Clients of range services: holdings, and the sqns at a time.

Errors name the service and the reason. Each process keeps its own clients, since Spark sends only options to executors.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.flight as flight

from pgm.archive.requests import ACTION_HOLDINGS, ACTION_SQN_AT, SessionExtent
from pgm.archive.session import COMPANIONS
from pgm.archive.tables.files import TableFile
from pgm.mutual_tls.flight import client_options_of
from pgm.spark.errors import DirectoryLost, RecorderDown, RecorderRefused
from pgm.spark.faults.services import fault_of
from pgm.spark.node_tls import NodeTls
from pgm.spark.options import SourceOptions

CORRUPT, DROPPED, BUSY = "PGM-ARCHIVE-CORRUPT", "PGM-ARCHIVE-DROPPED", "PGM-ARCHIVE-BUSY"
DIRECTORY, TOKEN, BAD_REQUEST = "PGM-ARCHIVE-DIRECTORY", "PGM-ARCHIVE-TOKEN", "PGM-ARCHIVE-REQUEST"
_REMEDIES = {BUSY: "try again later, or raise archive_client_streams there", TOKEN: "give the right tokenFile"}
_START = "start it (pgm serve), correct its address, or name one that stands in for it: recorders = A|B"
_ACTION_S = 10.0  # time limit of a call for holdings
_READ_S = 3600.0  # time limit of a partition
_DOWN_S = 1.0  # a service that did not answer is not asked again for this long
_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
_SERVICE_ERROR = re.compile(
    r"(PGM-[A-Z-]+): (.*?)(?:\. Detail: \w+|\. gRPC client debug context|\. Client context|$)", re.DOTALL
)
_UNLIMITED = -1  # octets of a message
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", _UNLIMITED),
]

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC would log each handshake that fails; the errors tell it

_lock = threading.Lock()
_clients: dict[tuple[str, bytes | None, NodeTls | None], tuple[Any, Any]] = {}  # -> material of TLS, client
_down: dict[str, tuple[float, str]] = {}  # location -> end of the pause, reason


@attrs.frozen
class ServiceExtent:
    """Extent of one session at one service, or in a table, which has files."""

    location: str
    holding: SessionExtent
    files: tuple[TableFile, ...] = ()


@attrs.frozen
class Survey:
    """Holdings of all services together.

    `damage` lists unreadable files by service that answered. `down` has the reasons of services that did not answer.
    """

    held: tuple[ServiceExtent, ...]
    companions: tuple[ServiceExtent, ...]  # sessions of proofs and key records, if signatures are checked
    damage: dict[str, tuple[str, ...]]
    down: dict[str, str]


def client_of(options: SourceOptions, location: str) -> Any:
    """Return the client of a service; make it on first use in this process."""
    key = (location, options.root_certificates, options.node_tls)
    material = None if options.node_tls is None else options.node_tls.material()
    with _lock:
        known = _clients.get(key)
        if known is None or known[0] is not material:
            tls = {"tls_root_certs": options.root_certificates} if material is None else client_options_of(material)
            known = _clients[key] = material, flight.FlightClient(location, generic_options=_CHANNEL, **tls)
        return known[1]


def call_options(options: SourceOptions, seconds: float) -> Any:
    """Return the options of a call: time limit and token."""
    headers = [(b"authorization", b"Bearer " + options.token.encode())] if options.token is not None else []
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def error_from(location: str, error: Exception) -> RecorderDown | RecorderRefused:
    """Convert an error of Flight."""
    text = str(error)
    match = _SERVICE_ERROR.search(text)
    if match is not None:
        kind = DirectoryLost if match[1] == DIRECTORY else RecorderRefused
        return kind(f"{location}: {match[1]}: {match[2]}", service_code=match[1], remedy=_REMEDIES.get(match[1], ""))
    first = (text.splitlines() or [type(error).__name__])[0].partition(". gRPC client debug")[0]
    if isinstance(error, (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)):
        return RecorderRefused(f"{location}: {first}", remedy="give tokenFile")
    return RecorderDown(f"{location} does not answer: {first}", remedy=_START)


def explained(options: SourceOptions, location: str, down: RecorderDown) -> RecorderDown:
    """Return the error of a service that does not answer, with the reason that connections of our own find."""
    fault = fault_of(location, options.root_certificates, is_mutual=options.node_tls is not None)
    return down if fault is None else fault


def ask(options: SourceOptions, location: str, action: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Perform an action of a service. Raises `RecorderDown`, `RecorderRefused`."""
    until, why = _down.get(location, (0.0, ""))
    if time.monotonic() < until:
        raise RecorderDown(why, remedy=_START)
    body = json.dumps(asked).encode() if asked else b""
    try:
        bodies = list(
            client_of(options, location).do_action(flight.Action(action, body), call_options(options, _ACTION_S))
        )
    except (pa.ArrowException, OSError) as error:
        service_code = error_from(location, error)
        if isinstance(service_code, RecorderDown):
            _down[location] = (time.monotonic() + _DOWN_S, service_code.message)
        raise service_code from None
    answer: dict[str, Any] = json.loads(bodies[0].body.to_pybytes())
    return answer


class RetrySchedule:
    """Time limit of repeated attempts, with growing pauses."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_S

    def wait(self) -> bool:
        """Pause; return False if no time is left."""
        left = self._until - time.monotonic()
        if left <= 0:
            return False
        threading.Event().wait(min(self._pause, left))
        self._pause = min(2 * self._pause, _MAX_PAUSE_S)
        return True


def survey(options: SourceOptions) -> Survey:
    """Ask all services, one of each group at least, for their holdings. Raises `RecorderDown`, `RecorderRefused`."""
    retry = RetrySchedule(options.retry_s)
    while True:
        held: list[ServiceExtent] = []
        damage: dict[str, tuple[str, ...]] = {}
        down: dict[str, str] = {}
        for location in options.locations:
            try:
                answer = ask(options, location, ACTION_HOLDINGS, {"companions": True} if options.authority else {})
            except RecorderDown as error:
                down[location] = error.message
                continue
            held += [ServiceExtent(location, SessionExtent.from_json(element)) for element in answer["holdings"]]
            damage[location] = tuple(answer.get("damage", ()))
        failed = [group for group in options.groups if all(element in down for element in group)]
        if not failed:
            wanted = (element for element in held if element.holding.kind not in COMPANIONS)
            companions = tuple(element for element in held if element.holding.kind in COMPANIONS)
            held = [element for element in wanted if is_wanted(options, element.holding)]
            return Survey(tuple(held), companions, damage, down)
        if not retry.wait():
            location = failed[0][0]
            raise explained(options, location, RecorderDown(down[location], remedy=_START))


def is_wanted(options: SourceOptions, extent: SessionExtent) -> bool:
    """Return whether the options choose a session of a recording."""
    filters = ((options.tsis, extent.tsi), (options.streams, extent.stream), (options.nodes, extent.node))
    return all(names is None or value in names for names, value in filters)


def sqns_at(options: SourceOptions, time_us: int) -> dict[tuple[str, str, int | None, str | None], int]:
    """Return the first sqn from a time on by (location, tsi, epoch, node). Raises `RecorderRefused`, `RecorderDown`."""
    sqns = {}
    problems = []
    for location in options.locations:
        try:
            answer = ask(options, location, ACTION_SQN_AT, {"time_us": time_us})
        except RecorderDown as error:
            problems.append(error)
            continue
        for place in answer["sqns"]:
            sqns[location, place["tsi"], place["epoch_us"], place.get("node")] = int(place["sqn"])
    if problems and not sqns:
        raise problems[0]
    return sqns


def open_range(options: SourceOptions, location: str, ticket: bytes) -> Any:
    """Begin to read a range. Raises `pa.ArrowException`."""
    return client_of(options, location).do_get(flight.Ticket(ticket), call_options(options, _READ_S))
