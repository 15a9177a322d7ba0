"""Hash of all that a core did: its effects and the timer that it set.

Control packets, reports and timers enter whole. Payloads of data enter by length and CRC-32: a hash of each octet would
cost more than the core itself. Data enter as the packets that leave on each segment. Their division into system calls
depends on places in memory, which no replay has.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator

import numpy as np

from pgm.core.effects import Deliver, Effect, Effects, Evidence, Save, Send, Snapshot
from pgm.crc32 import crc32
from pgm.wire.packet_run import Run
from pgm.wire.train import Octets

DIGEST_OCTETS = 16
_CONTROL = struct.Struct("<cBiII")  # kind, segment, hops, octets, CRC-32
_DATA = struct.Struct("<cBiI")  # kind, segment, hops, CRC-32
_SIZES = struct.Struct("<II")  # octets of a packet, and how many packets of this size follow each other
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
            summary = b"".join([summary, *_summaries(effects)])
        self._digest.update(summary)
        self.fold = crc32(summary, self.fold)

    def add_text(self, text: str, deadline_ns: int) -> None:
        """Add the outcome of a call that returned no effects."""
        summary = _DEADLINE.pack(deadline_ns) + text.encode()
        self._digest.update(summary)
        self.fold = crc32(summary, self.fold)


class _LeavingData:
    """Data packets that leave on one segment for one destination: their sizes in order, and their CRC-32."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sizes: list[list[int]] = []  # of each row of equal packets: their octets and their number
        self._crc = 0

    def add(self, send: Send) -> None:
        octets = _contiguous(send)
        self._crc = crc32(octets, self._crc)
        full, rest = divmod(len(octets), send.stride)
        for size, count in ((send.stride, full), (rest, 1 if rest else 0)):
            if self._sizes and self._sizes[-1][0] == size:
                self._sizes[-1][1] += count
            elif count:
                self._sizes.append([size, count])

    @property
    def summary(self) -> bytes:
        send = self._send
        head = _DATA.pack(b"S", send.segment.index, _hops_of(send), self._crc)
        to = b"" if send.to is None else send.to.encode()
        return b"".join([head, to, *(_SIZES.pack(size, count) for size, count in self._sizes)])


def _summaries(effects: Effects) -> Iterator[bytes]:
    """Yield the summary of each effect. Data between two other effects are one for each segment and destination."""
    leaving: dict[tuple[int, str | None, int], _LeavingData] = {}
    for effect in effects:
        if isinstance(effect, Send) and effect.is_data:
            key = effect.segment.index, effect.to, _hops_of(effect)
            leaving.setdefault(key, _LeavingData(effect)).add(effect)
            continue
        yield from (data.summary for data in leaving.values())
        leaving.clear()
        yield _SUMMARIES.get(type(effect), _summary_of)(effect)
    yield from (data.summary for data in leaving.values())


def _hops_of(send: Send) -> int:
    return -1 if send.hops is None else send.hops


def _contiguous(send: Send) -> Octets | bytes:
    octets = send.octets
    is_scattered = isinstance(octets, np.ndarray) and not octets.flags.c_contiguous
    return np.ascontiguousarray(octets) if is_scattered else octets


def _summary_of_control(send: Send) -> bytes:
    octets = _contiguous(send)
    head = _CONTROL.pack(b"C", send.segment.index, _hops_of(send), len(octets), crc32(octets))
    to = b"" if send.to is None else send.to.encode()
    return head + to + (bytes(octets) if len(octets) <= _WHOLE_OCTETS else b"")


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
    Send: _summary_of_control,
    Deliver: _summary_of_delivery,
    Save: _summary_of_save,
    Evidence: _summary_of_evidence,
    Snapshot: _summary_of_snapshot,
}
