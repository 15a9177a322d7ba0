"""What can be wrong with reading and writing through Spark. Spark shows the text of an error, so each begins with its code."""

from __future__ import annotations

from pgm.errors import PgmError, UsageError


class _Told(PgmError):
    """An error whose text has its code."""

    def __str__(self) -> str:
        return f"{self.code}: {super().__str__()}"


class BadOption(_Told, UsageError):
    """An option of the data source that does not exist or cannot be read."""

    code = "PGM-SPARK-OPTION"


class RecorderDown(_Told):
    """A range service does not answer, and no other one has the rows."""

    code = "PGM-SPARK-RECORDER"


class RecorderRefused(_Told):
    """A range service answered with an error of its own; `told` is its code."""

    code = "PGM-SPARK-RECORDER"

    def __init__(self, message: str, *, told: str = "", remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.told = told


class DataLoss(_Told):
    """Rows that a query asks for are held no longer, or cannot be read."""

    code = "PGM-SPARK-DATA-LOSS"


class NoReplicas(_Told):
    """Copies of one session whose sqns cannot be compared."""

    code = "PGM-SPARK-REPLICAS"


class PublishFailed(_Told):
    """Rows could not be published."""

    code = "PGM-SPARK-PUBLISH"
