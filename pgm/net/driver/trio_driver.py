"""Trio driver: runs one core on its links until cancelled.

Each socket has a task that drains it; an application that waits in a receiver reads instead of that task
(`pgm.net.driver.application_reads`). One task serves the core's deadline. Every task calls the core without an await in
between, so a core never sees two calls at once. Control packets leave at once, or are dropped and counted. Data waits
until the link takes it, which stops only the task that sends it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import trio

from pgm.core.effects import Deliver, Effects, Send
from pgm.core.events import Happening, id_of, text_of
from pgm.core.interface import Core
from pgm.net.driver.application_reads import ApplicationReader
from pgm.net.driver.deadline_timer import DeadlineTimer
from pgm.net.driver.effects import DEADLINES_IN_A_ROW, Application, EffectPerformer
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.driver.process_sleep import ProcessSleep
from pgm.net.driver.read_moderation import ReadModeration
from pgm.net.driver.rest_settings import NO_MODERATION, ReadSettings
from pgm.net.link.link import Link, WouldBlock
from pgm.net.link.reader import SocketRead, TakeSingle
from pgm.telemetry.rates import Rates
from pgm.telemetry.snapshot import event_row
from pgm.units import MIB, SECOND
from pgm.wire.train import Train

# Reads from one socket, and octets of them, before other tasks get their turn. Either takes some two milliseconds, a
# fifth of the shortest default NAK_BO_IVL.
DRAIN_TRAINS = 32
_DRAIN_OCTETS = 2 * MIB
# Single packets read in a row before a read gathers.
_SINGLES_IN_A_ROW = 4


class TrioDriver(EffectPerformer):
    """Driver of `core` on `links`, with other effects for `application`. `reads` bounds rests and prefaulted memory."""

    def __init__(
        self,
        core: Core,
        links: Sequence[Link],
        application: Application,
        reads: ReadSettings = NO_MODERATION,
    ) -> None:
        super().__init__(core, links, application)
        self._wake_ivl = reads.wake_ivl
        self.rates: Rates | None = None  # set if the counters are read regularly
        self.last_event: Callable[[], dict[str, Any] | None] = self._last_event  # or a replacement with more events
        self._last_happening: tuple[Happening, float] | None = None  # and its time
        self._timer = DeadlineTimer()
        self._held: tuple[Send, int] | None = None  # data that a link refused, and the octet to continue from
        self.application_reader: ApplicationReader | None = None
        self._consecutive_singles = 0  # reads for an application of one packet each, which was taken
        self._waits = 0  # tasks that wait for a link to take their data
        self._write_locks = [trio.Lock() for _ in links]  # trio allows one waiter for each descriptor
        self._moderations = {
            sock: ReadModeration(reads, round(reads.bulk_share * link.sockets.buffers.rcvbuf), core.counters)
            for link in links
            for sock in link.inputs
        }
        self._process_sleeps: dict[socket.socket, ProcessSleep] = {}

    def claim_process(self) -> None:
        """Let the whole process sleep while sockets rest: it has no other work that would wait."""
        inputs = [sock for link in self.links for sock in link.inputs]
        self._process_sleeps = {own: ProcessSleep(sock for sock in inputs if sock is not own) for own in inputs}

    async def run(self) -> None:
        """Run until cancelled."""
        async with open_plain_nursery() as nursery:
            for link in self.links:
                for sock in link.inputs:
                    nursery.start_soon(self._listen, link, sock)
            await self._keep_deadlines()

    def reschedule(self) -> None:
        """Check the core's deadline again after a change from outside of the driver."""
        if not self._timer.is_woken and (deadline_ns := self.core.deadline_ns) < self._timer.until_ns:
            self._timer.move(deadline_ns, self.now_ns())

    @property
    def is_held_up(self) -> bool:
        """Return whether data waits for a link: later data must wait behind it."""
        return self._held is not None or self._waits > 0

    push = reschedule  # the deadline task sends accepted data

    def expect_by(self, at_ns: int) -> None:
        """Note that the core was called, and has nothing to do before the given time."""
        if at_ns < self._timer.until_ns:
            self._timer.wake()

    def _send_data_now(self, send: Send) -> None:
        assert self._held is None  # `is_held_up` keeps callers from here
        try:
            self.links[send.segment.index].send(send)
        except WouldBlock as blocked:
            self._held = send, blocked.at
            self._timer.wake()

    async def _listen(self, link: Link, sock: socket.socket) -> None:
        has_rested = False  # at a high rate: a check for data would cost a pass of the scheduler
        while True:
            reader = self.application_reader
            if reader is not None and reader.sock is not sock:
                reader = None
            if reader is not None:
                await reader.wait_for_turn()
            if link.holds(sock):
                await trio.lowlevel.checkpoint()
            elif not has_rested:
                await trio.lowlevel.wait_readable(sock)
            if reader is not None and reader.is_waiting:
                continue
            is_empty = await self._drain(link, sock)
            self.reschedule()
            has_rested = False
            if is_empty and self._wake_ivl:
                await self._rest()
            elif is_empty:
                rest_ns = self._rest_ns(link, sock)
                has_rested = rest_ns > 0
                if has_rested and not self._sleep_process(sock, rest_ns):
                    await trio.sleep(rest_ns / SECOND)

    async def _drain(self, link: Link, sock: socket.socket) -> bool:
        """Read up to the bound that other tasks may wait for. Return whether the socket is empty."""
        octets = 0
        for _ in range(DRAIN_TRAINS):
            arrival = link.read(sock)
            if arrival is None:
                return True
            effects = self._receive(link, sock, arrival)
            if effects:
                await self._perform(effects, link, arrival.train)
            if arrival.is_last:
                return True
            octets += arrival.train.length
            if octets > _DRAIN_OCTETS:
                break
        return False

    def _receive(self, link: Link, sock: socket.socket, arrival: SocketRead) -> Effects:
        self._moderations[sock].read(arrival.train.length)
        return super()._receive(link, sock, arrival)

    def read_for(self, take: TakeSingle, gathers: bool) -> int:
        """Read once from the application's socket, with all packets that this read held back.

        Single packets are offered to `take`. Returns the octets received; 1 if `take` took a single packet.
        """
        assert self.application_reader is not None
        link, sock, counters = self.links[0], self.application_reader.sock, self.core.counters
        singles, before = self._consecutive_singles, counters.trains_in
        is_gather_due = gathers and singles % _SINGLES_IN_A_ROW == 0
        if singles and not is_gather_due and self.observer is None and link.polls_singles and not link.holds(sock):
            count = link.poll_single(sock, take)
            if count >= 0:
                self._consecutive_singles += count
                return count
        octets, _ = self.read_once(link, sock, take, gathers=gathers)
        if counters.trains_in == before:
            return 0
        self._consecutive_singles = 0 if octets else singles + 1
        if octets:  # the core's general path may have changed its deadline without an effect
            self.reschedule()
        self.serve_late()
        return octets or 1

    def serve_late(self) -> None:
        """Serve a receiver's due timers while its application reads: the deadline task waits behind all data."""
        now_ns = self.now_ns()
        if now_ns < self._timer.until_ns:
            return
        if self.core.deadline_ns <= now_ns:
            self.perform(self.core.handle_deadline(now_ns))
        self._timer.move(self.core.deadline_ns, self.now_ns())

    def rest_s(self) -> float:
        """Return how long the application leaves its socket alone, in seconds."""
        assert self.application_reader is not None
        return self._rest_ns(self.links[0], self.application_reader.sock) / SECOND

    def _rest_ns(self, link: Link, sock: socket.socket) -> int:
        """Return how long to leave an empty socket alone, in ns. Prefault some memory meanwhile."""
        moderation = self._moderations[sock]
        rest_ns = moderation.rest_ns(self.now_ns())
        if moderation.warm_octets:
            link.warm_up(moderation.warm_octets)
        return rest_ns

    def _sleep_process(self, sock: socket.socket, rest_ns: int) -> bool:
        """Sleep with the whole process for `rest_ns` if nothing is due then. Return whether it slept that long."""
        process_sleep = self._process_sleeps.get(sock)
        is_due = self._timer.is_woken or self._timer.until_ns <= self.now_ns() + rest_ns
        return process_sleep is not None and not is_due and not self.is_held_up and process_sleep.pause(rest_ns)

    async def _rest(self) -> None:
        """Leave the sockets alone until a multiple of `wake_ivl`: all tasks wake at the same times, less often."""
        await trio.sleep((self._wake_ivl - self.now_ns() % self._wake_ivl) / SECOND)

    async def _keep_deadlines(self) -> None:
        served = 0
        while True:
            if self._held is not None:
                await self._send_data(*self._held, None, None)
                self._held = None
            now_ns = self.now_ns()
            deadline_ns = self.core.deadline_ns
            if deadline_ns <= now_ns:
                await self._perform(self.core.handle_deadline(now_ns))
                served += 1
                if served % DEADLINES_IN_A_ROW == 0:
                    await trio.lowlevel.checkpoint()
                continue
            await self._timer.sleep(deadline_ns, now_ns)

    async def _perform(self, effects: Effects, link: Link | None = None, train: Train | None = None) -> None:
        if self.observer is not None:
            self.observer.performed(effects, self.now_ns())
        remaining = iter(effects)
        try:
            for effect in remaining:
                if not isinstance(effect, Send):
                    self._hand_over(effect)
                elif effect.is_data:
                    await self._send_data(effect, 0, link, train)
                else:
                    self._send_control(effect)
        except BaseException:  # from a notice's handler, which ends this driver: the remaining effects exist only here
            self._do([other for other in remaining if not (isinstance(other, Send) and other.is_data)])
            raise
        more = self._application.after()
        if more:
            self.perform(more)

    def _hand_over(self, effect: Deliver | Happening) -> None:
        if not isinstance(effect, Deliver):
            self._last_happening = effect, time.time()
        super()._hand_over(effect)

    def _last_event(self) -> dict[str, Any] | None:
        if self._last_happening is None:
            return None
        item, at_s = self._last_happening
        return event_row(id_of(item), text_of(item), at_s)

    async def _send_data(self, send: Send, at: int, source: Link | None, train: Train | None) -> None:
        link = self.links[send.segment.index]
        while True:
            try:
                return link.send(send, at)
            except WouldBlock as blocked:
                at, blocked_by = blocked.at, blocked.sock
                if source is not None and train is not None and not train.kept:
                    # Other tasks read during this wait, and must not overwrite data that is still to be sent.
                    train.kept = True
                    source.keep(train)
                self._waits += 1
                try:
                    async with self._write_locks[send.segment.index]:
                        await trio.lowlevel.wait_writable(blocked_by)
                finally:
                    self._waits -= 1
