"""What can be wrong with an archive. Each has a stable code, which the range service hands to its clients."""

from __future__ import annotations

from pgm.errors import PgmError, UsageError


class ArchiveError(PgmError):
    """An archive cannot be read or written; the message names the file."""

    code = "PGM-ARCHIVE"


class CorruptSegment(ArchiveError):
    """A segment is damaged; the message names the file and the place."""

    code = "PGM-ARCHIVE-CORRUPT"


class SchemaTooNew(ArchiveError):
    """Rows of a schema that this program does not know."""

    code = "PGM-ARCHIVE-SCHEMA"


class RangeDropped(ArchiveError):
    """A range was asked for that retention has dropped, or that began before the recording did."""

    code = "PGM-ARCHIVE-DROPPED"


class UnknownSession(ArchiveError):
    """The archive holds nothing of the session."""

    code = "PGM-ARCHIVE-UNKNOWN"


class TooManyStreams(ArchiveError):
    """A client, or all of them together, read more streams at once than the limit allows."""

    code = "PGM-ARCHIVE-BUSY"


class BadRequest(UsageError):
    """A ticket, descriptor or action that cannot be read."""

    code = "PGM-ARCHIVE-REQUEST"


class NotStaged(ArchiveError):
    """A batch is to be published whose rows are not, or no longer, here."""

    code = "PGM-ARCHIVE-STAGED"


class NotInFiles(ArchiveError):
    """Files are not what the range service says of them: another machine's, or replaced. It is asked for the rows instead."""

    code = "PGM-ARCHIVE-FILES"
