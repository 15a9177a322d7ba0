"""Errors of archives. Each error has a stable code, which the range service sends to its clients."""

from __future__ import annotations

from pgm.errors import PgmError, UsageError


class ArchiveError(PgmError):
    """Archive that cannot be read or written; the message names the file."""

    code = "PGM-ARCHIVE"


class DirectoryGone(ArchiveError):
    """Directory of an archive that cannot be listed; the message names it."""

    code = "PGM-ARCHIVE-DIRECTORY"


class CorruptSegment(ArchiveError):
    """Damaged segment; the message names the file and the octet of the damage."""

    code = "PGM-ARCHIVE-CORRUPT"


class SchemaTooNew(ArchiveError):
    """Rows whose schema version is unknown to this program."""

    code = "PGM-ARCHIVE-SCHEMA"


class RangeDropped(ArchiveError):
    """Range that is not held. Retention has dropped the rows, or the range begins before the recording does."""

    code = "PGM-ARCHIVE-DROPPED"


class UnknownSession(ArchiveError):
    """Session of which the archive holds nothing."""

    code = "PGM-ARCHIVE-UNKNOWN"


class TooManyStreams(ArchiveError):
    """Request beyond the limit on concurrent streams, of one client or of all clients together."""

    code = "PGM-ARCHIVE-BUSY"


class BadRequest(UsageError):
    """Ticket, descriptor or action that cannot be read."""

    code = "PGM-ARCHIVE-REQUEST"


class NotStaged(ArchiveError):
    """Batch to publish whose rows are not staged, or have expired."""

    code = "PGM-ARCHIVE-STAGED"


class NotInFiles(ArchiveError):
    """Files that differ from the range service's description. The client then asks the service for the rows."""

    code = "PGM-ARCHIVE-FILES"


class TableError(ArchiveError):
    """Table of exported rows that cannot be opened, read or written; the message names the table."""

    code = "PGM-ARCHIVE-TABLE"


class RowsMissing(ArchiveError):
    """Rows that an archive no longer has, or cannot read, before they are in a table."""

    code = "PGM-ARCHIVE-MISSING"
