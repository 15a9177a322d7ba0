"""A session as the rows of an archive name it. Nothing here needs Arrow, or the protocol."""

from __future__ import annotations

import attrs


@attrs.frozen
class RecordedSession:
    """One session as its rows name it: the columns that are the same for all of them."""

    tsi: str
    epoch_us: int | None = None
    stream: str | None = None
    source: str | None = None
    node: str = ""
    segment: str | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        """What tells sessions apart."""
        return self.tsi, self.epoch_us
