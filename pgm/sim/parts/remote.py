"""Parts in other processes: one end serves a part on a connection, the other end is its link."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import attrs

from pgm.errors import ProcessError
from pgm.sim.checks.invariants import cheap_checkers
from pgm.sim.parts.account import PartAccount, Progress
from pgm.sim.parts.part import Part, PartSetup, PartUsage, Window, WindowResult


class Connection(Protocol):
    """Connection that carries objects in both directions."""

    def send(self, value: Any) -> None:
        """Send an object."""

    def recv(self) -> Any:
        """Return the next object."""


def serve_part(setup: PartSetup, connection: Connection) -> None:
    """Run a part by the orders of a connection until the connection ends. An error is sent, and ends the part."""
    try:
        part = Part(setup, cheap_checkers())
        while True:
            order = connection.recv()
            if isinstance(order, Window):
                connection.send(part.run(order))
            else:
                answers = {"progress": part.progress, "account": part.account, "usage": part.usage}
                connection.send(answers[order]())
    except EOFError:
        raise
    except Exception as error:
        connection.send(error)


@contextlib.contextmanager
def _told_plainly() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise ProcessError(
            "the process of a part ended in the middle of the run",
            remedy="look for its reason in Spark's log: often too little memory; take more parts or fewer receivers",
        ) from error


@attrs.define
class RemoteLink:
    """Link to a part in another process.

    Raises the errors of that part, such as `InvariantBroken`, and `ProcessError` if its process has ended.
    """

    connection: Connection

    def _send(self, order: Any) -> None:
        with _told_plainly():
            self.connection.send(order)

    def _answer(self) -> Any:
        with _told_plainly():
            answer = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin(self, window: Window) -> None:
        """Let the part run a window."""
        self._send(window)

    def result(self) -> WindowResult:
        """Return the result of the window."""
        answer: WindowResult = self._answer()
        return answer

    def usage(self) -> PartUsage:
        """Return the cost of the part's process."""
        self._send("usage")
        answer: PartUsage = self._answer()
        return answer

    def progress(self) -> Progress:
        """Return the progress of the part."""
        self._send("progress")
        answer: Progress = self._answer()
        return answer

    def account(self) -> PartAccount:
        """Return the account of the part."""
        self._send("account")
        answer: PartAccount = self._answer()
        return answer
