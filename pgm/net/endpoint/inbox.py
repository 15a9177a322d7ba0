"""Bounded queue between a receiver's driver and its application."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from pgm.core.effects import (
    NOTHING,
    CloseCause,
    Closed,
    Conflict,
    Deliver,
    Effect,
    Effects,
    Forged,
    LossCause,
    Lost,
    NoSnapshot,
    Notice,
    Opened,
    Snapshot,
)
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.net.endpoint.policies import REPORTING, Policies, drop_newest, drop_oldest
from pgm.net.endpoint.queue_item import QueueContent, QueueItem
from pgm.net.endpoint.reassembly import SessionReassemblers
from pgm.net.endpoint.single_packets import SinglePacketReceiver
from pgm.units import KIB, NEVER
from pgm.wire.formats import Tsi

# Octets that an application takes from its queue before the sockets have a turn. If the last turn brought more octets,
# that number applies; otherwise a receiver that reads everything would never catch up. A repair releases packets that
# waited behind a gap, tens of megabytes at a time. An application that took all of them first would find the socket's
# buffer overflown.
OCTETS_BETWEEN_READS = 128 * KIB
# Causes that follow from another loss or from a request: no reason to skip more.
_CONSEQUENTIAL_CAUSES = frozenset({LossCause.RESYNC, LossCause.FRAGMENT, LossCause.MALFORMED, LossCause.EXCESS_NAKS})


def _octets_of(content: WholeMessages | LargeMessage | Lost) -> int:
    if isinstance(content, LargeMessage):
        return len(content.payload)
    return content.run.octets if isinstance(content, WholeMessages) else 0


class Inbox:
    """Queue between the protocol and the application. The core's delivery budget bounds the queue to `inbox_bytes`."""

    def __init__(
        self,
        core: ReceiverCore,
        reassemblers: SessionReassemblers,
        on_notice: Callable[[Notice], None],
        wake: Callable[[], None],
        policies: Policies = REPORTING,
        *,
        is_plain: bool,
    ) -> None:
        """Make an empty queue. `wake` ends the application's wait; `is_plain`: items reach it unchanged."""
        self._core = core
        self._on_notice = on_notice
        self._wake = wake
        self._policies = policies
        self._has_slow_policy = policies.slow != "block"
        self._queue: deque[QueueItem] = deque()
        self.reassemblers = reassemblers
        is_open = is_plain and not self._has_slow_policy
        self.singles = SinglePacketReceiver(core, self._queue, self.reassemblers, is_open=is_open)
        self._left_octets = OCTETS_BETWEEN_READS  # that the application may take before the sockets have a turn
        self._freed = 0
        self.is_closed = False
        self._resyncs: set[Tsi] = set()  # sessions that must skip to the newest data

    def take(self, effect: Effect) -> None:
        """Queue an effect of the core, or pass on a notice."""
        if isinstance(effect, Deliver):
            self._take_run(effect)
        elif isinstance(effect, Notice):
            self._on_notice(effect)
            return
        elif isinstance(effect, Lost):
            if self._policies.on_loss == "resync" and effect.cause not in _CONSEQUENTIAL_CAUSES:
                self._resyncs.add(effect.tsi)
            self._queue.extend(QueueItem(lost, 0) for lost in self.reassemblers.of(effect.tsi).add_lost(effect))
        elif isinstance(effect, Closed):
            if effect.cause is not CloseCause.SILENT:  # a silent session may go on in the middle of a message
                self._queue.extend(QueueItem(lost, 0) for lost in self.reassemblers.end(effect.tsi))
            self._queue.append(QueueItem(effect, 0))
        elif isinstance(effect, (Conflict, Forged)):
            self._queue.append(QueueItem(effect, 0))
        elif isinstance(effect, Opened):
            self.reassemblers.open(effect.tsi, effect.data_port)
            self._queue.append(QueueItem(effect, 0))
        elif isinstance(effect, (Snapshot, NoSnapshot)):
            self._queue.append(QueueItem(effect, 0))
        self._wake()

    def after(self) -> Effects:
        """Return octets that left the queue unseen to the core's budget. Follow the policies. Return effects."""
        self.drop_stalled()
        effects = self._follow_policies() if self._has_slow_policy or self._resyncs else NOTHING
        freed, self._freed = self._freed, 0
        return [*effects, *self._core.grant(freed)] if freed else effects

    def _follow_policies(self) -> Effects:
        """Skip data that a loss makes stale; make room if the application is too slow. Return effects."""
        effects: list[Effect] = []
        for tsi in self._resyncs:
            effects += self._core.resync(tsi)
        self._resyncs.clear()
        inbox_octets = self._core.parameters.inbox_bytes
        excess = self._policies.excess(inbox_octets, inbox_octets - self._core.room_octets - self._freed)
        if excess <= 0:
            return effects
        if self._policies.slow == "close":
            return [*effects, *self._core.end_all(CloseCause.OVERRUN)]
        if self._has_slow_policy:
            self._freed += (drop_oldest if self._policies.slow == "drop-oldest" else drop_newest)(self._queue, excess)
        return effects

    def drop_stalled(self) -> None:
        """Give up large messages that stand still."""
        lost = self.reassemblers.end_stalled(time.monotonic_ns())
        if lost:
            self._queue.extend(QueueItem(message, 0) for message in lost)
            self._wake()

    def _take_run(self, deliver: Deliver) -> None:
        run, last = deliver.run, self._queue[-1] if self._queue else None
        if last is not None and last.is_continued_by(deliver.tsi, run):
            # The application is behind: larger runs cost it less for each message.
            last.extend(run)
            return
        reassembler = self.reassemblers.of(deliver.tsi)
        if not run.has_options and reassembler.is_between:
            self._queue.append(QueueItem(WholeMessages(deliver.tsi, run), run.octets))
            return
        self.reassemblers.may_be_assembling = True
        items = [QueueItem(item, _octets_of(item)) for item in reassembler.add(run)]
        # Parts of a large message have left the queue for the reassembler, which has its own bound. A complete message
        # comes back.
        more = sum([item.frees_octets for item in items]) - run.octets
        if more > 0:
            self._core.charge(more)
        else:
            self._freed -= more
        self._queue.extend(items)

    def pop(self, *, drains: bool) -> QueueItem | None:
        """Return the next entry, behind `singles`; None if none, or before the sockets' turn (not with `drains`)."""
        if not self._queue or (self._left_octets <= 0 and not drains):
            return None
        queued = self._queue.popleft()
        self._left_octets -= queued.frees_octets
        return queued

    def begin_wait(self) -> int:
        """Note that the empty queue waits for the sockets. Return when to call `drop_stalled` at the latest, in ns."""
        self._left_octets = OCTETS_BETWEEN_READS
        return self.reassemblers.next_check_ns() if self.reassemblers.may_be_assembling else NEVER

    def had_turn(self, octets: int) -> None:
        """Let the application take entries again after a turn of the sockets, which brought so many octets."""
        self._left_octets = max(OCTETS_BETWEEN_READS, octets)

    def __len__(self) -> int:
        """Return the number of entries for the application."""
        return len(self._queue) + (self.singles.message is not None)

    def put_back(self, content: QueueContent) -> None:
        """Put back an entry that could not be handed on; its octets were already returned to the core."""
        self._queue.appendleft(QueueItem(content, 0))

    def close(self) -> None:
        """End the queue after its current entries."""
        self.is_closed = True
        self._wake()
