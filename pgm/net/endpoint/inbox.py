"""Bounded queue between a receiver's driver and its application."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable

import trio

from pgm.core.effects import NOTHING, CloseCause, Closed, Deliver, Effect, Effects, LossCause, Lost, Notice, Opened
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.window.reassembly import LargeMessage, Reassembler, WholeMessages
from pgm.core.window.unordered_reassembly import UnorderedReassembler
from pgm.net.driver.application_reads import ApplicationReader
from pgm.net.endpoint.policies import REPORTING, Policies, drop_newest, drop_oldest
from pgm.net.endpoint.queue_item import QueueItem
from pgm.net.framing.items import Message
from pgm.parameters import Parameters
from pgm.units import KIB, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS, Nla, Tsi

# Octets that an application takes from its queue before the sockets have a turn. If the last turn brought more octets,
# that number applies; otherwise a receiver that reads everything would never catch up. A repair releases packets that
# waited behind a gap, tens of megabytes at a time. An application that took all of them first would find the socket's
# buffer overflown.
OCTETS_BETWEEN_READS = 128 * KIB


# Causes that follow from another loss or from a request: no reason to skip more.
_CONSEQUENTIAL_CAUSES = frozenset({LossCause.RESYNC, LossCause.FRAGMENT, LossCause.MALFORMED, LossCause.NAGGING})


def _octets_of(content: WholeMessages | LargeMessage | Lost) -> int:
    """Return the octets of an entry in the queue."""
    if isinstance(content, LargeMessage):
        return len(content.payload)
    return content.run.octets if isinstance(content, WholeMessages) else 0


class SessionReassemblers:
    """Reassemblers of all sessions, with the check for messages that stand still."""

    def __init__(self, parameters: Parameters, unordered_ports: frozenset[int]) -> None:
        self._parameters = parameters
        self._unordered_ports = unordered_ports
        self._by_tsi: dict[Tsi, Reassembler | UnorderedReassembler] = {}
        self._marks: dict[Tsi, tuple[int, int]] = {}  # progress of large messages at the last check
        self.checks_at_ns = 0
        self.may_be_assembling = False  # whether a large message may be incomplete

    def of(self, tsi: Tsi) -> Reassembler | UnorderedReassembler:
        """Return the reassembler of a session, by default one in order."""
        reassembler = self._by_tsi.get(tsi)
        if reassembler is None:
            reassembler = self._by_tsi[tsi] = Reassembler(tsi, self._parameters.max_apdu)
        return reassembler

    def open(self, tsi: Tsi, data_port: int) -> None:
        """Begin a session. Nothing changes for a session that goes on, or that is in order."""
        if data_port in self._unordered_ports and tsi not in self._by_tsi:
            self._by_tsi[tsi] = UnorderedReassembler(tsi, self._parameters.max_apdu)

    def end(self, tsi: Tsi) -> Iterable[Lost]:
        """Forget a session. Return the incomplete messages."""
        reassembler = self._by_tsi.pop(tsi, None)
        return reassembler.end() if reassembler else ()

    def is_between(self) -> bool:
        """Return whether no message of several packets is incomplete."""
        self.may_be_assembling = any(reassembler.mark is not None for reassembler in self._by_tsi.values())
        return not self.may_be_assembling

    def end_stalled(self, now_ns: int) -> list[Lost]:
        """Give up large messages without progress since the last check, at least `apdu_ivl` ago, and return them."""
        if now_ns < self.checks_at_ns:
            return []
        self.checks_at_ns = now_ns + self._parameters.apdu_ivl
        marks = {tsi: reassembler.mark for tsi, reassembler in self._by_tsi.items()}
        stalled = [tsi for tsi, mark in marks.items() if mark is not None and mark == self._marks.get(tsi)]
        self._marks = {tsi: mark for tsi, mark in marks.items() if mark is not None}
        return [lost for tsi in stalled for lost in self._by_tsi[tsi].end()]


class Inbox:
    """Queue between the protocol and the application.

    The core's delivery budget bounds the queue to `inbox_bytes`.
    """

    def __init__(
        self,
        core: ReceiverCore,
        parameters: Parameters,
        on_notice: Callable[[Notice], None],
        unordered_ports: Collection[int] = (),
        policies: Policies = REPORTING,
    ) -> None:
        self._core = core
        self._parameters = parameters
        self.reassemblers = SessionReassemblers(parameters, frozenset(unordered_ports))
        self._on_notice = on_notice
        self._queue: deque[QueueItem] = deque()
        self.alone: Message | None = None  # precedes the queue, which was empty when this message came
        self.spare: Message | None = None  # made in advance, to become `alone`
        self.left_octets = OCTETS_BETWEEN_READS  # that the application may take before the sockets have a turn
        self.application_reader: ApplicationReader | None = None  # reads for the application
        self.is_plain = False  # whether items reach the application unchanged, so that `alone` may be used
        self._waiters = trio.lowlevel.ParkingLot()
        self._freed = 0
        self._is_closed = False
        self._policies = policies
        self._has_slow_policy = policies.slow != "block"
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
        elif isinstance(effect, Opened):
            self.reassemblers.open(effect.tsi, effect.data_port)
            self._queue.append(QueueItem(effect, 0))
        if self._waiters:
            self._waiters.unpark_all()
        elif self.application_reader is not None:
            self.application_reader.wake()

    def take_alone(self, packet: bytes, peer: Nla) -> bool:
        """Take a single packet on the fast path, past effects and queue. Return False if that is not possible."""
        if self._queue or self.alone is not None or not self.is_plain or self._has_slow_policy:
            return False
        if self.reassemblers.may_be_assembling and not self.reassemblers.is_between():
            return False
        key = self._core.receive_alone(packet, peer, time.monotonic_ns())
        if key is None:
            return False
        message = self.spare
        if message is None:
            self.alone = Message(packet[DATA_HEADER_OCTETS:], key[1], key[0])
        else:
            message.tsi, message.sqn = key
            message.payload = packet[DATA_HEADER_OCTETS:]
            self.alone, self.spare = message, None
        return True

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
        inbox_octets = self._parameters.inbox_bytes
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
            self._waiters.unpark_all()

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

    async def next(self) -> QueueItem | Message | None:
        """Wait for the next entry for the application; None once closed and empty."""
        if self.is_empty:
            self.left_octets = OCTETS_BETWEEN_READS
        elif self.left_octets <= 0 and not self._is_closed:
            await self._catch_up()
        while self.alone is None and not self._queue:
            if self._is_closed:
                return None
            if self.reassemblers.may_be_assembling and not self.reassemblers.is_between():
                with trio.move_on_after(self._parameters.apdu_ivl / SECOND):
                    await self._sleep()
                self.drop_stalled()
            else:
                await self._sleep()
        message, self.alone = self.alone, None
        if message is not None:
            return message
        queued = self._queue.popleft()
        self.left_octets -= queued.frees_octets
        return queued

    async def _catch_up(self) -> None:
        """Let the queue wait for a read of the sockets."""
        self.left_octets = OCTETS_BETWEEN_READS
        if self.application_reader is None:
            await trio.lowlevel.checkpoint()
        else:
            self.left_octets = max(self.left_octets, await self.application_reader.catch_up())

    def __len__(self) -> int:
        """Return the number of entries for the application."""
        return len(self._queue) + (self.alone is not None)

    def put_back(self, content: WholeMessages | LargeMessage | Lost | Opened | Closed) -> None:
        """Put back an entry that could not be handed on; its octets were already returned to the core."""
        self._queue.appendleft(QueueItem(content, 0))

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing for the application."""
        return self.alone is None and not self._queue

    async def _sleep(self) -> None:
        """Wait until there may be an entry."""
        if self.application_reader is None or self.application_reader.is_waiting:
            await self._waiters.park()
        else:
            await self.application_reader.wait()

    def close(self) -> None:
        """End the queue after its current entries."""
        self._is_closed = True
        self._waiters.unpark_all()
        if self.application_reader is not None:
            self.application_reader.close()
