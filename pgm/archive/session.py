"""Session as the rows of an archive name it. Nothing here needs Arrow, or the cores."""

from __future__ import annotations

import attrs

from pgm.wire.formats import PROOFS_BIT

MESSAGES = "messages"
SIGNED = "signed"  # messages whose packets are proved
OPENED = "opened"  # messages of a sealed stream, which the recorder has decrypted: proofs are about the encrypted ones
PROOFS = "proofs"  # of a signed stream, in its companion session
KEY_RECORDS = "key records"  # of a sealed stream, in another companion session
COMPANIONS = frozenset((PROOFS, KEY_RECORDS))


@attrs.frozen
class RecordedSession:
    """One recorded session: its kind, and the columns that have the same value in all its rows."""

    tsi: str
    epoch_us: int | None = None
    stream: str | None = None
    source: str | None = None
    node: str = ""
    segment: str | None = None
    kind: str = MESSAGES

    @property
    def key(self) -> tuple[str, int | None]:
        """Identity of the session: TSI and epoch."""
        return self.tsi, self.epoch_us


@attrs.frozen
class ReachedSession:
    """Session of an archive that a recorder goes on with: `next_sqn`, the source's own, is the first without a row."""

    tsi: str
    epoch_us: int | None
    next_sqn: int
    is_closed: bool


def companion_tsi(tsi: str, bit: int = PROOFS_BIT) -> str:
    """Return the TSI of the proofs of a session, or of the session of proofs, as text. Other companions have another bit."""
    gsi, _, port = tsi.rpartition(".")
    return f"{gsi}.{int(port) ^ bit}"
