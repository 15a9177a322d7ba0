"""Applications of a simulation: they offer messages, or take them.

The application of a source records its messages in a `SentMessages`. The application of a receiver keeps a
`DeliveryCheck` for every session. A delivery that differs from the offered messages fails the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NoReturn, Protocol

import attrs
import numpy as np

from pgm.core.effects import (
    Closed,
    Conflict,
    Deliver,
    Effect,
    Effects,
    Forged,
    Lost,
    NoSnapshot,
    Opened,
    Snapshot,
    SnapshotWanted,
)
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.companions import CompanionSource
from pgm.core.source.source import SourceCore
from pgm.parameters import Parameters
from pgm.sim.delivery_check import DeliveryCheck, UnorderedDeliveryCheck
from pgm.sim.network import Action
from pgm.sim.sent_messages import SentMessages
from pgm.units import NEVER, SECOND
from pgm.wire.formats import DATA_HEADER_OCTETS, FRAGMENT_OCTETS, Tsi
from pgm.wire.train import Octets


class ApplicationHost(Protocol):
    """Interface of the node on which an application runs."""

    @property
    def now_ns(self) -> int:
        """Virtual time, ns."""

    @property
    def parameters(self) -> Parameters:
        """Parameters of the node."""

    @property
    def ledgers(self) -> dict[Tsi, SentMessages]:
        """Messages sent in every session."""

    def later(self, at_ns: int, action: Action) -> None:
        """Run an action at an instant, unless the core has been replaced by then."""

    def rearm(self) -> None:
        """Read the core's deadline again, after a call from outside the driver."""

    def perform(self, effects: Effects) -> None:
        """Carry out the effects of a core."""

    def fail(self, problem: str) -> NoReturn:
        """Raise `InvariantBroken`."""


@attrs.frozen
class Traffic:
    """Messages that a source's application offers. Times in ns, sizes in octets."""

    messages: int
    size: int = 1000
    size_until: int = 0  # draw each size from `size` to this one; 0: all of one size
    rate: int = 0  # messages a second; 0: as fast as the source accepts them
    burst: int = 1  # messages offered at a time
    start_ns: int = 0
    state_octets: int = 0  # of each state for joiners
    close_at_ns: int = 0  # close once all messages are offered, but not before; NEVER: leave the session open


class SourceApplication:
    """Application of a source: it offers messages, waits for room, closes the source."""

    def __init__(self, host: ApplicationHost, traffic: Traffic, generator: np.random.Generator) -> None:
        self._host = host
        self.traffic = traffic
        self._generator = generator
        self._left = traffic.messages
        self._planned_ns = 0
        self._core: SourceCore | None = None
        self._ledger = SentMessages(0, 0)
        self.is_waiting = False  # for room

    def started(self, core: object) -> None:
        """Start a new session for the remaining messages. Runs at each start of the source."""
        assert isinstance(core, SourceCore)
        self._core = core
        self._ledger = self._host.ledgers[core.setup.tsi] = SentMessages(core.window.end, core.setup.data_port)
        self.is_waiting = False
        self._planned_ns = max(self._host.now_ns, self.traffic.start_ns)
        self._host.later(self._planned_ns, self._offer)

    @property
    def offered(self) -> int:
        """Messages offered so far."""
        return self.traffic.messages - self._left

    def take(self, effect: Effect) -> None:
        """Give a state that is wanted; fail the run for any other effect, since a source delivers nothing."""
        if not isinstance(effect, SnapshotWanted):
            self._host.fail(f"a source returned {effect}")
        self._host.later(self._host.now_ns, self._give_state)

    def _give_state(self) -> None:
        core = self._core
        assert isinstance(core, CompanionSource)
        state = self._octets(self.traffic.state_octets).tobytes()
        self._ledger.states[self._ledger.end] = state
        self._host.perform(core.put_state(state, self._host.now_ns))
        self._host.rearm()

    def turn(self) -> None:
        """Offer more if the source has room again; runs after each call of the core."""
        if self.is_waiting and self._core is not None and self._core.room_octets > 0:
            self.is_waiting = False
            self._offer()

    def _offer(self) -> None:
        core, traffic = self._core, self.traffic
        assert core is not None
        if core.room_octets <= 0:
            self.is_waiting = True
            return
        count = min(traffic.burst, self._left)
        if count:
            self.submit(core, count)
        self._left -= count
        if not self._left:
            if traffic.close_at_ns < NEVER:
                self._host.later(max(traffic.close_at_ns, self._host.now_ns), self._close)
        elif traffic.rate:
            self._planned_ns += count * SECOND // traffic.rate
            self._host.later(max(self._planned_ns, self._host.now_ns), self._offer)
        else:
            self.is_waiting = True
        self._host.rearm()

    def _close(self) -> None:
        assert self._core is not None
        self._core.close()
        self._ledger.closed_ns = self._host.now_ns
        self._host.rearm()

    def submit(self, core: SourceCore, count: int) -> None:
        """Submit messages, and note them for the check of deliveries."""
        low, high = self.traffic.size, max(self.traffic.size, self.traffic.size_until)
        self._ledger.skip_to(core.window.next_sqn)
        if low == high and low <= self._largest:
            rows = self._octets(count * low).reshape(count, low)
            core.submit_rows(rows)
            self._ledger.add_rows(rows)
        else:
            payloads = [self._octets(int(size)) for size in self._generator.integers(low, high, count, endpoint=True)]
            core.submit([payload.tobytes() for payload in payloads])
            for payload in payloads:
                self._record(payload)
        if self._ledger.end != core.window.end:
            self._host.fail(f"{self._ledger.end} sqns were expected, the source has {core.window.end}")

    def _octets(self, count: int) -> Octets:
        return self._generator.integers(0, 256, count, np.uint8)

    @property
    def _largest(self) -> int:
        """Octets of the largest message that fits one packet."""
        assert self._core is not None
        return self._core.max_tpdu - DATA_HEADER_OCTETS

    def _record(self, payload: Octets) -> None:
        if len(payload) <= self._largest:
            self._ledger.add_rows(payload.reshape(1, -1))
        else:
            self._ledger.add_large(payload.tobytes(), -(-len(payload) // (self._largest - FRAGMENT_OCTETS)))


@attrs.frozen
class ConsumptionRate:
    """Rate at which a receiver's application takes deliveries; by default at once."""

    octets_per_s: int = 0  # 0: at once
    stops_at_ns: int = NEVER  # the application takes nothing from this instant ...
    resumes_at_ns: int = NEVER  # ... until this one


class ReceiverApplication:
    """Application that takes deliveries at its own rate and checks them."""

    def __init__(
        self,
        host: ApplicationHost,
        appetite: ConsumptionRate,
        unordered_ports: frozenset[int] = frozenset(),
        check: Callable[..., DeliveryCheck] = DeliveryCheck,
    ) -> None:
        self._host = host
        self._unordered_ports = unordered_ports
        self._check = check  # of ordered streams
        self._appetite = appetite
        self._core: ReceiverCore | None = None
        self.streams: dict[Tsi, DeliveryCheck] = {}  # the present session of each source
        self.past: list[DeliveryCheck] = []  # sessions of earlier cores, and sessions that were opened again
        self._granted = 0  # octets taken and not yet granted to the core
        self._queue: deque[int] = deque()  # octets of each delivery that is not taken yet
        self._queued = 0
        self._is_consuming = False
        self.is_waiting = False  # for the end of the present call

    def started(self, core: object) -> None:
        """Start with a new core that has no session."""
        assert isinstance(core, ReceiverCore)
        self._core = core
        self.past += self.streams.values()
        self.streams = {}
        self._queue.clear()
        self._granted = self._queued = 0
        self._is_consuming = self.is_waiting = False

    @property
    def all_streams(self) -> list[DeliveryCheck]:
        """Every session so far."""
        return [*self.past, *self.streams.values()]

    def take(self, effect: Effect) -> None:
        """Handle one effect of the core."""
        if isinstance(effect, Deliver):
            self._stream(effect).delivered(effect)
            self._consume(effect.run.octets, effect.run.stride)
        elif isinstance(effect, Lost):
            self._stream(effect).lost_some(effect)
        elif isinstance(effect, Conflict):
            self._stream(effect).conflicts.append(effect)
        elif isinstance(effect, Forged):
            self._stream(effect).forged.append(effect)
        elif isinstance(effect, Opened):
            self._opened(effect)
        elif isinstance(effect, Closed):
            self._stream(effect).ended(effect)
        elif isinstance(effect, Snapshot):
            self._stream(effect).began_with(effect)
        elif isinstance(effect, NoSnapshot):
            self._stream(effect).no_snapshot = effect.cause

    def _stream(self, effect: Deliver | Lost | Conflict | Forged | Closed | Snapshot | NoSnapshot) -> DeliveryCheck:
        stream = self.streams.get(effect.tsi)
        if stream is None:
            self._host.fail(f"{effect} of a session that was not opened")
        return stream

    def _opened(self, opened: Opened) -> None:
        known = self.streams.get(opened.tsi)
        if known is not None and opened.resumed:
            known.resumed(opened)
            return
        if known is not None and not known.is_over:
            self._host.fail(f"{opened} while the session is open")
        if known is not None:
            self.past.append(known)
        if opened.resumed:
            self._host.fail(f"{opened} resumes a session that never was")
        ledger = self._host.ledgers.get(opened.tsi)
        kind = UnorderedDeliveryCheck if opened.data_port in self._unordered_ports else self._check
        self.streams[opened.tsi] = kind(opened, ledger, self._host.parameters.max_apdu, self._host.fail)

    def _consume(self, octets: int, packet: int) -> None:
        """Take a delivery at once, or at the application's rate. The queue may exceed its bound by one packet."""
        appetite = self._appetite
        if not appetite.octets_per_s and appetite.stops_at_ns == NEVER:
            self._granted += octets
            self.is_waiting = True
            return
        self._queue.append(octets)
        self._queued += octets
        if self._queued >= self._host.parameters.inbox_bytes + packet:
            self._host.fail(f"{self._queued} octets delivered and not taken exceed inbox_bytes")
        self._consume_next()

    def _consume_next(self) -> None:
        if self._is_consuming or not self._queue:
            return
        self._is_consuming = True
        appetite, now_ns = self._appetite, self._host.now_ns
        ivl = self._queue[0] * SECOND // appetite.octets_per_s if appetite.octets_per_s else 0
        at_ns = now_ns + ivl
        if appetite.stops_at_ns <= at_ns < appetite.resumes_at_ns:
            at_ns = appetite.resumes_at_ns
        if at_ns < NEVER:
            self._host.later(at_ns, self._consumed)

    def _consumed(self) -> None:
        octets = self._queue.popleft()
        self._queued -= octets
        self._granted += octets
        self._is_consuming = False
        self.turn()
        self._consume_next()

    def turn(self) -> None:
        """Grant the core the octets taken; runs after the effects of each call."""
        self.is_waiting = False
        octets, self._granted = self._granted, 0
        if octets and self._core is not None:
            self._host.perform(self._core.grant(octets))


class NoApplication:
    """Application of aggregators and repairers, which have none."""

    is_waiting = False

    def __init__(self, host: ApplicationHost) -> None:
        self._host = host

    def started(self, core: object) -> None:
        """Do nothing."""

    def take(self, effect: Effect) -> None:
        """Fail the run: an element delivers nothing."""
        self._host.fail(f"an element returned {effect}")

    def turn(self) -> None:
        """Do nothing."""


Application = SourceApplication | ReceiverApplication | NoApplication
