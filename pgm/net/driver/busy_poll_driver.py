"""Busy-poll driver: runs the same cores in the calling thread.

The thread polls the sockets while it waits. The round trip is the shortest possible: no second thread, no sleep in the
kernel, no task to wake. All nodes that a thread opened this way get their turn together. A thread may therefore own a
source and a receiver, and repairs continue in both during any wait. Nothing runs between calls. A thread that computes
for long must call `poll` now and then, or its nodes answer others late. One processor is busy for as long as a call
waits.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pgm.core.effects import Effects, Send
from pgm.core.interface import Core
from pgm.errors import UsageError
from pgm.net.driver.effects import DEADLINES_IN_A_ROW, LATE_NS, READS_IN_A_ROW, Application, EffectPerformer
from pgm.net.driver.held_sends import HeldSends
from pgm.net.driver.read_moderation import ReadModeration
from pgm.net.driver.rest_settings import NO_MODERATION, ReadSettings
from pgm.net.link.backlog import Backlog
from pgm.net.link.link import Link
from pgm.net.link.node_links import NodeLinks
from pgm.net.link.reader import SocketRead, TakeSingle
from pgm.net.sockets.inputs import Input
from pgm.units import MICROSECOND, MILLISECOND, NEVER

# Ready sockets of one turn; others follow in the next turn.
_MOST_READY = 16
# Unsuccessful polls of the busiest socket before all other sockets and the deadlines get their turn: 5 to 12 us.
_POLLS = 12
# Bounds of the row of single packets, each found by the first poll, after which a read gathers: that read takes 4 to 7
# us longer. Answers may come as fast without a stream behind them. If gathering found nothing, the bound doubles, up to
# one or two milliseconds of packets.
_FEWEST_SINGLES, _MOST_SINGLES = 1, 256
# Time of consecutive sends, or of consecutive single packets, before all other sockets and deadlines get their turn.
_TURN_IVL = 250 * MICROSECOND

_this_thread = threading.get_ident
# Values of `thread` for a node that no thread may use.
_CLOSED, _ABANDONED = 0, -1


class _Input:
    """One socket of a node in the loop. `driver` is any endpoint of the node; only a lone one takes single packets."""

    def __init__(self, driver: BusyPollDriver, link: Link, sock: Input) -> None:
        self.driver = driver
        self._link = link
        self._sock = sock
        self.was_single = False  # whether the last read gave one packet: the next read probably does, too

    @property
    def is_data(self) -> bool:
        """Return whether the socket is read before others of the node."""
        return (self._link, self._sock) in self.driver.links.data_inputs

    def read(self, *, gathers: bool) -> None:
        """Read the socket, and data of the node that waits before it. The next turn goes on after much data."""
        if not self.is_data and not self.driver.waiting_data.read_slice():
            return
        if gathers or not self.was_single or not self.poll(1):
            self._read(gathers=gathers)

    def _read(self, *, gathers: bool) -> None:
        # An SPM between single packets counts as one packet, so that the next read polls for a single packet again.
        driver = self.driver
        _, self.was_single = driver.read_once(self._link, self._sock, driver.take_single, gathers=gathers)

    def poll(self, most: int) -> int:
        """Poll up to `most` times for a single packet of the fast path. Return the successful poll, 0 if none."""
        driver, link, sock = self.driver, self._link, self._sock
        take = driver.take_single
        if take is None or driver.sees_singles or not link.polls_singles(sock):
            return 0
        polls = link.poll_single(sock, take, most)
        if polls < 0:
            self._read(gathers=False)
        return abs(polls)


def _is_control(entry: tuple[int, _Input]) -> bool:
    return not entry[1].is_data


class BusyPollLoop:
    """Loop over all nodes of one thread. `BusyPollDriver` makes and drops it."""

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._inputs: dict[int, _Input] = {}
        self._busiest: _Input | None = None  # input of the last single packet
        self._drivers: list[BusyPollDriver] = []
        self._deadline_ns = 0
        self._is_stale = True  # whether `_deadline_ns` must be read again
        self._reads = 0  # since a turn without data
        self._consecutive_reads = 0  # without an unsuccessful poll between them
        self._most_singles = _FEWEST_SINGLES  # single packets in a row before a read gathers
        self._idle_driver: BusyPollDriver | None = None  # has read a train, and may have work when no data comes
        self.is_performing = False  # whether an application's handler may run: its sends go out afterwards
        self._drivers_with_sends: list[BusyPollDriver] = []  # from handlers
        self.now_ns = 0  # time of the last turn without data
        self.last_turn_ns = 0
        self._late_drivers: list[BusyPollDriver] = []  # of which all sockets must be read before the next deadline
        self.thread = threading.get_ident()

    @classmethod
    def of_this_thread(cls) -> BusyPollLoop:
        """Return the loop of the calling thread; make it if there is none."""
        loop: BusyPollLoop | None = getattr(cls._of_thread, "loop", None)
        if loop is None:
            loop = cls._of_thread.loop = cls()
        return loop

    def add(self, driver: BusyPollDriver) -> None:
        """Add a driver. Raises OSError from epoll."""
        self._drivers.append(driver)
        self._is_stale = True
        try:
            for link in driver.links:
                for sock in link.inputs:
                    if sock.fileno() not in self._inputs:
                        self._epoll.register(sock, select.EPOLLIN)
                        self._inputs[sock.fileno()] = _Input(driver, link, sock)
        except BaseException:  # kernel limit on watched descriptors
            self.remove(driver)
            raise

    def remove(self, driver: BusyPollDriver) -> None:
        """Remove a driver whose sockets are still open."""
        self._drivers.remove(driver)
        self._late_drivers = [other for other in self._late_drivers if other is not driver]
        self._drivers_with_sends = [other for other in self._drivers_with_sends if other is not driver]
        self._busiest = self._idle_driver = None
        heir = next((other for other in self._drivers if other.links is driver.links), None)
        for link in driver.links:
            for sock in link.inputs:
                if heir is not None:
                    self._inputs[sock.fileno()].driver = heir
                elif self._inputs.pop(sock.fileno(), None) is not None:
                    self._epoll.unregister(sock)
        if not self._drivers:
            self._epoll.close()
            if getattr(self._of_thread, "loop", None) is self:
                del self._of_thread.loop

    def expect_change(self) -> None:
        """Note that a core was called, so its deadline may have changed."""
        self._is_stale = True

    def expect_sends(self, driver: BusyPollDriver) -> None:
        """Note that a handler gave a driver's core something to send."""
        self._is_stale = True
        if driver not in self._drivers_with_sends:
            self._drivers_with_sends.append(driver)

    def send_submitted(self) -> None:
        """Send data that handlers submitted, as far as rate and links allow; later turns send the rest."""
        while self._drivers_with_sends:
            self._drivers_with_sends.pop(0).serve(time.monotonic_ns())

    def expect_idle(self, driver: BusyPollDriver) -> None:
        """Call a driver's `on_idle` once, when no data waits."""
        self._idle_driver = driver

    def expect_by(self, at_ns: int) -> None:
        """Note that a core was called and has nothing to do before `at_ns`; earlier known deadlines stay."""
        if at_ns < self._deadline_ns:
            self._deadline_ns = at_ns

    def block(self, ivl: int) -> None:
        """Wait in the kernel for data, a deadline or `ivl` ns; return at once if under a millisecond is left."""
        if self._is_stale:
            self._is_stale = False
            self._deadline_ns = min([driver.deadline_ns for driver in self._drivers], default=NEVER)
        left_ms = min(ivl, self._deadline_ns - time.monotonic_ns()) // MILLISECOND
        if left_ms > 0:
            self._epoll.poll(left_ms / 1000)

    def poll(self) -> None:
        """Poll the socket of the last single packet, or take a turn, for a waiting caller."""
        busiest, reads = self._busiest, self._reads
        if (
            busiest is not None
            and self._consecutive_reads <= self._most_singles
            # All other sockets wait, so not for long, and not while the application is slow with each message.
            and (not reads or (reads < READS_IN_A_ROW and time.monotonic_ns() < self.last_turn_ns + _TURN_IVL))
        ):
            polls = busiest.poll(_POLLS)
            if polls:
                self._reads = reads + 1
                self._consecutive_reads = self._consecutive_reads + 1 if polls == 1 else 1
                if not busiest.was_single:  # a train, or several packets
                    self._busiest, self._most_singles = None, _FEWEST_SINGLES
                return
            self._consecutive_reads = 0
        self.turn()

    def turn_if_due(self, now_ns: int) -> None:
        """Take a turn between two sends if the last one without data is long ago: NAKs must not wait longer."""
        if now_ns >= self.now_ns + _TURN_IVL:
            self.turn()

    def turn(self) -> None:
        """Read once from every ready socket; without ready sockets, serve the deadlines that are reached.

        After a pause of the thread, deadlines wait until all that waited in the sockets was read.
        """
        ready = self._poll(0, _MOST_READY)
        if ready:
            self._read_all(ready)
            self._reads += 1
            self._consecutive_reads += 1
            if self._reads < READS_IN_A_ROW:
                self._note_turn(time.monotonic_ns())
                return
        else:
            self._consecutive_reads = 0
        self._reads = 0
        if self._is_stale:
            self._is_stale = False
            self._deadline_ns = min([driver.deadline_ns for driver in self._drivers], default=NEVER)
        now_ns = self.now_ns = time.monotonic_ns()
        self._note_turn(now_ns)
        if now_ns >= self._deadline_ns:
            if ready and not self._has_caught_up():
                return
            self._late_drivers.clear()
            self._is_stale = True
            for driver in tuple(self._drivers):  # a handler may close some
                driver.serve(now_ns)
        elif self._idle_driver is not None and not ready:
            idle_driver, self._idle_driver = self._idle_driver, None
            idle_driver.on_idle(now_ns)

    def _note_turn(self, now_ns: int) -> None:
        if now_ns - self.last_turn_ns >= LATE_NS:
            self._late_drivers = list(self._drivers)
        self.last_turn_ns = now_ns

    def _has_caught_up(self) -> bool:
        """Read a part of what waits since a pause. Return whether all of it was read."""
        while self._late_drivers:
            driver = self._late_drivers[-1]
            if not driver.all_waiting.read_slice():
                return False
            if driver in self._late_drivers:  # no handler has closed it
                self._late_drivers.remove(driver)
        return True

    def _read_all(self, ready: Sequence[tuple[int, int]]) -> None:
        # After a pause a packet comes alone, and gathering would only delay it.
        gathers, were_single = self._consecutive_reads > self._most_singles, True
        entries = [(number, self._inputs[number]) for number, _ in ready if number in self._inputs]
        if len(entries) > 1:
            entries.sort(key=_is_control)
        for number, entry in entries:
            if self._inputs.get(number) is not entry:
                continue  # a handler has closed it since
            entry.read(gathers=gathers)
            # A handler may have closed it, and opened another socket of this number.
            is_there = self._inputs.get(number) is entry
            self._busiest = entry if entry.was_single and is_there else None
            were_single = were_single and entry.was_single
        if not were_single:
            self._most_singles = _FEWEST_SINGLES
        elif gathers:
            self._consecutive_reads, self._most_singles = 0, min(2 * self._most_singles, _MOST_SINGLES)


class BusyPollDriver(EffectPerformer):
    """Driver of `core` on `links` in its thread's loop; other effects go to `application`.

    A receiver's driver offers single packets to `take_single`. At a steady high rate it prefaults memory as `reads` says.
    """

    def __init__(
        self,
        core: Core,
        links: NodeLinks,
        application: Application,
        reads: ReadSettings = NO_MODERATION,
        take_single: TakeSingle | None = None,
    ) -> None:
        super().__init__(core, links, application)
        self._held_sends = HeldSends(links)
        self.held = self._held_sends.queue  # data that a link refused; later data queues behind
        self._take_single = take_single
        self.take_single: TakeSingle | None = None  # while this endpoint is alone on the links
        self._warms = reads.warm_ivl > 0
        self._moderation = ReadModeration(reads, 0, core.counters)  # measures the rate; the receiver never rests
        self.waiting_data = Backlog(links, is_data_alone=True)
        self.all_waiting = Backlog(links, is_data_alone=False)
        self.loop = BusyPollLoop.of_this_thread()
        self.expect_by = self.loop.expect_by  # without a call in between, which the fast path would feel
        self.thread = self.loop.thread  # the only thread that may use the driver
        self.loop.add(self)
        links.join(self)

    def close(self) -> None:
        """Stop, and leave the links."""
        if self.thread != _ABANDONED:
            self.loop.remove(self)
        self.thread = _CLOSED
        self.links.leave(self)

    def company_changed(self, *, is_alone: bool) -> None:
        """Take single packets only while this endpoint is alone on the links."""
        self.take_single = self._take_single if is_alone else None

    def abandon(self) -> None:
        """Refuse all further use of the node, whose core was interrupted in the middle of its work.

        A signal handler that raises does that. A core with work half done may stand still for ever.
        """
        if self.thread not in (_CLOSED, _ABANDONED):
            self.loop.remove(self)
            self.thread = _ABANDONED

    def require_usable(self) -> None:
        """Raise `UsageError` after closing, or in another thread."""
        if _this_thread() != self.thread:
            self._raise_unusable()

    def require_waiting(self) -> None:
        """Raise `UsageError` as `require_usable`, and in a handler of notices: data would overtake later effects."""
        if _this_thread() != self.thread or self.loop.is_performing:
            self._raise_unusable()

    def turn(self) -> None:
        """Take a turn of the thread's loop for a waiting caller. Raises `UsageError` if a handler closed the node."""
        self.require_usable()
        self.loop.turn()

    @property
    def is_open(self) -> bool:
        """Return whether the driver is neither closed nor abandoned; a handler may do either during a turn."""
        return self.thread == self.loop.thread

    @property
    def is_held_up(self) -> bool:
        """Return whether data must wait: behind refused data, or until a handler of notices has returned."""
        return bool(self.held) or self.loop.is_performing

    def _raise_unusable(self) -> None:
        if self.thread == _ABANDONED:
            raise UsageError(
                "a signal handler raised inside a call of this source or receiver, whose work is half done",
                remedy="open it again; let signal handlers set a flag and raise nothing",
            )
        if self.thread == _CLOSED:
            raise UsageError("this source or receiver is closed", remedy="use it inside its with block")
        if _this_thread() == self.thread:
            raise UsageError(
                "a handler of notices cannot wait, receive or poll",
                remedy="act on the notice after the call that called the handler; to send more there, raise txw_unsent_bytes",
            )
        raise UsageError(
            "a source or receiver with busy_poll belongs to the thread that opened it",
            remedy="open one in each thread, or open it without busy_poll",
        )

    @property
    def deadline_ns(self) -> int:
        """Return when `serve` has something to do, in ns."""
        return 0 if self.held else self.core.deadline_ns

    def receive(self, link: Link, sock: Input, arrival: SocketRead) -> Effects:
        """Pass a read to the core. Return the core's effects."""
        self.loop.expect_change()
        if self._warms:
            self._moderation.read(arrival.train.length)
            self.loop.expect_idle(self)
        return super().receive(link, sock, arrival)

    def on_idle(self, now_ns: int) -> None:
        """Prefault some memory for data behind a gap, now that no data waits."""
        self._moderation.rest_ns(now_ns)
        if self._moderation.warm_octets:
            self.links[0].warm_up(self._moderation.warm_octets)

    def serve(self, now_ns: int) -> None:
        """Send held data, then serve the core's deadline while it is reached."""
        for _ in range(DEADLINES_IN_A_ROW):
            if not self.is_open:
                return
            if self.held and self._held_sends.send_held():
                return
            if self.core.deadline_ns > now_ns:
                return
            self.call(self.core.handle_deadline, now_ns)
            now_ns = time.monotonic_ns()

    def reschedule(self) -> None:
        """Check the core's deadline again after a call of the core."""
        self.loop.expect_change()

    def push(self) -> None:
        """Send accepted data at once, as far as rate and link allow; in a handler of notices, after it."""
        loop = self.loop
        if loop.is_performing:
            loop.expect_sends(self)
            return
        loop.expect_change()
        now_ns = time.monotonic_ns()
        if now_ns - loop.last_turn_ns >= LATE_NS:
            while self.is_open and not self.all_waiting.read_slice():
                pass
        if not self.held and self.is_open:
            self.call(self.core.handle_deadline, now_ns)
        if self.is_open:
            loop.turn_if_due(now_ns)

    def perform(self, effects: Effects) -> None:
        """Perform the effects of a call to the core.

        A handler that runs here may send. Its data goes out after all of these effects, in the order of sqns. It is not
        sent inside the handler, because a send that causes another notice would nest without bound.
        """
        loop = self.loop
        if loop.is_performing:
            super().perform(effects)
            return
        loop.is_performing = True
        try:
            super().perform(effects)
            loop.send_submitted()
        finally:
            loop.is_performing = False

    def _send_data_now(self, send: Send) -> None:
        """Send data behind all held data; hold data that the link refuses."""
        if self._held_sends.send(send):
            self.loop.expect_change()


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Keep the calling thread on one processor for the length of a block. Raises `UsageError`."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    if cpu not in before:
        known = ", ".join(map(str, sorted(before)))
        raise UsageError(f"this thread may not run on processor {cpu}", remedy=f"choose one of {known}")
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
