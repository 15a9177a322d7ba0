"""One node: a core, its driver in virtual time, its application.

The driver keeps to the contract of `pgm.core.interface`: control is sent at once or dropped; data that the link does
not take is held, and until it is gone the core is not asked for more, or, where it came of what was read, the socket
that brought that is not read; a deadline is served when it comes, and one that lies in the past is served now.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from typing import NoReturn

import attrs

from pgm.core.counters import Counters
from pgm.core.effects import Effect, Effects, Notice, Send
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

# A core that is called this often at one instant is in a loop. What it may do at once is bounded by its buckets, a few trains.
_MOST_IDLE_CALLS = 16
_MOST_CALLS = 10_000


STREAM_MARK = "/"  # between a source's name and that of one of its streams


@attrs.define
class _Leaving:
    """A train on its way to the link."""

    attachment: Attachment
    send: Send
    train: Train
    handed_ns: int  # when the core gave it
    channel: Channel | None  # that brought what it came of; None: it was due
    copies: int = 0  # that have left

    def has_room(self, now_ns: int) -> bool:
        return self.attachment.egress.has_room(self.train.length, now_ns)

    @property
    def room_at_ns(self) -> int:
        return self.attachment.egress.room_at_ns(self.train.length)


@attrs.define
class _Unread:
    """What waits in a socket."""

    # With a number each in the order in which they came, of all sockets.
    arrivals: deque[tuple[int, Train, Channel, Nla]] = attrs.field(factory=deque)
    octets: int = 0


class NodeObserver:
    """Hooks into the life of all nodes. A world calls only the hooks that an observer defines."""

    def attach(self, world: object) -> None:
        """Take the world that the observer is added to."""

    def started(self, node: SimulatedNode) -> None:
        """A node has got a new core."""

    def resumed(self, node: SimulatedNode) -> None:
        """A stopped node goes on."""

    def received(self, node: SimulatedNode, train: Train, channel: Channel, peer: Nla) -> None:
        """A train is about to be handed to a core."""

    def called(self, node: SimulatedNode) -> None:
        """A core has run and its effects are done."""

    def sent(self, node: SimulatedNode, send: Send, train: Train) -> None:
        """A node puts octets on a segment."""

    def performs(self, node: SimulatedNode, effects: Effects) -> None:
        """A core has returned these."""

    def effect(self, node: SimulatedNode, effect: Effect) -> None:
        """An application has received an effect."""

    def finish(self) -> None:
        """The run is over."""


HOOKS = ("started", "resumed", "received", "called", "sent", "performs", "effect")


@attrs.define
class Hooks:
    """The observers of a world, by the hook that they define."""

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
    """The parts of a world that its nodes share. Drivers sleep in steps of `timer_slack_ns`."""

    scheduler: Scheduler
    log: RunLog
    network: Network
    hooks: Hooks
    ledgers: dict[Tsi, SentMessages]
    timer_slack_ns: int


class SimulatedNode:
    """A node of the simulated tree."""

    def __init__(self, context: NodeContext, index: int, plan: NodePlan) -> None:
        self.context = context
        self._scheduler = context.scheduler
        self._hooks = context.hooks
        self.index = index
        self.plan = plan
        self.name = plan.name
        self.is_receiver = plan.role is Role.RECEIVER
        self.attachments: list[Attachment] = []  # by index of the segment in the plan
        self.application: Application
        self.core: Core | None = None
        self.starts = 0
        self.counters: list[Counters] = []  # of every core that ran here
        self.paused_ns = 0  # since when it is paused
        self._pauses = 0  # that last: faults may overlap
        self.handed_ns = 0  # when the core gave what is being sent: before now where it waited for the line
        self._armed_ns = NEVER
        self._held: defaultdict[int, deque[_Leaving]] = defaultdict(deque)  # by index of the segment
        self._unread: defaultdict[Channel, _Unread] = defaultdict(_Unread)
        self._arrivals = 0  # that had to wait
        self._postponed: list[Action] = []  # what the application would have done while stopped
        self._served_ns = -1
        self._calls = 0
        self._idle_calls = 0

    @property
    def host(self) -> str:
        """The node of the topology file that this is, or is a stream of."""
        return self.name.partition(STREAM_MARK)[0]

    # What applications use

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self._scheduler.now_ns

    @property
    def parameters(self) -> Parameters:
        """The node's parameters."""
        return self.plan.parameters

    @property
    def ledgers(self) -> dict[Tsi, SentMessages]:
        """The truth of all sessions."""
        return self.context.ledgers

    def later(self, at_ns: int, action: Action) -> None:
        """Run an action at an instant, unless the core has been replaced by then; a stopped process waits."""
        self._scheduler.at(at_ns, functools.partial(self._act, self.starts, action))

    def _act(self, starts: int, action: Action) -> None:
        if starts != self.starts or self.core is None:
            return
        if self.is_paused:
            self._postponed.append(action)
        else:
            action()

    def fail(self, what: str) -> NoReturn:
        """Raise `InvariantBroken`."""
        self.context.log.fail(self.name, what)

    def total(self, counter: str) -> int:
        """A counter over all cores that ran here."""
        return sum(getattr(counters, counter) for counters in self.counters)

    # Life

    def start(self, core: Core) -> None:
        """Run a new core."""
        self.starts += 1
        self.core = core
        self.counters.append(core.counters)
        self._pauses = 0
        self._held.clear()
        self._unread.clear()
        self._armed_ns = NEVER
        self._postponed = []
        for observer in self._hooks.started:
            observer.started(self)
        self.application.started(core)
        self.rearm()

    def stop(self) -> None:
        """End the process: nothing more is heard or said."""
        self.core = None

    @property
    def is_paused(self) -> bool:
        """Whether the process is stopped."""
        return self._pauses > 0

    def pause(self) -> None:
        """Stop the process without ending it. What arrives waits in its sockets' buffers, of so_rcvbuf octets each."""
        if not self.is_paused:
            self.paused_ns = self._scheduler.now_ns
        self._pauses += 1

    def resume(self) -> None:
        """Undo one `pause`; let a stopped process go on with the last of them."""
        was_paused = self.is_paused
        self._pauses = max(0, self._pauses - 1)
        if self.is_paused or not was_paused:
            return
        for observer in self._hooks.resumed:
            observer.resumed(self)
        self._read()
        postponed, self._postponed = self._postponed, []
        if self.core is not None:
            for action in postponed:
                action()
            for index in tuple(self._held):
                self._release(index)
        self._armed_ns = NEVER
        self.rearm()

    # The driver

    def hear(self, train: Train, channel: Channel, peer: Nla) -> None:
        """Take what arrived."""
        if self.core is None:
            return
        if self.is_paused or self._is_held_up(channel):
            self._wait(train, channel, peer)
        else:
            self._take(self.core, train, channel, peer)

    def _take(self, core: Core, train: Train, channel: Channel, peer: Nla) -> None:
        counters = core.counters
        counters.trains_in += 1
        counters.packets_in += train.count
        for observer in self._hooks.received:
            observer.received(self, train, channel, peer)
        effects = core.receive(train, channel, peer, self._scheduler.now_ns)
        if effects:
            self.perform(effects, channel)
        self._after()

    def _is_held_up(self, channel: Channel | None) -> bool:
        """Whether a line has not taken all that came of what a channel brought; None: of what was due."""
        return bool(self._held) and any(one.channel is channel for held in self._held.values() for one in held)

    def _wait(self, train: Train, channel: Channel, peer: Nla) -> None:
        assert self.core is not None
        unread = self._unread[channel]
        if unread.octets + train.length > self.plan.parameters.so_rcvbuf:
            self.core.counters.socket_drops += train.count
            return
        unread.octets += train.length
        unread.arrivals.append((self._arrivals, train, channel, peer))
        self._arrivals += 1

    def _read(self) -> None:
        """Take what waits in sockets that are not held up, in the order in which it came."""
        while self.core is not None:
            ready = [one for channel, one in self._unread.items() if one.arrivals and not self._is_held_up(channel)]
            if not ready:
                return
            unread = min(ready, key=lambda one: one.arrivals[0][0])
            _, train, channel, peer = unread.arrivals.popleft()
            unread.octets -= train.length
            self._take(self.core, train, channel, peer)

    def wake(self) -> None:
        """Serve the core's deadline."""
        scheduler, core = self._scheduler, self.core
        if self._armed_ns > scheduler.now_ns or core is None or self.is_paused or self._is_held_up(None):
            return
        self._armed_ns = NEVER
        if core.deadline_ns > scheduler.now_ns:
            self.rearm()
            return
        effects = core.handle_deadline(scheduler.now_ns)
        self._watch(bool(effects))
        if effects:
            self.perform(effects)
        self._after()
        if isinstance(core, SourceCore) and core is self.core and core.is_finished(scheduler.now_ns):
            self.stop()

    def _watch(self, has_acted: bool) -> None:
        """A core that asks to run again and again at one instant must be getting somewhere."""
        if self._served_ns != self._scheduler.now_ns:
            self._served_ns, self._calls, self._idle_calls = self._scheduler.now_ns, 0, 0
        self._calls += 1
        self._idle_calls = 0 if has_acted else self._idle_calls + 1
        if self._idle_calls > _MOST_IDLE_CALLS or self._calls > _MOST_CALLS:
            self.fail(f"asks for its deadline without end: {self._calls} calls, {self._idle_calls} without effects")

    def _after(self) -> None:
        if self.application.is_waiting:
            self.application.turn()
        for observer in self._hooks.called:
            observer.called(self)
        self.rearm()

    def rearm(self) -> None:
        """Look at the core's deadline; an earlier one gets an event, a later one is found when the earlier comes."""
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
            self._scheduler.at(deadline_ns, self.wake)

    def perform(self, effects: Effects, channel: Channel | None = None) -> None:
        """Do what the core wants, in order. `channel` is the one that brought what it wants this for."""
        for observer in self._hooks.performs:
            observer.performs(self, effects)
        for effect in effects:
            if type(effect) is Send:
                self._send(effect, channel)
            elif isinstance(effect, Notice):
                self.context.log.add_notice(self.name, effect)
            else:
                self.context.log.add_effect(self.index, effect)
                self.application.take(effect)
                for observer in self._hooks.effect:
                    observer.effect(self, effect)

    def _send(self, send: Send, channel: Channel | None) -> None:
        index = send.segment.index
        train = Train.of(send.octets, send.stride)
        leaving = _Leaving(self.attachments[index], send, train, self._scheduler.now_ns, channel)
        is_behind = send.is_data and index in self._held
        if not is_behind and leaving.has_room(self._scheduler.now_ns) and self._put(leaving):
            return
        if send.is_data:
            self._hold(leaving)
            return
        assert self.core is not None
        self.core.counters.sends_dropped += leaving.train.count

    def _hold(self, leaving: _Leaving) -> None:
        held = self._held[leaving.send.segment.index]
        held.append(leaving)
        if len(held) == 1:
            self._scheduler.at(leaving.room_at_ns, functools.partial(self._release, leaving.send.segment.index))

    def _put(self, leaving: _Leaving) -> bool:
        """Put a train on the wire, on a unicast leg as often as there are peers; says whether that was all. A copy of data without room waits, another is dropped."""
        if not leaving.copies:
            self.handed_ns = leaving.handed_ns
            self.context.log.add_send(self.index, leaving.send, leaving.train)
            for observer in self._hooks.sent:
                observer.sent(self, leaving.send, leaving.train)
        targets = targets_of(leaving.send)
        for to in targets[leaving.copies :]:
            if leaving.copies and not leaving.has_room(self._scheduler.now_ns):
                if leaving.send.is_data:
                    return False
                assert self.core is not None
                self.core.counters.sends_dropped += leaving.train.count
            else:
                self.context.network.leave(leaving.attachment, to, leaving.train, self._scheduler.now_ns)
            leaving.copies += 1
        return True

    def _release(self, index: int) -> None:
        """A link takes what was held; then sockets may be read again, and the core be asked."""
        if self.core is None:
            self._held.clear()
        held = self._held.get(index)
        if held is None or self.is_paused:
            return
        while held and held[0].has_room(self._scheduler.now_ns) and self._put(held[0]):
            held.popleft()
        if held:
            self._scheduler.at(held[0].room_at_ns + 1, functools.partial(self._release, index))
        else:
            del self._held[index]
        self._read()
        self._armed_ns = NEVER
        self.rearm()
