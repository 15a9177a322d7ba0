"""The exceptions of the project: one small tree, each with a stable code and, where one exists, a remedy.

Which kind to use follows from who can do something about it. Nonsense from a peer is a `WireError` and
never leaves the wire layer's callers: it becomes a counter. What the protocol could not do is an effect
(`pgm.core.effects.Lost`), not an exception. What an application or an operator asked for in vain is one
of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class PgmError(Exception):
    """Base of every error this project raises on purpose.

    `code` is stable and fit for scripts; `remedy` says what to do, or is empty.
    """

    code = "PGM"

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class WireError(PgmError):
    """Octets that are no PGM packet. `reason` is one of `pgm.wire.rejects.Reject`."""

    code = "PGM-WIRE"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UnitError(PgmError):
    """A quantity in human units ("50ms", "2GiB", "200Mbit/s") that cannot be read."""

    code = "PGM-UNIT"


class UsageError(PgmError):
    """The application asked for something impossible."""

    code = "PGM-USE"


class PayloadTooLarge(UsageError):
    """A message that would not fit the transmit window."""

    code = "PGM-USE-SIZE"


class SourceClosed(UsageError):
    """A send on a source that is closed or closing."""

    code = "PGM-USE-CLOSED"


class TopologyError(PgmError):
    """A topology file with one or more problems; `problems` lists them all, each naming file and line.

    `rows` are the same for programs, with the keys of `pgm check --json`, where the file is what they are about.
    """

    code = "PGM-TOPOLOGY"

    def __init__(
        self, problems: Sequence[str], *, remedy: str = "", rows: Sequence[Mapping[str, str | int]] = ()
    ) -> None:
        super().__init__("\n".join(problems), remedy=remedy)
        self.problems = tuple(problems)
        self.rows = tuple(rows)


class TransportError(PgmError):
    """The operating system refused a socket operation; the `OSError` is chained."""

    code = "PGM-NET"


class ProcessError(PgmError):
    """A process of the tree could not be started, ended early, or did not answer."""

    code = "PGM-PROC"
