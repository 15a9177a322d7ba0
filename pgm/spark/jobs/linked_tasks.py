"""Tasks that run at the same time, each with a connection to the driver: for work that must exchange often.

Spark's own means between tasks, stages and `allGather`, take many milliseconds. A connection takes a tenth of one. The
job runs in barrier mode, so all tasks run together or none does. Both ends prove by HMAC that they know the job's secret
before either reads an object. A stranger who does not prove that in time loses the connection, and the job goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
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

from pyspark.sql import SparkSession

from pgm.errors import ProcessError, UsageError

_START_S = 180.0  # until all tasks have called: executors start Python and import numpy, perhaps on a busy machine
_POLL_S = 0.2
_PROOF_S = 2  # for each message of a proof: tasks answer in a millisecond, and strangers must not hold up the others
_IDLE_S, _PROBE_S, _PROBES = 15, 5, 6  # a host that is gone ends its connections after 45 s

Serve = Callable[[Any, Any], None]


class LinkedTasks:
    """Context of a job that runs `serve(case, connection)` for each case. `connections` are in order of the cases.

    Function and cases must be picklable, and importable in Spark's workers. The connections have `send` and `recv`.
    """

    def __init__(self, spark: SparkSession, serve: Serve, cases: Sequence[Any]) -> None:
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
        conf = context.getConf()
        self._host = conf.get("spark.driver.host") or "127.0.0.1"
        address = conf.get("spark.driver.bindAddress") or self._host
        self._listener = socket.create_server((address, 0), backlog=2 * len(cases))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None
        self.connections: list[Any] = []

    def _run(self) -> None:
        address, count = (self._host, self.port), len(self._cases)
        task = functools.partial(_task, address, self._secret, self._serve)
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
        found: dict[int, Any] = {}
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
                number = self._proved(connection)
                if number is not None:
                    found[number] = connection
        self.connections = [found[number] for number in range(len(self._cases))]

    def _proved(self, connection: Any) -> int | None:
        """Return the number of the task behind a connection; close the connection of a stranger, and return None."""
        try:
            _limit(connection, _PROOF_S)
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            number: int = connection.recv()
            _limit(connection, 0)
        except (AuthenticationError, EOFError, OSError):
            connection.close()
            return None
        return number

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self.connections:  # the tasks end with their connections
            with contextlib.suppress(OSError):
                connection.close()
        self._listener.close()
        if error is not None:  # else Spark would try again, or wait for the cores of an executor that is gone
            self._context.cancelJobGroup(self._group)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error


def _connection(taken: socket.socket) -> Any:
    taken.settimeout(None)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _IDLE_S), ("TCP_KEEPINTVL", _PROBE_S), ("TCP_KEEPCNT", _PROBES)):
        taken.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return Connection(taken.detach())


def _limit(connection: Any, seconds: int) -> None:
    """Let each read and write of a connection fail after some seconds; 0 means never."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", seconds, 0))


def _task(address: tuple[str, int], secret: bytes, serve: Serve, numbers: Iterable[int]) -> Iterator[int]:
    (number,) = numbers
    with _connection(socket.create_connection(address)) as connection:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
        connection.send(number)
        with contextlib.suppress(EOFError, ConnectionError):  # the driver has all that it needs
            serve(connection.recv(), connection)
    yield number
