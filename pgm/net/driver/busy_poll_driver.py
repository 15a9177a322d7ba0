"""The busy-poll driver: the same cores in the calling thread, which spins on the sockets while it waits.

For the shortest round trip: no second thread, no sleep of the kernel's, no task to wake. All nodes that a thread has
opened this way are turned together, so a thread may own a source and a receiver and repairs go on in both whichever of
them it waits for. Between calls nothing runs: a thread that computes for long calls `poll` now and then, or what its
nodes owe to others comes late. One core is busy for as long as a call waits.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pgm.core.effects import Effects, Send
from pgm.core.interface import Core
from pgm.errors import UsageError
from pgm.net.driver.effects import Application, EffectPerformer, deliver_to_core
from pgm.net.driver.read_moderation import ReadModeration
from pgm.net.link.link import Link, WouldBlock
from pgm.net.link.reader import SocketRead, TakeAlone
from pgm.telemetry.observer import Observer
from pgm.units import MICROSECOND, MILLISECOND, NEVER

# Reads in a row before deadlines are looked at again: a read of 64 KB takes some 50 us, so a timer is late by less than
# the millisecond that the trio driver's timers may be late.
_READS_IN_A_ROW = 16
# Sockets that one look finds ready; others have their turn at the next.
_MOST_READY = 16
# Looks at the busiest socket, which bring nothing, before all others and the deadlines have their turn: five to twelve microseconds.
_LOOKS = 12
# So many single packets in a row, each there at the first look, and more is looked for behind the next: a read that is four
# to seven microseconds longer. Answers may be there so soon as well, without a stream behind them: where nothing was behind the
# packet either, it is looked for after twice as many, up to what takes a millisecond or two.
_FEWEST_ALONE, _MOST_ALONE = 1, 256
# Deadlines served in a row before the sockets get their turn.
_DEADLINES_IN_A_ROW = 4
# For so long an application may send batch after batch, or take one packet after the other that came alone, before all sockets
# and all other deadlines get their turn.
_TURN_IVL = 250 * MICROSECOND

_this_thread = threading.get_ident
# In place of the thread where a node may be used, which neither is.
_CLOSED, _TORN = 0, -1


class _Input:
    """One socket of a node that is turned."""

    def __init__(self, driver: BusyPollDriver, link: Link, sock: socket.socket) -> None:
        self._driver = driver
        self._link = link
        self._sock = sock
        self.was_single = False  # whether the last read gave one packet: the next is likely to be so, too

    def read(self, *, gathers: bool) -> None:
        """Take what waits."""
        if gathers or not self.was_single or not self.look(1):
            self.was_single = self._driver.read(self._link, self._sock, gathers=gathers)

    def look(self, most: int) -> int:
        """Look so often at most for a single packet, past all else, if that may be; returns which look brought anything, 0 for none."""
        driver, link, sock = self._driver, self._link, self._sock
        take = driver.take_alone
        if take is None or driver.observer is not None or not link.reads_alone:
            return 0
        looks = link.read_alone(sock, take, most)
        if looks < 0:
            self.was_single = driver.read(link, sock, gathers=False)
        return abs(looks)


class BusyPollLoop:
    """Turns all nodes of one thread. Made and forgotten by `BusyPollDriver`."""

    _of_thread = threading.local()

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._poll = self._epoll.poll
        self._inputs: dict[int, _Input] = {}
        self._busiest: _Input | None = None  # the one that brought the last single packet
        self._drivers: list[BusyPollDriver] = []
        self._deadline_ns = 0
        self._is_stale = True  # whether `_deadline_ns` must be asked for again
        self._reads = 0  # since a turn found nothing
        self._row = 0  # reads behind one another, as far as is known: no look was in vain between them
        self._alone = _FEWEST_ALONE  # so many of them may be of single packets, and nobody looks for more behind them
        self._heard: BusyPollDriver | None = None  # who read a train, and may have something to do when nothing comes
        self.is_performing = False  # whether an application may be called back: what it sends then goes afterwards
        self._owing: list[BusyPollDriver] = []  # who was given something to send meanwhile
        self.now_ns = 0  # when it was last found that nothing waits
        self._turned_ns = 0  # when all sockets were looked at last
        self.thread = threading.get_ident()

    @classmethod
    def here(cls) -> BusyPollLoop:
        """The spinner of the calling thread."""
        found: BusyPollLoop | None = getattr(cls._of_thread, "spinner", None)
        if found is None:
            found = cls._of_thread.spinner = cls()
        return found

    def add(self, driver: BusyPollDriver) -> None:
        """Turn this one too."""
        self._drivers.append(driver)
        self._is_stale = True
        try:
            for link in driver.links:
                for sock in link.inputs:
                    self._epoll.register(sock, select.EPOLLIN)
                    self._inputs[sock.fileno()] = _Input(driver, link, sock)
        except BaseException:  # of the kernel: there is a limit to what may be watched
            self.remove(driver)
            raise

    def remove(self, driver: BusyPollDriver) -> None:
        """Turn it no more; its sockets are still open."""
        self._drivers.remove(driver)
        self._owing = [one for one in self._owing if one is not driver]
        self._busiest = self._heard = None
        for link in driver.links:
            for sock in link.inputs:
                if self._inputs.pop(sock.fileno(), None) is not None:
                    self._epoll.unregister(sock)
        if not self._drivers:
            self._epoll.close()
            if getattr(self._of_thread, "spinner", None) is self:
                del self._of_thread.spinner

    def expect_change(self) -> None:
        """Say that a core was called, so its deadline may be another."""
        self._is_stale = True

    def expect_owed(self, driver: BusyPollDriver) -> None:
        """Say that an application that was called back gave a driver's core something to send."""
        self._is_stale = True
        if driver not in self._owing:
            self._owing.append(driver)

    def send_owed(self) -> None:
        """Send at once what was given in callbacks, as far as rate and links allow; the rest goes with the next turns."""
        while self._owing:
            self._owing.pop(0).serve(time.monotonic_ns())

    def expect_idle(self, driver: BusyPollDriver) -> None:
        """Call a driver's `rest` once when nothing waits."""
        self._heard = driver

    def expect_by(self, at_ns: int) -> None:
        """Say that a core was called, and has nothing to do before this; nor has it for anything that was known before."""
        if at_ns < self._deadline_ns:
            self._deadline_ns = at_ns

    def block(self, ivl: int) -> None:
        """Wait in the kernel until something comes, a deadline does, or `ivl` ns are over; returns at once where less than a millisecond is left."""
        if self._is_stale:
            self._is_stale = False
            self._deadline_ns = min([driver.deadline_ns for driver in self._drivers], default=NEVER)
        left_ms = min(ivl, self._deadline_ns - time.monotonic_ns()) // MILLISECOND
        if left_ms > 0:
            self._epoll.poll(left_ms / 1000)

    def spin(self) -> None:
        """The same as a turn, or several, for whoever waits: looks most at the socket that brought the last single packet."""
        busiest, reads = self._busiest, self._reads
        if (
            busiest is not None
            and self._row <= self._alone
            # All others wait for it: not for long, nor for whoever takes long for each message.
            and (not reads or (reads < _READS_IN_A_ROW and time.monotonic_ns() < self._turned_ns + _TURN_IVL))
        ):
            looks = busiest.look(_LOOKS)
            if looks:
                self._reads = reads + 1
                self._row = self._row + 1 if looks == 1 else 1
                if not busiest.was_single:  # a train, or several packets
                    self._busiest, self._alone = None, _FEWEST_ALONE
                return
            self._row = 0
        self.turn()

    def turn_if_due(self, now_ns: int) -> None:
        """A turn between two sends, where the last that found nothing was long ago: NAKs must not wait for the last send."""
        if now_ns >= self.now_ns + _TURN_IVL:
            self.turn()

    def turn(self) -> None:
        """Read once from every socket that has something; otherwise serve the deadlines that have come."""
        ready = self._poll(0, _MOST_READY)
        if ready:
            self._read_all(ready)
            self._reads += 1
            self._row += 1
            if self._reads < _READS_IN_A_ROW:
                self._turned_ns = time.monotonic_ns()
                return
        else:
            self._row = 0
        self._reads = 0
        if self._is_stale:
            self._is_stale = False
            self._deadline_ns = min([driver.deadline_ns for driver in self._drivers], default=NEVER)
        now_ns = self.now_ns = self._turned_ns = time.monotonic_ns()
        if now_ns >= self._deadline_ns:
            self._is_stale = True
            for driver in tuple(self._drivers):  # of which a handler may close some
                driver.serve(now_ns)
        elif self._heard is not None and not ready:
            heard, self._heard = self._heard, None
            heard.on_idle(now_ns)

    def _read_all(self, ready: Sequence[tuple[int, int]]) -> None:
        """Read once from each of these sockets."""
        # After a pause a packet comes alone: what looks for more behind it would only make it late.
        gathers, were_single = self._row > self._alone, True
        for number, _ in ready:
            found = self._inputs.get(number)
            if found is None:
                continue  # a handler has closed it since
            found.read(gathers=gathers)
            # A handler may have closed it, and opened another of this number.
            is_there = self._inputs.get(number) is found
            self._busiest = found if found.was_single and is_there else None
            were_single = were_single and found.was_single
        if not were_single:
            self._alone = _FEWEST_ALONE
        elif gathers:
            self._row, self._alone = 0, min(2 * self._alone, _MOST_ALONE)


class BusyPollDriver(EffectPerformer):
    """Runs `core` on `links` whenever its thread's spinner turns. What is not for the network goes to `application`.

    While `bulk_rte` octets a second or more come, memory is taken as `pgm.net.driver.trio_driver.TrioDriver` does it.
    """

    def __init__(
        self,
        core: Core,
        links: Sequence[Link],
        application: Application,
        *,
        bulk_rte: int = 1,
        warm_ivl: int = 0,
        warm_octets: int = 0,
    ) -> None:
        self.core = core
        self.links = links
        self._application = application
        self._hand_over = application.take
        # Data that a link did not take, and from which octet on: they go first. What one call to the core gave, and a repair.
        self.held: deque[tuple[Send, int]] = deque()
        self.observer: Observer | None = None  # writes telemetry
        self.take_alone: TakeAlone | None = None  # is offered what comes alone, before the core
        self._warms = warm_ivl > 0
        # Says how much comes; who spins never rests.
        self._moderation = ReadModeration(0, bulk_rte, 0, core.counters, warm_ivl=warm_ivl, warm_octets=warm_octets)
        self.spinner = BusyPollLoop.here()
        self.thread = self.spinner.thread  # where it may be used
        for link in links:
            link.counters = core.counters
        self.spinner.add(self)

    @staticmethod
    def now_ns() -> int:
        """The clock of all cores in this process."""
        return time.monotonic_ns()

    def close(self) -> None:
        """Stop, and close the links."""
        if self.thread != _TORN:
            self.spinner.remove(self)
        self.thread = _CLOSED
        for link in self.links:
            link.close()

    def abandon(self) -> None:
        """Let nobody use the node again: its core was left in the midst of its work, as by a signal's handler that raises. Half done, it may stand still for ever."""
        if self.thread not in (_CLOSED, _TORN):
            self.spinner.remove(self)
            self.thread = _TORN

    def require_usable(self) -> None:
        """Raise `UsageError` after closing, or in another thread."""
        if _this_thread() != self.thread:
            self._refuse()

    def require_waiting(self) -> None:
        """The same for what turns, and in a handler: what that read would come before what is to be done behind the notice."""
        if _this_thread() != self.thread or self.spinner.is_performing:
            self._refuse()

    def turn(self) -> None:
        """Turn all nodes of the thread, for whoever waits. Raises `UsageError` after closing, which a handler may have done meanwhile."""
        self.require_usable()
        self.spinner.turn()

    @property
    def is_turned(self) -> bool:
        """Whether it was neither closed nor torn, as by a handler in the midst of a turn."""
        return self.thread == self.spinner.thread

    def _refuse(self) -> None:
        if self.thread == _TORN:
            raise UsageError(
                "a signal's handler has raised in the midst of what this source or receiver was at, which is half done",
                remedy="open it anew; a handler that notes what is to be done, and raises nothing, ends no work",
            )
        if self.thread == _CLOSED:
            raise UsageError("this source or receiver is closed", remedy="use it inside its with block")
        if _this_thread() == self.thread:
            raise UsageError(
                "a handler of notices cannot receive, poll or wait",
                remedy="note in it what is to be done, and do that behind the call that called it",
            )
        raise UsageError(
            "a source or receiver with busy_poll belongs to the thread that opened it",
            remedy="open one in each thread, or open it without busy_poll",
        )

    @property
    def deadline_ns(self) -> int:
        """When `serve` has something to do."""
        return 0 if self.held else self.core.deadline_ns

    def read(self, link: Link, sock: socket.socket, *, gathers: bool) -> bool:
        """Take what one read gives, and what it read beyond; says whether that was one packet at most: an SPM between single packets is no reason to look for them otherwise."""
        take = self.take_alone if self.observer is None else None
        is_single = True
        for reads in itertools.count():
            # In the end what was read beyond, and no more: two senders by turns would keep it here for as long as they send.
            arrival = link.read(sock, gathers=gathers and reads < _READS_IN_A_ROW, take=take)
            if arrival is not None:
                is_single = not reads and arrival.train.length <= arrival.train.stride
                try:
                    self._hear(link, arrival)
                except BaseException:  # of a notice's handler, or a signal's: nobody else would look at what is held
                    if self.is_turned and link.holds(sock):
                        self.read(link, sock, gathers=False)
                    raise
            if not (self.is_turned and link.holds(sock)):
                break
        return is_single

    def _hear(self, link: Link, arrival: SocketRead) -> None:
        try:
            effects = deliver_to_core(self.core, self.observer, link, arrival, time.monotonic_ns())
        except BaseException:
            self.abandon()
            raise
        self.spinner.expect_change()
        if self._warms:
            self._moderation.read(arrival.train.length)
            self.spinner.expect_idle(self)
        if effects:
            self.perform(effects)

    def on_idle(self, now_ns: int) -> None:
        """Nothing waits: there is time for a little memory for what will wait behind a gap."""
        self._moderation.rest_ns(now_ns)
        if self._moderation.warm_octets:
            self.links[0].warm_up(self._moderation.warm_octets)

    def serve(self, now_ns: int) -> None:
        """Send what was held up, then serve the core's deadline for as long as it has come."""
        for _ in range(_DEADLINES_IN_A_ROW):
            if not self.is_turned:
                return
            if self.held and not self._send_held():
                return
            if self.core.deadline_ns > now_ns:
                return
            self.perform(self._handle_deadline(now_ns))
            now_ns = time.monotonic_ns()

    def _handle_deadline(self, now_ns: int) -> Effects:
        try:
            return self.core.handle_deadline(now_ns)
        except BaseException:
            self.abandon()
            raise

    def push(self) -> None:
        """Send at once what the core has accepted, as far as rate and link allow."""
        now_ns = time.monotonic_ns()
        try:
            if not self.held:
                self.perform(self._handle_deadline(now_ns))
        finally:  # also where a notice's handler raises
            self.spinner.expect_change()
        if self.is_turned:
            self.spinner.turn_if_due(now_ns)

    def send_now(self, send: Send) -> None:
        """Put data on the wire that the core gave outside of its deadline; what the link does not take is held."""
        if self.observer is not None:
            self.observer.performed((send,), time.monotonic_ns())
        self._send_data_now(send)
        self.spinner.expect_change()

    def perform(self, effects: Effects) -> None:
        """Do what a call to the core caused.

        An application that is called back may send: that comes behind all that is done here, in the order of its sqns, and
        is not done from within the callback, where a send that causes another callback would go ever deeper.
        """
        spinner = self.spinner
        if spinner.is_performing:
            self._perform(effects)
            return
        spinner.is_performing = True
        try:
            self._perform(effects)
            spinner.send_owed()
        finally:
            spinner.is_performing = False

    def _perform(self, effects: Effects) -> None:
        while effects:
            if self.observer is not None:
                self.observer.performed(effects, time.monotonic_ns())
            self._do(effects)
            effects = self._application.after()

    def _send_data_now(self, send: Send) -> None:
        """Send data behind all that is held; what the link does not take is held, too."""
        if not self.held:
            try:
                self.links[send.segment.index].send(send)
                return
            except WouldBlock as blocked:
                self.held.append((send, blocked.at))
        else:
            self.held.append((send, 0))

    def _send_held(self) -> bool:
        """Send what is held as far as links take it; says whether all went."""
        while self.held:
            send, at = self.held[0]
            try:
                self.links[send.segment.index].send(send, at)
            except WouldBlock as blocked:
                self.held[0] = send, blocked.at
                return False
            self.held.popleft()
        return True


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
