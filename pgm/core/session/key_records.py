"""Key records of a sealed stream: the messages of a third session of the same source.

The data port of the records and the source port of their TSI differ from those of the stream in one bit, as those of
proofs do in another. Each record is one packet, which is checked by itself. The source repeats the records of its secrets,
so that they stay in caches. Cores know no cryptography: what seals and opens is given to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pgm.wire.formats import KEY_RECORDS_BIT, Tsi, companion_tsi
from pgm.wire.train import Octets


def key_port(data_port: int) -> int:
    """Return the data port of the key records of a stream, or of the stream of key records."""
    return data_port ^ KEY_RECORDS_BIT


def key_tsi(tsi: Tsi) -> Tsi:
    """Return the TSI of the key records of a session, or of the session of key records."""
    return companion_tsi(tsi, KEY_RECORDS_BIT)


class PayloadSealer(Protocol):
    """Encryption of the payloads of one session. Sqns are the source's own numbers."""

    def seal(self, first_sqn: int, payloads: Octets, into: Octets) -> None:
        """Write the (count, length) payloads of the next packets, encrypted, into an array, which may be the same."""

    def records(self) -> Iterator[bytes]:
        """Yield the key records of all secrets, the newest first. The first round makes each record as it is taken."""
