"""Node of a simulation: a core, its driver in virtual time, its application.

The driver keeps the contract of `pgm.core.interface`. Control is sent at once or dropped. Data that the link refuses is
held. Until held data has left, the core's deadline is not served. For data that came from a read, only the socket of
that read stays unread. A deadline is served when it is due, and at once if it lies in the past.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NoReturn

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects, Notice, Save, Send
from pgm.core.interface import Core
from pgm.core.segment import Channel
from pgm.core.source.source import SourceCore
from pgm.parameters import Parameters
from pgm.sim.applications import Application
from pgm.sim.network import Action, Attachment, Network, targets_of
from pgm.sim.run_log import RunLog
from pgm.sim.scheduler import Scheduler
from pgm.sim.sent_messages import SentMessages
from pgm.topology.node_plan import NodePlan, Role
from pgm.units import NEVER
from pgm.wire.formats import Nla, Tsi
from pgm.wire.train import Train

# A core that is called this often at one instant is in a loop. Its buckets bound the work at one instant to a few
# trains.
_MAX_IDLE_CALLS = 16
_MAX_CALLS = 10_000


STREAM_MARK = "/"  # between a source's name and the name of one of its streams


@attrs.define
class _OutgoingTrain:
    """Train on its way to the link."""

    attachment: Attachment
    send: Send
    train: Train
    handed_ns: int  # when the core returned the train
    channel: Channel | None  # channel of the read that caused the train; None: a deadline caused it
    copies: int = 0  # copies that have left

    def has_room(self, now_ns: int) -> bool:
        return self.attachment.egress.has_room(self.train.length, now_ns)

    @property
    def room_at_ns(self) -> int:
        return self.attachment.egress.room_at_ns(self.train.length)


@attrs.define
class _Unread:
    """Unread trains of a socket."""

    # Each with its number in the order of arrival at all sockets.
    arrivals: deque[tuple[int, Train, Channel, Nla]] = attrs.field(factory=deque)
    octets: int = 0


class _SocketBuffers:
    """Unread trains of all sockets of a node, of `most_octets` for each socket."""

    def __init__(self, most_octets: int) -> None:
        self._most_octets = most_octets
        self._unread: defaultdict[Channel, _Unread] = defaultdict(_Unread)
        self._arrivals = 0  # trains that had to wait

    def add(self, train: Train, channel: Channel, peer: Nla) -> bool:
        """Store a train that arrived. Return False, and store nothing, if its buffer is full."""
        unread = self._unread[channel]
        if unread.octets + train.length > self._most_octets:
            return False
        unread.octets += train.length
        unread.arrivals.append((self._arrivals, train, channel, peer))
        self._arrivals += 1
        return True

    def pop(self, is_blocked: Callable[[Channel], bool]) -> tuple[Train, Channel, Nla] | None:
        """Remove the first train of a socket that is not blocked, in order of arrival; None if there is none."""
        ready = [queue for channel, queue in self._unread.items() if queue.arrivals and not is_blocked(channel)]
        if not ready:
            return None
        unread = min(ready, key=lambda queue: queue.arrivals[0][0])
        _, train, channel, peer = unread.arrivals.popleft()
        unread.octets -= train.length
        return train, channel, peer

    def clear(self) -> None:
        """Drop all trains."""
        self._unread.clear()


@attrs.define
class _ProgressCheck:
    """Calls of a core at one instant, to find a core that asks to run without end."""

    at_ns: int = -1
    calls: int = 0
    idle_calls: int = 0  # calls in a row without effects

    def add(self, now_ns: int, *, has_acted: bool) -> bool:
        """Count a call. Return whether there may be more calls at this instant."""
        if self.at_ns != now_ns:
            self.at_ns, self.calls, self.idle_calls = now_ns, 0, 0
        self.calls += 1
        self.idle_calls = 0 if has_acted else self.idle_calls + 1
        return self.idle_calls <= _MAX_IDLE_CALLS and self.calls <= _MAX_CALLS


@attrs.define
class _Suspension:
    """Pauses of a process that are in force now, and the actions that wait for their end. Faults may overlap."""

    since_ns: int = 0  # start of the present or last pause
    pauses: int = 0
    postponed: list[Action] = attrs.field(factory=list)


class NodeObserver:
    """Hooks into the life of all nodes. A world calls only the hooks that an observer defines."""

    def attach(self, world: object) -> None:
        """Store the world that the observer is added to."""

    def started(self, node: SimulatedNode) -> None:
        """Handle a new core of a node."""

    def resumed(self, node: SimulatedNode) -> None:
        """Handle a stopped node that resumes."""

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """Handle a train before a core gets it."""

    def called(self, node: SimulatedNode) -> None:
        """Handle the end of a call of a core, after its effects."""

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """Handle octets that a node puts on a segment."""

    def performs(self, node: SimulatedNode, effects: Effects) -> None:
        """Handle the effects that a core returned."""

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        """Handle an effect that an application received."""

    def finish(self) -> None:
        """Handle the end of the run."""


HOOKS = ("started", "resumed", "received", "called", "sent", "performs", "effect")


@attrs.define
class Hooks:
    """Observers of a world, by the hook that they define."""

    started: list[NodeObserver] = attrs.field(factory=list)
    resumed: list[NodeObserver] = attrs.field(factory=list)
    received: list[NodeObserver] = attrs.field(factory=list)
    called: list[NodeObserver] = attrs.field(factory=list)
    sent: list[NodeObserver] = attrs.field(factory=list)
    performs: list[NodeObserver] = attrs.field(factory=list)
    effect: list[NodeObserver] = attrs.field(factory=list)

    def add(self, observer: NodeObserver) -> None:
        """Register an observer for every hook that its class overrides."""
        for name in HOOKS:
            if getattr(type(observer), name) is not getattr(NodeObserver, name):
                getattr(self, name).append(observer)


@attrs.frozen
class NodeContext:
    """Parts of a world that all nodes share. Drivers sleep in steps of `timer_slack_ns`."""

    scheduler: Scheduler
    log: RunLog
    network: Network
    hooks: Hooks
    ledgers: dict[Tsi, SentMessages]
    timer_slack_ns: int


class SimulatedNode:
    """Node of the simulated tree."""

    def __init__(self, context: NodeContext, index: int, plan: NodePlan) -> None:
        self.context = context
        self._scheduler = context.scheduler
        self.index = index
        self.plan = plan
        self.name = plan.name
        self.attachments: list[Attachment] = []  # by index of the segment in the plan
        self.application: Application
        self.core: Core | None = None
        self.starts = 0
        self.counters: list[Counters] = []  # of every core that ran here
        self._suspension = _Suspension()
        # when the core returned the train being sent: earlier than now if the train waited for the line
        self.handed_ns = 0
        self._armed_ns = NEVER
        self._held: defaultdict[int, deque[_OutgoingTrain]] = defaultdict(deque)  # by index of the segment
        self._sockets = _SocketBuffers(plan.parameters.so_rcvbuf)
        self._progress = _ProgressCheck()

    @property
    def is_receiver(self) -> bool:
        """Whether the node is a receiver."""
        return self.plan.role is Role.RECEIVER

    @property
    def host(self) -> str:
        """Name of the node in the topology file, without the stream of a source."""
        return self.name.partition(STREAM_MARK)[0]

    @property
    def may_share_address(self) -> bool:
        """Whether the node may share its address with other nodes."""
        return self.plan.may_share_address

    # The application's interface

    @property
    def now_ns(self) -> int:
        """Virtual time, ns."""
        return self._scheduler.now_ns

    @property
    def parameters(self) -> Parameters:
        """Parameters of the node."""
        return self.plan.parameters

    @property
    def ledgers(self) -> dict[Tsi, SentMessages]:
        """Messages sent in every session."""
        return self.context.ledgers

    def later(self, at_ns: int, action: Action) -> None:
        """Run an action at an instant, after a pause if stopped, unless the core has been replaced by then."""
        self._scheduler.at(at_ns, functools.partial(self._run_action, self.starts, action), self.name)

    def _run_action(self, starts: int, action: Action) -> None:
        if starts != self.starts or self.core is None:
            return
        if self.is_paused:
            self._suspension.postponed.append(action)
        else:
            action()

    def fail(self, problem: str) -> NoReturn:
        """Raise `InvariantBroken`."""
        self.context.log.fail(self.name, problem)

    def total(self, counter: str) -> int:
        """Return the sum of a counter over all cores that ran here."""
        return sum(getattr(counters, counter) for counters in self.counters)

    # Life cycle

    def start(self, core: Core) -> None:
        """Run a new core."""
        self.starts += 1
        self.core = core
        self.counters.append(core.counters)
        self._suspension.pauses = 0
        self._suspension.postponed = []
        self._held.clear()
        self._sockets.clear()
        self._armed_ns = NEVER
        for observer in self.context.hooks.started:
            observer.started(self)
        self.application.started(core)
        self.rearm()

    def stop(self) -> None:
        """End the process: nothing more is received or sent."""
        self.core = None

    @property
    def is_paused(self) -> bool:
        """Whether the process is stopped."""
        return self._suspension.pauses > 0

    @property
    def paused_ns(self) -> int:
        """Start of the present or last pause, ns."""
        return self._suspension.since_ns

    def pause(self) -> None:
        """Stop the process without ending it. Arriving trains wait in its buffers of so_rcvbuf octets each."""
        if not self.is_paused:
            self._suspension.since_ns = self._scheduler.now_ns
        self._suspension.pauses += 1

    def resume(self) -> None:
        """Undo one `pause`; undoing the last one resumes the process."""
        was_paused = self.is_paused
        self._suspension.pauses = max(0, self._suspension.pauses - 1)
        if self.is_paused or not was_paused:
            return
        for observer in self.context.hooks.resumed:
            observer.resumed(self)
        self._read()
        postponed, self._suspension.postponed = self._suspension.postponed, []
        if self.core is not None:
            for action in postponed:
                action()
            for index in tuple(self._held):
                self._release(index)
        self._armed_ns = NEVER
        self.rearm()

    # The driver

    def hear(self, train: Train, channel: Channel, peer: Nla) -> None:
        """Handle a train that arrived."""
        if self.core is None:
            return
        if self.is_paused or self._is_blocked(channel):
            self._wait(train, channel, peer)
        else:
            self._take(self.core, train, channel, peer)

    def _take(self, core: Core, train: Train, channel: Channel, peer: Nla) -> None:
        counters = core.counters
        counters.trains_in += 1
        counters.packets_in += train.count
        for observer in self.context.hooks.received:
            observer.received(self, train, channel, peer)
        effects = core.receive(train, channel, peer, self._scheduler.now_ns)
        if effects:
            self.perform(effects, channel)
        self._finish_call()

    def _is_blocked(self, channel: Channel | None) -> bool:
        """Return whether a line still holds data that reads of `channel` caused; None means a deadline."""
        return bool(self._held) and any(train.channel is channel for held in self._held.values() for train in held)

    def _wait(self, train: Train, channel: Channel, peer: Nla) -> None:
        assert self.core is not None
        if not self._sockets.add(train, channel, peer):
            self.core.counters.socket_drops += train.count

    def _read(self) -> None:
        """Read the waiting trains of sockets that are not blocked, in order of arrival."""
        while self.core is not None:
            arrival = self._sockets.pop(self._is_blocked)
            if arrival is None:
                return
            self._take(self.core, *arrival)

    def wake(self) -> None:
        """Serve the core's deadline."""
        scheduler, core = self._scheduler, self.core
        if self._armed_ns > scheduler.now_ns or core is None or self.is_paused or self._is_blocked(None):
            return
        self._armed_ns = NEVER
        if core.deadline_ns > scheduler.now_ns:
            self.rearm()
            return
        effects = core.handle_deadline(scheduler.now_ns)
        self._check_progress(bool(effects))
        if effects:
            self.perform(effects)
        self._finish_call()
        if isinstance(core, SourceCore) and core is self.core and core.is_finished(scheduler.now_ns):
            self.stop()

    def _check_progress(self, has_acted: bool) -> None:
        """Fail the run if a core asks to run without end at one instant."""
        progress = self._progress
        if not progress.add(self._scheduler.now_ns, has_acted=has_acted):
            self.fail(f"sets its deadline without end: {progress.calls} calls, {progress.idle_calls} without effects")

    def _finish_call(self) -> None:
        if self.application.is_waiting:
            self.application.turn()
        for observer in self.context.hooks.called:
            observer.called(self)
        self.rearm()

    def rearm(self) -> None:
        """Schedule an event for the core's deadline, if none that early exists. Later deadlines are read again."""
        core = self.core
        if core is None:
            return
        deadline_ns = core.deadline_ns
        if deadline_ns >= self._armed_ns:
            return
        slack_ns = self.context.timer_slack_ns
        if slack_ns:
            deadline_ns = -(-deadline_ns // slack_ns) * slack_ns
        deadline_ns = max(deadline_ns, self._scheduler.now_ns)
        if deadline_ns < self._armed_ns:
            self._armed_ns = deadline_ns
            self._scheduler.at(deadline_ns, self.wake, self.name)

    def perform(self, effects: Effects, channel: Channel | None = None) -> None:
        """Carry out effects in order. `channel` is that of the read that caused the effects."""
        for observer in self.context.hooks.performs:
            observer.performs(self, effects)
        for effect in effects:
            if type(effect) is Send:
                self._send(effect, channel)
            elif isinstance(effect, Notice):
                self.context.log.add_notice(self.name, effect)
            else:
                if not isinstance(effect, Save):  # which concerns the next core, not the application
                    self.context.log.add_effect(self.name, effect)
                    self.application.take(effect)
                for observer in self.context.hooks.effect:
                    observer.effect(self, effect)

    def _send(self, send: Send, channel: Channel | None) -> None:
        index = send.segment.index
        if not send.is_data and self.core is not None and self.core.control_codes.has_any:
            coded = self.core.control_codes.coded(send, self._scheduler.now_ns)
            if coded is None:
                return
            send = coded
        train = Train.of(send.octets, send.stride)
        outgoing = _OutgoingTrain(self.attachments[index], send, train, self._scheduler.now_ns, channel)
        is_behind = send.is_data and index in self._held
        if not is_behind and outgoing.has_room(self._scheduler.now_ns) and self._put(outgoing):
            return
        if send.is_data:
            self._hold(outgoing)
            return
        assert self.core is not None
        self.core.counters.sends_dropped += outgoing.train.count

    def _hold(self, outgoing: _OutgoingTrain) -> None:
        held = self._held[outgoing.send.segment.index]
        held.append(outgoing)
        if len(held) == 1:
            release = functools.partial(self._release, outgoing.send.segment.index)
            self._scheduler.at(outgoing.room_at_ns, release, self.name)

    def _put(self, outgoing: _OutgoingTrain) -> bool:
        """Put a train on the wire, on a unicast leg once for each peer.

        Return whether all copies have left. A copy of data without room waits; a copy of control is dropped.
        """
        if not outgoing.copies:
            self.handed_ns = outgoing.handed_ns
            self.context.log.add_send(self.name, outgoing.send, outgoing.train)
            for observer in self.context.hooks.sent:
                observer.sent(self, outgoing.send, outgoing.train)
        targets = targets_of(outgoing.send)
        for to in targets[outgoing.copies :]:
            if outgoing.copies and not outgoing.has_room(self._scheduler.now_ns):
                if outgoing.send.is_data:
                    return False
                assert self.core is not None
                self.core.counters.sends_dropped += outgoing.train.count
            else:
                self.context.network.leave(outgoing.attachment, to, outgoing.train, self._scheduler.now_ns)
            outgoing.copies += 1
        return True

    def _release(self, index: int) -> None:
        """Send held trains while the link has room; then read the sockets, and rearm."""
        if self.core is None:
            self._held.clear()
        held = self._held.get(index)
        if held is None or self.is_paused:
            return
        while held and held[0].has_room(self._scheduler.now_ns) and self._put(held[0]):
            held.popleft()
        if held:
            self._scheduler.at(held[0].room_at_ns + 1, functools.partial(self._release, index), self.name)
        else:
            del self._held[index]
        self._read()
        self._armed_ns = NEVER
        self.rearm()
