"""Base of drivers: effects of a core performed on links, and reads with everything that they held back."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import ParamSpec, Protocol

from pgm.core.effects import NOTHING, Deliver, Effect, Effects, Evidence, Notice, Save, Send, Snapshot, SnapshotWanted
from pgm.core.events import ForApplication, Happening
from pgm.core.interface import Core
from pgm.net.link.link import Link, WouldBlock
from pgm.net.link.node_links import NodeLinks
from pgm.net.link.reader import SocketRead, TakeSingle
from pgm.net.sockets.inputs import Input
from pgm.telemetry.observers import CoreObserver
from pgm.telemetry.snapshot import MOST_EVENTS
from pgm.units import MILLISECOND

# Gathering reads in a row before only packets held back are read: two interleaved senders would otherwise keep the loop
# for as long as they send. A read of 64 KB takes some 50 us, so timers are late by less than their step.
READS_IN_A_ROW = 16
# Deadlines served in a row before other work gets its turn.
DEADLINES_IN_A_ROW = 4
# Lateness of a timer from which the sockets are read first: an answer may wait there. Timers of the kernel are late by
# up to one millisecond.
LATE_NS = 2 * MILLISECOND

P = ParamSpec("P")


class Application(Protocol):
    """Interface between a driver and the user of its core."""

    def take(self, effect: Effect) -> None:
        """Take a delivery, loss, opening, closing or notice."""

    def after(self) -> Effects:
        """React after effects were performed, perhaps by a call to the core. Return its effects."""


class EffectPerformer:
    """Base of drivers: performs effects at once, in order. Effects that are not for the network go to `application`."""

    now_ns = staticmethod(time.monotonic_ns)  # the clock of all cores in this process
    expect_by: Callable[[int], None]  # notes that the core was called, and has nothing to do before the given time

    def __init__(self, core: Core, links: NodeLinks, application: Application) -> None:
        self.core = core
        self.links = links
        self.observer: CoreObserver | None = None  # writes telemetry and the flight recorder
        self.happenings: deque[tuple[Happening, float]] = deque(maxlen=MOST_EVENTS)  # the last ones, with their times
        self._application = application

    @property
    def is_open(self) -> bool:
        """Return whether the driver may read its links; a handler may have closed it."""
        return True

    @property
    def sees_singles(self) -> bool:
        """Return whether an observer needs each single packet, so that none may take a fast path."""
        return self.observer is not None and self.observer.sees_singles

    @property
    def is_held_up(self) -> bool:
        """Return whether data must wait: later data must wait behind it."""
        raise NotImplementedError

    def require_usable(self) -> None:
        """Raise `UsageError` if the caller may not use the driver, or not any more."""

    def abandon(self) -> None:
        """End the use of a core that was interrupted in the middle of its work, if a signal handler can do that."""

    def reschedule(self) -> None:
        """Check the core's deadline again after a call of the core."""
        raise NotImplementedError

    def tell(self, code: str, text: str) -> None:
        """Give the application a notice of the driver."""
        self._hand_over(Notice(code, text))

    def push(self) -> None:
        """Send accepted data, at once or soon."""
        raise NotImplementedError

    def call(self, function: Callable[P, Effects], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call the core, and perform the effects."""
        try:
            effects = function(*args, **kwargs)
        except BaseException:
            self.abandon()
            raise
        if effects is not NOTHING:
            self.perform(effects)

    def perform(self, effects: Effects) -> None:
        """Perform the effects of a call from outside of the driver's own work."""
        try:
            while effects:
                if self.observer is not None:
                    self.observer.performed(effects, self.now_ns())
                self._do(effects)
                effects = self._application.after()
        finally:  # also if a notice's handler raises
            self.reschedule()

    def send_now(self, send: Send) -> None:
        """Send data that the core gave outside of its deadline; data that the link refuses is sent later."""
        if self.observer is not None:
            self.observer.performed((send,), self.now_ns())
        self._send_data_now(send)

    def _do(self, effects: Iterable[Effect]) -> None:
        remaining = iter(effects)
        try:
            for effect in remaining:
                if not isinstance(effect, Send):
                    self._hand_over(effect)
                elif effect.is_data:
                    self._send_data_now(effect)
                else:
                    self._send_control(effect)
        except BaseException:  # from a notice's handler, or a signal's: the remaining effects exist only here
            self._do(tuple(remaining))
            raise

    def _hand_over(self, effect: ForApplication) -> None:
        if not isinstance(effect, (Deliver, Evidence, Save, Snapshot, SnapshotWanted)):
            self.happenings.append((effect, time.time()))
        self._application.take(effect)

    def _send_control(self, send: Send) -> None:
        if self.core.control_codes.has_any:
            coded = self.core.control_codes.coded(send, self.now_ns())
            if coded is None:
                return
            send = coded
        try:
            self.links[send.segment.index].send(send)
        except WouldBlock as blocked:
            self.core.counters.sends_dropped += self.links[send.segment.index].packets_left(send, blocked.at)

    def _send_data_now(self, send: Send) -> None:
        """Send data; keep data that the link refuses."""
        raise NotImplementedError

    def receive(self, link: Link, sock: Input, arrival: SocketRead) -> Effects:
        """Pass a read to the core, and keep its memory if the core needs it. Return the core's effects."""
        train, now_ns = arrival.train, self.now_ns()
        if self.observer is not None:
            self.observer.received(train, arrival.channel, arrival.peer, now_ns)
        effects = self.core.receive(train, arrival.channel, arrival.peer, now_ns)
        if self.observer is not None:
            self.observer.taken()
        if train.keeping.is_kept:
            link.keep(train)
        return effects

    def take(self, link: Link, sock: Input, arrival: SocketRead) -> None:
        """Pass a read to the core, and perform the effects without a wait."""
        self.call(self.receive, link, sock, arrival)

    def company_changed(self, *, is_alone: bool) -> None:
        """Note whether this endpoint is the only one on the links."""

    def read_once(self, link: Link, sock: Input, take: TakeSingle | None, *, gathers: bool) -> tuple[int, bool]:
        """Read once, with all packets that this read held back. Single packets are offered to `take`.

        Returns the octets that `take` did not take, and whether the read gave at most one packet.
        """
        take = None if self.sees_singles else take
        octets, is_single = 0, True
        for reads in itertools.count():
            arrival = link.read(sock, gathers=gathers and reads < READS_IN_A_ROW, take=take)
            if arrival is not None:
                is_single = not reads and arrival.train.length <= arrival.train.stride
                try:
                    self.links.hand_over(link, sock, arrival)
                except BaseException:  # from a handler of notices or signals: only here are held packets read
                    if self.is_open and link.holds(sock):
                        self.read_once(link, sock, take, gathers=False)
                    raise
                octets += arrival.train.length
            if not (self.is_open and link.holds(sock)):
                break
        return octets, is_single
