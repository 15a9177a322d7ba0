"""Hash of all that a core did: its effects and the timer that it set.

Control packets, reports and timers enter whole. Payloads of data enter by length and CRC-32: a hash of each octet would
cost more than the core itself.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import numpy as np

from pgm.core.effects import Deliver, Effect, Effects, Evidence, Save, Send, Snapshot
from pgm.crc32 import crc32
from pgm.wire.packet_run import Run

DIGEST_OCTETS = 16
_SEND = struct.Struct("<cBBHiII")  # kind, segment, is data, stride, hops, octets, CRC-32
_RUN = struct.Struct("<cqIHHI")  # kind, first, count, stride, start of the payload, CRC-32
_DEADLINE = struct.Struct("<q")
_WHOLE_OCTETS = 2048  # a control packet of at most this size enters whole


class EffectHash:
    """Running hash. `fold` covers everything since the start of a tape, `digest` everything since `restart`."""

    def __init__(self, fold: int = 0) -> None:
        self.fold = fold
        self._digest = hashlib.blake2b(digest_size=DIGEST_OCTETS)

    def restart(self) -> None:
        """Begin a new digest: a segment of the tape begins."""
        self._digest = hashlib.blake2b(digest_size=DIGEST_OCTETS)

    @property
    def digest(self) -> bytes:
        """Return the digest since the last restart."""
        return self._digest.digest()

    def add(self, effects: Effects, deadline_ns: int) -> None:
        """Add the effects of one call, and the deadline of the core after it."""
        summary = _DEADLINE.pack(deadline_ns)
        if effects:
            summary = b"".join([summary, *[_SUMMARIES.get(type(effect), _summary_of)(effect) for effect in effects]])
        self._digest.update(summary)
        self.fold = crc32(summary, self.fold)

    def add_text(self, text: str, deadline_ns: int) -> None:
        """Add the outcome of a call that returned no effects."""
        summary = _DEADLINE.pack(deadline_ns) + text.encode()
        self._digest.update(summary)
        self.fold = crc32(summary, self.fold)


def _summary_of_send(send: Send) -> bytes:
    octets = send.octets
    if isinstance(octets, np.ndarray) and not octets.flags.c_contiguous:
        octets = np.ascontiguousarray(octets)
    size = len(octets)
    head = _SEND.pack(
        b"S", send.segment.index, send.is_data, send.stride, -1 if send.hops is None else send.hops, size, crc32(octets)
    )
    to = b"" if send.to is None else send.to.encode()
    return head + to + (bytes(octets) if not send.is_data and size <= _WHOLE_OCTETS else b"")


def _summary_of_run(kind: bytes, run: Run) -> bytes:
    octets = run.buffer.data[run.offset : run.offset + run.octets]
    return _RUN.pack(kind, run.first, run.count, run.stride, run.payload_at, crc32(octets))


def _summary_of_delivery(deliver: Deliver) -> bytes:
    return _summary_of_run(b"D", deliver.run) + deliver.tsi


def _summary_of_save(save: Save) -> bytes:
    return _summary_of_run(b"W", save.run) + save.tsi + _DEADLINE.pack(save.epoch_ns)


def _summary_of_evidence(evidence: Evidence) -> bytes:
    return b"E" + _SUMMARIES.get(type(evidence.effect), _summary_of)(evidence.effect)


def _summary_of_snapshot(snapshot: Snapshot) -> bytes:
    return b"P" + snapshot.tsi + _DEADLINE.pack(snapshot.position) + bytes(snapshot.payload)


def _summary_of(effect: Effect) -> bytes:
    """Return the text of a report, which names all of its values."""
    return repr(effect).encode()


_SUMMARIES: dict[type, Callable[..., bytes]] = {
    Send: _summary_of_send,
    Deliver: _summary_of_delivery,
    Save: _summary_of_save,
    Evidence: _summary_of_evidence,
    Snapshot: _summary_of_snapshot,
}
