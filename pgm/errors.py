"""Exceptions of the project: one small tree, each with a stable code and, if one exists, a remedy.

The right exception depends on the party that can act on the problem. Malformed packets of a peer raise a `WireError`. The
callers of the wire layer catch each `WireError` and count it. A loss that the protocol could not repair is an effect
(`pgm.core.effects.Lost`), not an exception. The other exceptions report a failed request of an application or an operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class PgmError(Exception):
    """Base of all errors raised on purpose: a stable `code` for scripts, and a `remedy` for the user, or empty."""

    code = "PGM"

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class WireError(PgmError):
    """Octets that are not a PGM packet. `reason` is one of `pgm.wire.rejects.REASONS`."""

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
    """A message larger than the transmit window."""

    code = "PGM-USE-SIZE"


class SourceClosed(UsageError):
    """A send on a source that is closed or closing."""

    code = "PGM-USE-CLOSED"


class KeyRefused(UsageError):
    """Keys of a node that are missing, unsafe, damaged, expired or revoked."""

    code = "PGM-USE-KEY"


class PeerRefused(PgmError):
    """The other end of a TLS connection is no node that may connect. `reason` is one of `pgm.mutual_tls.refusals.REASONS`."""

    code = "PGM-PEER"

    def __init__(self, reason: str, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.reason = reason


class TopologyError(PgmError):
    """A topology file with one or more problems.

    `problems` lists all problems, each with file and line. `rows` holds the same problems for programs, with the keys of
    `pgm check --json`. `rows` is empty if the error is not about a file.
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
    """A process of the tree failed to start, ended early, or did not answer."""

    code = "PGM-PROC"


class TapeError(PgmError):
    """A tape that cannot be kept, read or replayed."""

    code = "PGM-TAPE"
