"""What a receiver does about losses, and about an application that takes messages more slowly than they come."""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeVar, get_args

import attrs

from pgm.core.effects import LossCause, Lost
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.errors import PgmError, UsageError
from pgm.net.endpoint.queue_item import QueueItem
from pgm.wire.formats import tsi_text

OnLoss = Literal["report", "resync", "raise"]
Slow = Literal["block", "drop-oldest", "drop-newest", "close"]

_FULL_SHARE = 0.75  # of inbox_bytes: where a policy begins, so that delivery never has to wait

T = TypeVar("T")


class LossError(PgmError):
    """Packets are lost, and the receiver was opened with `on_loss="raise"`. `lost` is what would have been reported.

    The receiver is as it was: whoever iterates again gets what comes next.
    """

    code = "PGM-LOSS"

    def __init__(self, lost: Lost) -> None:
        last = lost.first + lost.count - 1
        super().__init__(
            f"session {tsi_text(lost.tsi)} has lost sqns {lost.first} to {last}: {lost.cause.value}",
            remedy='docs/reference/events.md says what to do about each cause; on_loss="report" gives them as items',
        )
        self.lost = lost


@attrs.frozen
class Policies:
    """Both, as `open_receiver` was told."""

    on_loss: OnLoss = "report"
    slow: Slow = "block"

    @classmethod
    def of(cls, on_loss: str, slow: str) -> Policies:
        """Read them. Raises `UsageError`."""
        for name, value, known in (("on_loss", on_loss, get_args(OnLoss)), ("slow", slow, get_args(Slow))):
            if value not in known:
                raise UsageError(f"{name}={value!r} is unknown", remedy=f"choose one of {', '.join(known)}")
        return cls(on_loss, slow)  # type: ignore[arg-type]

    def handed(self, item: T) -> T:
        """An item that is about to be handed out. Raises `LossError`."""
        if isinstance(item, Lost) and self.on_loss == "raise":
            raise LossError(item)
        return item

    def excess(self, inbox_octets: int, queued_octets: int) -> int:
        """Octets of a queue that are too many, by a policy other than block."""
        return queued_octets - round(inbox_octets * _FULL_SHARE)


def drop_oldest(queue: deque[QueueItem], excess: int) -> int:
    """Make `excess` octets of messages at the head of a queue one loss, or as much as there is; returns the octets set free."""
    kept: list[QueueItem] = []
    freed = 0
    while queue and freed < excess:
        one = queue.popleft()
        rest, octets, lost = _without(one, excess - freed, from_head=True)
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
    """The same at a queue's end."""
    kept: deque[QueueItem] = deque()
    freed = 0
    while queue and (freed < excess or (queue[-1].is_message and not queue[-1].frees_octets)):
        one = queue.pop()
        rest, octets, lost = _without(one, max(1, excess - freed), from_head=False)
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


def _without(one: QueueItem, octets: int, *, from_head: bool) -> tuple[QueueItem | None, int, Lost | None]:
    """What is left of a queued thing of which so many octets go, the octets that are free, and what that lost."""
    found = one.found
    if isinstance(found, LargeMessage):
        return None, one.frees_octets, Lost(found.tsi, found.first, found.count, LossCause.OVERRUN)
    if not isinstance(found, WholeMessages):
        return one, 0, None
    run = found.run
    if octets >= one.frees_octets:
        return None, one.frees_octets, Lost(found.tsi, run.first, run.count, LossCause.OVERRUN)
    count = min(run.count, -(-octets // run.stride))
    at = run.first + count if from_head else run.end - count
    first, end = (at, run.end) if from_head else (run.first, at)
    gone = Lost(found.tsi, run.first if from_head else at, count, LossCause.OVERRUN)
    freed = one.frees_octets if count == run.count else count * run.stride
    rest = None if first == end else QueueItem(WholeMessages(found.tsi, run.part(first, end)), one.frees_octets - freed)
    return rest, freed, gone


def _joins(one: Lost, other: Lost) -> bool:
    is_same = one.tsi == other.tsi and one.cause is other.cause is LossCause.OVERRUN
    return is_same and one.first + one.count == other.first


REPORTING = Policies()
