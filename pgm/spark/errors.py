"""Errors of reading and writing through Spark, whose text begins with the code, since Spark shows only the text."""

from __future__ import annotations

from pgm.errors import PgmError, UsageError


class CodedError(PgmError):
    """Error whose text begins with its code."""

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


class BadOption(CodedError, UsageError):
    """Option of the data source that does not exist or cannot be read."""

    code = "PGM-SPARK-OPTION"


class RecorderDown(CodedError):
    """Range service that does not answer, while no other service has the rows."""

    code = "PGM-SPARK-RECORDER"


class CertificateRefused(RecorderDown):
    """Range service whose certificate is refused, or that refuses ours."""

    code = "PGM-SPARK-CERTIFICATE"


class TlsMismatch(RecorderDown):
    """Range service of which one side speaks TLS, and the other plain text."""

    code = "PGM-SPARK-TLS"


class RecorderRefused(CodedError):
    """Range service that answered with an error. `service_code` is the code of that error."""

    code = "PGM-SPARK-RECORDER"

    def __init__(self, message: str, *, service_code: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.service_code = service_code


class DirectoryLost(RecorderRefused):
    """Range service whose directory is gone."""

    code = "PGM-SPARK-DIRECTORY"


class DataLoss(CodedError):
    """Rows of a query that are no longer held, or cannot be read."""

    code = "PGM-SPARK-DATA-LOSS"


class NoReplicas(CodedError):
    """Copies of one session whose sqns cannot be compared."""

    code = "PGM-SPARK-REPLICAS"


class PublishFailed(CodedError):
    """Rows that could not be published."""

    code = "PGM-SPARK-PUBLISH"


class QueryFailed(CodedError):
    """Query of Spark that ended with an error of this project, whose code it has."""

    def __init__(self, message: str, *, failure: str, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.code = failure
