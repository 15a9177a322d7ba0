"""Clients of range services: what they hold, and where a time is. Failures become errors that say which service and why.

Clients are kept by process: what Spark sends to executors has options only.
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.flight as flight

from pgm.archive.requests import ACTION_HOLDINGS, ACTION_SQN_AT, SessionExtent
from pgm.spark.errors import RecorderDown, RecorderRefused
from pgm.spark.options import SourceOptions

CORRUPT, DROPPED, BUSY = "PGM-ARCHIVE-CORRUPT", "PGM-ARCHIVE-DROPPED", "PGM-ARCHIVE-BUSY"
_ACTION_S = 10.0  # that a service may take to say what it holds
_READ_S = 3600.0  # that a partition may take
_DOWN_S = 1.0  # that a service which did not answer is left alone
_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_TOLD = re.compile(
    r"(PGM-[A-Z-]+): (.*?)(?:\. Detail: \w+|\. gRPC client debug context|\. Client context|$)", re.DOTALL
)
_UNLIMITED = -1  # octets of a batch
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", _UNLIMITED),
]

_lock = threading.Lock()
_clients: dict[tuple[str, bytes | None], Any] = {}
_down: dict[str, tuple[float, str]] = {}  # location -> when it may be asked again, what was wrong


@attrs.frozen
class ServiceExtent:
    """What one service holds of one session."""

    location: str
    holding: SessionExtent


@attrs.frozen
class Survey:
    """What all services hold together. `damage` is what those that answered could not read; `down` those that did not."""

    held: tuple[ServiceExtent, ...]
    damage: dict[str, tuple[str, ...]]
    down: dict[str, str]


def client_of(options: SourceOptions, location: str) -> Any:
    """The client of a service, made when it is first used in this process."""
    key = (location, options.root_certificates)
    with _lock:
        if key not in _clients:
            _clients[key] = flight.FlightClient(
                location, tls_root_certs=options.root_certificates, generic_options=_CHANNEL
            )
        return _clients[key]


def call_options(options: SourceOptions, seconds: float) -> Any:
    """How long a call may take, and the token."""
    headers = [(b"authorization", b"Bearer " + options.token.encode())] if options.token is not None else []
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def told_by(location: str, error: Exception) -> RecorderDown | RecorderRefused:
    """A failure of Flight as one of ours."""
    text = str(error)
    found = _TOLD.search(text)
    if found is not None:
        remedy = "try again later, or raise archive_client_streams there" if found[1] == BUSY else ""
        return RecorderRefused(f"{location}: {found[1]}: {found[2]}", told=found[1], remedy=remedy)
    first = (text.splitlines() or [type(error).__name__])[0].partition(". gRPC client debug")[0]
    if isinstance(error, (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError)):
        return RecorderRefused(f"{location}: {first}", remedy="give tokenFile")
    return RecorderDown(
        f"{location} does not answer: {first}",
        remedy="start it (pgm serve), correct its address, or name one that stands in for it: recorders = A|B",
    )


def ask(options: SourceOptions, location: str, action: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Do an action. Raises `RecorderDown`, `RecorderRefused`."""
    until, why = _down.get(location, (0.0, ""))
    if time.monotonic() < until:
        raise RecorderDown(why, remedy="start it, or name one that stands in for it: recorders = A|B")
    body = json.dumps(asked).encode() if asked else b""
    try:
        answers = list(
            client_of(options, location).do_action(flight.Action(action, body), call_options(options, _ACTION_S))
        )
    except (pa.ArrowException, OSError) as error:
        told = told_by(location, error)
        if isinstance(told, RecorderDown):
            _down[location] = (time.monotonic() + _DOWN_S, told.message)
        raise told from None
    found: dict[str, Any] = json.loads(answers[0].body.to_pybytes())
    return found


class RetrySchedule:
    """How long to try again: `retry_s` in all, pauses that grow."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _PAUSE_S

    def wait(self) -> bool:
        """Wait a while; False when there is no more time."""
        left = self._until - time.monotonic()
        if left <= 0:
            return False
        threading.Event().wait(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return True


def survey(options: SourceOptions) -> Survey:
    """Ask all services what they hold; one of each group must answer. Raises `RecorderDown`, `RecorderRefused`."""
    patience = RetrySchedule(options.retry_s)
    while True:
        held: list[ServiceExtent] = []
        damage: dict[str, tuple[str, ...]] = {}
        down: dict[str, str] = {}
        for location in options.locations:
            try:
                answer = ask(options, location, ACTION_HOLDINGS, {})
            except RecorderDown as error:
                down[location] = error.message
                continue
            held += [ServiceExtent(location, SessionExtent.from_json(one)) for one in answer["holdings"]]
            damage[location] = tuple(answer.get("damage", ()))
        failed = [group for group in options.groups if all(one in down for one in group)]
        if not failed:
            return Survey(tuple(one for one in held if _is_wanted(options, one.holding)), damage, down)
        if not patience.wait():
            raise RecorderDown(
                "; ".join(down[one] for group in failed for one in group),
                remedy="start it (pgm serve), correct its address, or name one that stands in for it: recorders = A|B",
            )


def _is_wanted(options: SourceOptions, one: SessionExtent) -> bool:
    wanted = ((options.tsis, one.tsi), (options.streams, one.stream), (options.nodes, one.node))
    return all(names is None or name in names for names, name in wanted)


def sqns_at(options: SourceOptions, time_us: int) -> dict[tuple[str, str, int | None, str | None], int]:
    """The first sqn received at that time or later, by (location, tsi, epoch, node). Raises `RecorderRefused`, `RecorderDown`."""
    found = {}
    problems = []
    for location in options.locations:
        try:
            answer = ask(options, location, ACTION_SQN_AT, {"time_us": time_us})
        except RecorderDown as error:
            problems.append(error)
            continue
        for one in answer["sqns"]:
            found[location, one["tsi"], one["epoch_us"], one.get("node")] = int(one["sqn"])
    if problems and not found:
        raise problems[0]
    return found


def open_range(options: SourceOptions, location: str, ticket: bytes) -> Any:
    """Begin to read a range. Raises `pa.ArrowException`."""
    return client_of(options, location).do_get(flight.Ticket(ticket), call_options(options, _READ_S))
