"""Trio driver: runs one core on its links until cancelled.

Each socket has a task that drains it (`pgm.net.driver.trio_reads`); an application that waits in a receiver reads instead
of that task (`pgm.net.driver.application_reads`). One task serves the core's deadline. Every task calls the core without
an await in between, so a core never sees two calls at once. Control packets leave at once, or are dropped and counted.
Data waits until the link takes it, which stops only the task that sends it.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from pgm.core.effects import Effects, Send
from pgm.core.interface import Core
from pgm.net.driver.application_reads import ApplicationReader
from pgm.net.driver.deadline_timer import DeadlineTimer
from pgm.net.driver.effects import DEADLINES_IN_A_ROW, LATE_NS, Application
from pgm.net.driver.held_sends import HeldSends
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.driver.nurseries import open_plain_nursery
from pgm.net.driver.process_sleep import ProcessSleep
from pgm.net.driver.rest_settings import NO_MODERATION, ReadSettings
from pgm.net.driver.trio_reads import TrioReads
from pgm.net.link.link import Link, WouldBlock
from pgm.net.link.reader import SocketRead, TakeSingle
from pgm.net.sockets.inputs import Input
from pgm.units import SECOND
from pgm.wire.train import Train

# Single packets read in a row before a read gathers.
_SINGLES_IN_A_ROW = 4


class TrioDriver(NodeDriver):
    """Driver of `core` on the links of `reads`, with other effects for `application`.

    `settings` bounds rests and prefaulted memory.
    """

    def __init__(
        self,
        core: Core,
        reads: TrioReads,
        application: Application,
        settings: ReadSettings = NO_MODERATION,
    ) -> None:
        super().__init__(core, reads, application, settings)
        self.reads: TrioReads = reads
        self._timer = DeadlineTimer()
        self._held_sends = HeldSends(self.links)
        self._held = self._held_sends.queue  # data that a link refused; later data queues behind
        self._failure: Exception | None = None  # raised by the application in a read for several endpoints
        self.on_company: Callable[[bool], None] = lambda _: None  # is told whether this endpoint is alone on the links
        self.application_reader: ApplicationReader | None = None
        self._consecutive_singles = 0  # reads for an application of one packet each, which was taken
        self._waits = 0  # tasks that wait for a link to take their data
        self._process_sleeps: dict[Input, ProcessSleep] = {}
        reads.links.join(self)

    def claim_process(self) -> None:
        """Let the whole process sleep while sockets rest: it has no other work that would wait."""
        inputs = [sock for link in self.links for sock in link.inputs]
        self._process_sleeps = {own: ProcessSleep(sock for sock in inputs if sock is not own) for own in inputs}

    async def run(self) -> None:
        """Run until cancelled."""
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self.reads.run)
            await self._keep_deadlines()

    def reschedule(self) -> None:
        """Check the core's deadline again after a change from outside of the driver."""
        if not self._timer.is_woken and (deadline_ns := self.core.deadline_ns) < self._timer.until_ns:
            self._timer.move(deadline_ns, self.now_ns())

    @property
    def is_held_up(self) -> bool:
        """Return whether data waits for a link: later data must wait behind it."""
        return bool(self._held) or self._waits > 0

    push = reschedule  # the deadline task sends accepted data

    def expect_by(self, at_ns: int) -> None:
        """Note that the core was called, and has nothing to do before the given time."""
        if at_ns < self._timer.until_ns:
            self._timer.wake()

    def _send_data_now(self, send: Send) -> None:
        if self._held_sends.send(send):
            self._timer.wake()

    def company_changed(self, *, is_alone: bool) -> None:
        """Let the application read by itself only while this endpoint is alone."""
        self.on_company(is_alone)

    def take(self, link: Link, sock: Input, arrival: SocketRead) -> None:
        """Pass a read to the core, and perform the effects without a wait. An exception ends this endpoint only."""
        try:
            super().take(link, sock, arrival)
        except Exception as error:
            if not self.links.is_shared:
                raise
            self._failure = self._failure or error
            self._timer.wake()

    def receive(self, link: Link, sock: Input, arrival: SocketRead) -> Effects:
        """Pass a read to the core. Return the core's effects."""
        self._moderations[sock].read(arrival.train.length)
        return super().receive(link, sock, arrival)

    def read_for(self, take: TakeSingle, gathers: bool) -> int:
        """Read once from the application's socket, with all packets that this read held back.

        Single packets are offered to `take`. Returns the octets received; 1 if `take` took a single packet.
        """
        assert self.application_reader is not None
        link, sock, counters = self.links[0], self.application_reader.sock, self.core.counters
        singles, before = self._consecutive_singles, counters.trains_in
        is_gather_due = gathers and singles % _SINGLES_IN_A_ROW == 0
        if (
            singles
            and not is_gather_due
            and not self.sees_singles
            and link.polls_singles(sock)
            and not link.holds(sock)
        ):
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
        if now_ns - self._timer.due_ns >= LATE_NS and not self.reads.all_waiting.read_slice():
            return
        if self.core.deadline_ns <= now_ns:
            self.perform(self.core.handle_deadline(now_ns))
        self._timer.move(self.core.deadline_ns, self.now_ns())

    def rest_s(self) -> float:
        """Return how long the application leaves its socket alone, in seconds."""
        assert self.application_reader is not None
        return self.rest_ns(self.links[0], self.application_reader.sock) / SECOND

    def sleep_process(self, sock: Input, rest_ns: int) -> bool:
        """Sleep with the whole process for `rest_ns` if nothing is due then. Return whether it slept that long."""
        process_sleep = self._process_sleeps.get(sock)
        is_due = self._timer.is_woken or self._timer.until_ns <= self.now_ns() + rest_ns
        return process_sleep is not None and not is_due and not self.is_held_up and process_sleep.pause(rest_ns)

    async def _keep_deadlines(self) -> None:
        served = 0
        due_ns = self.now_ns()  # of this turn
        while True:
            if self._failure is not None:
                raise self._failure
            if self._held:
                await self._send_data(*self._held[0], None, None)
                self._held.popleft()
                continue  # a failure may have been noted meanwhile
            now_ns = self.now_ns()
            deadline_ns = self.core.deadline_ns
            if deadline_ns <= now_ns:
                if now_ns - due_ns >= LATE_NS:
                    await self.reads.catch_up()
                    due_ns = self.now_ns()
                    continue
                due_ns = now_ns
                await self._perform(self.core.handle_deadline(now_ns))
                served += 1
                if served % DEADLINES_IN_A_ROW == 0:
                    await trio.lowlevel.checkpoint()
                continue
            await self._timer.sleep(deadline_ns, now_ns)
            due_ns = self._timer.due_ns

    async def perform_received(self, effects: Effects, link: Link, train: Train) -> None:
        """Perform the effects of a read; data waits until the link takes it."""
        await self._perform(effects, link, train)

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
                    async with self.reads.write_locks[send.segment.index]:
                        await trio.lowlevel.wait_writable(blocked_by)
                finally:
                    self._waits -= 1
