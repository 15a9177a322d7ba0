"""Tasks that run at the same time, each with a connection to the driver: for work that must exchange often.

Spark's own means between tasks, stages and `allGather`, take many milliseconds. A connection takes a tenth of one. The
job runs in barrier mode, so all tasks run together or none does. Both ends prove by HMAC that they know the job's secret
before either reads an object. A stranger who does not prove that in time loses the connection, and the job goes on.
Tasks send heartbeats, so a long computation differs from a process that is stopped or cut off.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from types import TracebackType
from typing import Any, Self

import attrs
from pyspark.sql import SparkSession

from pgm.errors import ProcessError, UsageError

_START_S = 180.0  # until all tasks have called: executors start Python and import numpy, perhaps on a busy machine
_POLL_S = 0.2
_PROOF_S = 2  # for each message of a proof: tasks answer in a millisecond, and strangers must not hold up the others
_IDLE_S, _PROBE_S, _PROBES = 15, 5, 6  # a host that is gone ends its connections after 45 s
_HEARTBEATS = 8  # of a task within the longest silence

Serve = Callable[[Any, Any], None]


class LinkedTasks:
    """Context of a job that runs `serve(case, connection)` for each case. `connections` are in order of the cases.

    Function and cases must be picklable, and importable in Spark's workers. The connections have `send` and `recv`.

    `silence_s` is the longest silence of a task, s: a stopped or unreachable task then ends the job by `ProcessError`.
    Its default, 60 s, is longer than a busy host delays the thread of the heartbeats, and half of Spark's own limit for
    executors (`spark.network.timeout`).
    """

    def __init__(self, spark: SparkSession, serve: Serve, cases: Sequence[Any], *, silence_s: int = 60) -> None:
        context = spark.sparkContext
        if len(cases) > context.defaultParallelism:
            raise UsageError(
                f"{len(cases)} tasks must run at the same time, and Spark runs {context.defaultParallelism}",
                remedy="take fewer parts, or a master with more cores",
            )
        self._context = context
        self._serve = serve
        self._cases = cases
        self._secret = secrets.token_bytes(32)
        self._group = f"linked-tasks-{secrets.token_hex(8)}"
        self._silence_s = silence_s
        conf = context.getConf()
        self._host = _without_brackets(conf.get("spark.driver.host") or "127.0.0.1")
        address = _without_brackets(conf.get("spark.driver.bindAddress") or self._host)
        self._listener = _listener(address, backlog=2 * len(cases))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None
        self.connections: list[TaskConnection] = []

    def _run(self) -> None:
        address, count = (self._host, self.port), len(self._cases)
        task = functools.partial(_task, address, self._secret, self._serve, self._silence_s / _HEARTBEATS)
        try:
            self._context.setJobGroup(self._group, "linked tasks", interruptOnCancel=True)
            self._context.parallelize(range(count), count).barrier().mapPartitions(task).collect()
        except Exception as error:  # told in the thread of the caller
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._accept_all()
            for connection, case in zip(self.connections, self._cases, strict=True):
                connection.send(case)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def _accept_all(self) -> None:
        found: dict[int, TaskConnection] = {}
        ends_at = time.monotonic() + _START_S
        self._listener.settimeout(_POLL_S)
        while len(found) < len(self._cases):
            if self._error is not None:
                raise self._error
            if time.monotonic() > ends_at:
                raise ProcessError(
                    f"{len(found)} of {len(self._cases)} tasks have called the driver within {_START_S:g} s",
                    remedy="check that executors reach spark.driver.host, and that the master has free cores",
                )
            with contextlib.suppress(TimeoutError):
                connection = _connection(self._listener.accept()[0])
                proved = self._proved(connection)
                if proved is not None:
                    number, process = proved
                    task = f"task {number + 1} of {len(self._cases)}, {process},"
                    found[number] = TaskConnection(connection, task, self._silence_s)
        self.connections = [found[number] for number in range(len(self._cases))]

    def _proved(self, connection: Any) -> tuple[int, str] | None:
        """Return number and process of the task behind a connection. Close that of a stranger, and return None."""
        try:
            _limit(connection, _PROOF_S)
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            proved: tuple[int, str] = connection.recv()
            _limit(connection, self._silence_s)
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return None
        return proved

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self.connections:  # the tasks end with their connections
            with contextlib.suppress(OSError):
                connection.close()
        self._listener.close()
        self._thread.join(0 if error is not None else self._silence_s)
        is_over = not self._thread.is_alive()
        if not is_over:  # else Spark would try again, or wait for an executor that is gone or stopped
            self._context.cancelJobGroup(self._group)
            self._thread.join()
        if error is None and is_over and self._error is not None:
            raise self._error


@attrs.frozen
class TaskConnection:
    """Driver's end of the connection of a task. Raises `ProcessError` after the longest silence."""

    _connection: Any
    _task: str
    _silence_s: int

    def send(self, value: Any) -> None:
        """Send an object."""
        with self._bounded():
            self._connection.send(value)

    def recv(self) -> Any:
        """Return the next object."""
        with self._bounded():
            octets = b""
            while not octets:  # a heartbeat
                octets = self._connection.recv_bytes()
        return pickle.loads(octets)

    def close(self) -> None:
        """Close the connection, which ends the task."""
        self._connection.close()

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError as error:
            raise ProcessError(
                f"{self._task} has been silent for {self._silence_s} s: it is stopped, or out of reach",
                remedy="continue or end that process, check its host and the network to it, and run this again",
            ) from error


@attrs.frozen
class _DriverConnection:
    """Task's end of its connection, which sends heartbeats for the length of a block."""

    _connection: Any
    _heartbeat_s: float
    _sends: Any = attrs.field(factory=threading.Lock)
    _is_over: threading.Event = attrs.field(factory=threading.Event)

    def send(self, value: Any) -> None:
        with self._sends:
            self._connection.send(value)

    def recv(self) -> Any:
        return self._connection.recv()

    @contextlib.contextmanager
    def heartbeats(self) -> Iterator[None]:
        thread = threading.Thread(target=self._send_heartbeats, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _send_heartbeats(self) -> None:
        with contextlib.suppress(OSError):  # the driver has gone, which `recv` tells too
            while not self._is_over.wait(self._heartbeat_s):
                with self._sends:
                    self._connection.send_bytes(b"")


def _without_brackets(host: str) -> str:
    """Return a host as sockets take it. Spark writes IPv6 addresses in brackets."""
    return host.removeprefix("[").removesuffix("]")


def _listener(address: str, backlog: int) -> socket.socket:
    family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
    has_both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # at "::", as Java's sockets
    return socket.create_server((address, 0), family=family, backlog=backlog, dualstack_ipv6=has_both)


def _connection(taken: socket.socket) -> Any:
    taken.settimeout(None)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _IDLE_S), ("TCP_KEEPINTVL", _PROBE_S), ("TCP_KEEPCNT", _PROBES)):
        taken.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return Connection(taken.detach())


def _limit(connection: Any, seconds: int) -> None:
    """Let each read and write of a connection fail after some seconds."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, 0))


def _task(
    address: tuple[str, int], secret: bytes, serve: Serve, heartbeat_s: float, numbers: Iterable[int]
) -> Iterator[int]:
    (number,) = numbers
    with _connection(socket.create_connection(address)) as connection:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
        connection.send((number, f"process {os.getpid()} on {socket.gethostname()}"))
        driver = _DriverConnection(connection, heartbeat_s)
        with contextlib.suppress(EOFError, ConnectionError), driver.heartbeats():  # the driver has all that it needs
            serve(driver.recv(), driver)
    yield number
