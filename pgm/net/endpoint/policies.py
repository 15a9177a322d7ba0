"""Policies of a receiver for losses, for an application slower than its stream, and for acks."""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeVar, get_args

import attrs

from pgm.core.effects import LossCause, Lost, NoSnapshot
from pgm.core.events import kind_of, text_of
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.errors import PgmError, UsageError
from pgm.net.endpoint.queue_item import QueueItem
from pgm.wire.formats import tsi_text

OnLoss = Literal["report", "resync", "raise"]
Slow = Literal["block", "drop-oldest", "drop-newest", "close"]
Ack = Literal["auto", "manual"]

_FULL_SHARE = 0.75  # of inbox_bytes: a policy begins here, so that delivery never has to wait

T = TypeVar("T")


class LossError(PgmError):
    """Error for lost packets, if the receiver was opened with `on_loss="raise"`.

    `lost` is the loss that would have been reported. The receiver is unchanged: further iteration gives the next item.
    """

    code = "PGM-LOSS"

    def __init__(self, lost: Lost) -> None:
        last = lost.first + lost.count - 1
        super().__init__(
            f"session {tsi_text(lost.tsi)} has lost sqns {lost.first} to {last}: {lost.cause.value}",
            remedy='docs/reference/events.md says what to do about each cause; on_loss="report" gives them as items',
        )
        self.lost = lost


class SnapshotError(PgmError):
    """Error for a session that begins without the snapshot that `start="snapshot"` has requested.

    `missing` names the session and the cause. The receiver is usable: further iteration gives the stream without a
    state.
    """

    code = "PGM-SNAPSHOT"

    def __init__(self, missing: NoSnapshot) -> None:
        event = kind_of(missing)
        super().__init__(f"{text_of(missing)}. {event.meaning}", remedy=event.remedy)
        self.missing = missing


@attrs.frozen
class Policies:
    """Policies, as given to `open_receiver`."""

    on_loss: OnLoss = "report"
    slow: Slow = "block"
    ack: Ack = "auto"

    @classmethod
    def of(cls, on_loss: OnLoss, slow: Slow, ack: Ack) -> Policies:
        """Return the checked policies. Raises `UsageError`."""
        for name, value, kind in (("on_loss", on_loss, OnLoss), ("slow", slow, Slow), ("ack", ack, Ack)):
            known = get_args(kind)
            if value not in known:
                raise UsageError(f"{name}={value!r} is unknown", remedy=f"choose one of {', '.join(known)}")
        return cls(on_loss, slow, ack)

    def checked(self, item: T) -> T:
        """Return an item that is about to be handed out. Raises `LossError` for a loss if the policy says so."""
        if isinstance(item, Lost) and self.on_loss == "raise":
            raise LossError(item)
        return item

    def excess(self, inbox_octets: int, queued_octets: int) -> int:
        """Return the octets to drop from a queue, by a policy other than "block"."""
        return queued_octets - round(inbox_octets * _FULL_SHARE)


def drop_oldest(queue: deque[QueueItem], excess: int) -> int:
    """Turn `excess` octets of messages, or all, at a queue's head into one loss. Returns the octets freed."""
    kept: list[QueueItem] = []
    freed = 0
    while queue and freed < excess:
        item = queue.popleft()
        rest, octets, lost = _drop(item, excess - freed, from_head=True)
        freed += octets
        if lost is not None:
            before = kept[-1].found if kept else None
            if isinstance(before, Lost) and _joins(before, lost):
                kept[-1] = QueueItem(attrs.evolve(before, count=before.count + lost.count), 0)
            else:
                kept.append(QueueItem(lost, 0))
        if rest is not None:
            kept.append(rest)
    queue.extendleft(reversed(kept))
    return freed


def drop_newest(queue: deque[QueueItem], excess: int) -> int:
    """Turn `excess` octets of messages at a queue's end into one loss. Return the octets freed."""
    kept: deque[QueueItem] = deque()
    freed = 0
    while queue and (freed < excess or (queue[-1].is_message and not queue[-1].frees_octets)):
        item = queue.pop()
        rest, octets, lost = _drop(item, max(1, excess - freed), from_head=False)
        freed += octets
        if lost is not None:
            behind = kept[0].found if kept else None
            if isinstance(behind, Lost) and _joins(lost, behind):
                kept[0] = QueueItem(attrs.evolve(lost, count=lost.count + behind.count), 0)
            else:
                kept.appendleft(QueueItem(lost, 0))
        if rest is not None:
            kept.appendleft(rest)
            if rest.is_message:
                break
    if kept and queue:
        before, lost_now = queue[-1].found, kept[0].found
        if isinstance(before, Lost) and isinstance(lost_now, Lost) and _joins(before, lost_now):
            queue.pop()
            kept[0] = QueueItem(attrs.evolve(before, count=before.count + lost_now.count), 0)
    queue.extend(kept)
    return freed


def _drop(item: QueueItem, octets: int, *, from_head: bool) -> tuple[QueueItem | None, int, Lost | None]:
    """Drop `octets` from a queued item. Return the remainder, the octets freed, and the loss."""
    content = item.found
    if isinstance(content, LargeMessage):
        return None, item.frees_octets, Lost(content.tsi, content.first, content.count, LossCause.OVERRUN)
    if not isinstance(content, WholeMessages):
        return item, 0, None
    run = content.run
    if octets >= item.frees_octets:
        return None, item.frees_octets, Lost(content.tsi, run.first, run.count, LossCause.OVERRUN)
    count = min(run.count, -(-octets // run.stride))
    at = run.first + count if from_head else run.end - count
    first, end = (at, run.end) if from_head else (run.first, at)
    loss = Lost(content.tsi, run.first if from_head else at, count, LossCause.OVERRUN)
    freed = item.frees_octets if count == run.count else count * run.stride
    rest = (
        None if first == end else QueueItem(WholeMessages(content.tsi, run.part(first, end)), item.frees_octets - freed)
    )
    return rest, freed, loss


def _joins(first: Lost, second: Lost) -> bool:
    is_same = first.tsi == second.tsi and first.cause is second.cause is LossCause.OVERRUN
    return is_same and first.first + first.count == second.first


REPORTING = Policies()
