"""Tasks that run at the same time, each with a connection to the driver: for work that must exchange often.

Spark's own means between tasks, stages and `allGather`, take many milliseconds. A connection takes a tenth of one. The
job runs in barrier mode, so all tasks run together or none does. Both ends prove by HMAC that they know the job's secret.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from types import TracebackType
from typing import Any, Self

from pyspark.sql import SparkSession

from pgm.errors import ProcessError, UsageError

_START_S = 180.0  # until all tasks have called: executors start Python and import numpy, perhaps on a busy machine
_POLL_S = 0.2

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
        host = context.getConf().get("spark.driver.host") or "127.0.0.1"
        self._listener = socket.create_server((host, 0), backlog=len(cases))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None
        self.connections: list[Any] = []

    def _run(self) -> None:
        address, count = self._listener.getsockname()[:2], len(self._cases)
        task = functools.partial(_task, address, self._secret, self._serve)
        try:
            self._context.parallelize(range(count), count).barrier().mapPartitions(task).collect()
        except Exception as error:  # told in the thread of the caller
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        found: dict[int, Any] = {}
        left_s = _START_S
        self._listener.settimeout(_POLL_S)
        while len(found) < len(self._cases):
            try:
                connection = _connection(self._listener.accept()[0])
            except TimeoutError:
                left_s -= _POLL_S
                if self._error is not None:
                    raise self._error from None
                if left_s <= 0:
                    raise ProcessError(
                        f"{len(found)} of {len(self._cases)} tasks have called the driver within {_START_S:g} s",
                        remedy="check that executors reach spark.driver.host, and that the master has free cores",
                    ) from None
                continue
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            found[connection.recv()] = connection
        self.connections = [found[number] for number in range(len(self._cases))]
        for connection, case in zip(self.connections, self._cases, strict=True):
            connection.send(case)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self.connections:  # the tasks end with their connections
            with contextlib.suppress(OSError):
                connection.close()
        self._listener.close()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error


def _connection(taken: socket.socket) -> Any:
    taken.settimeout(None)
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(taken.detach())


def _task(address: tuple[str, int], secret: bytes, serve: Serve, numbers: Iterable[int]) -> Iterator[int]:
    (number,) = numbers
    with _connection(socket.create_connection(address)) as connection:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
        connection.send(number)
        with contextlib.suppress(EOFError, ConnectionError):  # the driver has all that it needs
            serve(connection.recv(), connection)
    yield number
