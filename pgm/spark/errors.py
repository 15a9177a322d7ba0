"""Errors of reading and writing through Spark, whose text begins with the code, since Spark shows only the text."""

from __future__ import annotations

from pgm.errors import PgmError, UsageError


class _CodedError(PgmError):
    """Error whose text begins with its code."""

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


class BadOption(_CodedError, UsageError):
    """Option of the data source that does not exist or cannot be read."""

    code = "PGM-SPARK-OPTION"


class RecorderDown(_CodedError):
    """Range service that does not answer, while no other service has the rows."""

    code = "PGM-SPARK-RECORDER"


class RecorderRefused(_CodedError):
    """Range service that answered with an error. `service_code` is the code of that error."""

    code = "PGM-SPARK-RECORDER"

    def __init__(self, message: str, *, service_code: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.service_code = service_code


class DataLoss(_CodedError):
    """Rows of a query that are no longer held, or cannot be read."""

    code = "PGM-SPARK-DATA-LOSS"


class NoReplicas(_CodedError):
    """Copies of one session whose sqns cannot be compared."""

    code = "PGM-SPARK-REPLICAS"


class PublishFailed(_CodedError):
    """Rows that could not be published."""

    code = "PGM-SPARK-PUBLISH"
