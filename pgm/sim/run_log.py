"""Log of one run: its hash, the instants of the last activity, the notices, and the error that ends it."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

from pgm.core.effects import (
    Closed,
    Conflict,
    Deliver,
    Effect,
    Forged,
    Lost,
    NoSnapshot,
    Notice,
    Opened,
    Send,
    Snapshot,
    SnapshotWanted,
)
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.scheduler import Scheduler
from pgm.wire.control_packets import Ack, Poll, Polr, Spm, Spmr
from pgm.wire.train import Train

_SEND = struct.Struct("<BqiIB")
_EFFECT = struct.Struct("<BqBqq")
_DIGEST_OCTETS = 16
_KINDS: dict[type, int] = {
    kind: number
    for number, kind in enumerate(
        (Deliver, Lost, Opened, Closed, Conflict, Snapshot, NoSnapshot, SnapshotWanted, Forged)
    )
}


class RunLog:
    """Log of the sends, effects and notices of all nodes. `repeat` is the command that repeats the run."""

    def __init__(self, scheduler: Scheduler, seed: int, repeat: str) -> None:
        self.last_activity_ns = 0  # last send that is neither SPM, SPMR, poll nor ack, or last effect
        self.last_delivery_ns = 0
        self.notices: list[tuple[int, str, Notice]] = []
        self._scheduler = scheduler
        self._seed = seed
        self._repeat = repeat
        self._hashes: dict[
            str, Any
        ] = {}  # by node: an order of events over all nodes would depend on how a tree is cut

    def fail(self, node: str, reason: str) -> NoReturn:
        """Raise `InvariantBroken` for this run, with seed, instant and the command that repeats the run."""
        raise InvariantBroken(self._seed, self._scheduler.now_ns, node, reason, self._repeat)

    def digests(self) -> dict[str, bytes]:
        """Return a hash of the sends and effects of each node so far."""
        return {node: found.digest() for node, found in self._hashes.items()}

    def digest(self) -> str:
        """Return one hash of all nodes so far."""
        return digest_of(self.digests())

    def _hash_of(self, node: str) -> Any:
        found = self._hashes.get(node)
        if found is None:
            found = self._hashes[node] = hashlib.blake2b(digest_size=_DIGEST_OCTETS)
        return found

    def add_send(self, node: str, send: Send, train: Train) -> None:
        """Add a train that a node sends; heartbeats are no activity."""
        now_ns = self._scheduler.now_ns
        octets = zlib.crc32(train.buffer.data)
        self._hash_of(node).update(_SEND.pack(1, now_ns, send.segment.index, octets, train.count & 255))
        if send.is_data or not _is_heartbeat(train):
            self.last_activity_ns = now_ns

    def add_effect(self, node: str, effect: Effect) -> None:
        """Add an effect that the application of a node receives."""
        now_ns = self._scheduler.now_ns
        first, count = _extent(effect)
        self._hash_of(node).update(_EFFECT.pack(2, now_ns, _KINDS[type(effect)], first, count))
        self.last_activity_ns = now_ns
        if type(effect) is Deliver:
            self.last_delivery_ns = now_ns

    def add_notice(self, node: str, notice: Notice) -> None:
        """Add a notice of a node's core."""
        self.notices.append((self._scheduler.now_ns, node, notice))


def digest_of(digests: Mapping[str, bytes]) -> str:
    """Return one hash of the hashes of all nodes: equal runs have equal hashes."""
    total = hashlib.blake2b(digest_size=_DIGEST_OCTETS)
    for node in sorted(digests):
        total.update(node.encode() + b"\0" + digests[node])
    return total.hexdigest()


def _is_heartbeat(train: Train) -> bool:
    return all(isinstance(item, (Ack, Spm, Spmr, Poll, Polr)) for item in train.parse_untrusted()[0])


def _extent(effect: Effect) -> tuple[int, int]:
    if isinstance(effect, Deliver):
        return effect.run.first, effect.run.count
    if isinstance(effect, (Lost, Conflict, Forged)):
        return effect.first, effect.count
    if isinstance(effect, (Opened, NoSnapshot)):
        return effect.first, 0
    if isinstance(effect, Snapshot):
        return effect.position, len(effect.payload)
    if isinstance(effect, SnapshotWanted):
        return 0, 0
    assert isinstance(effect, Closed)
    return effect.next_sqn, 0
