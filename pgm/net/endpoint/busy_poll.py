"""Sources and receivers that run in the calling thread, for `busy_poll=True` in `pgm.blocking`.

A coroutine of an endpoint never suspends here: its waits poll the sockets, so one step runs it to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, ParamSpec, TypeVar, Unpack

from pgm.core.effects import Notice
from pgm.core.session.start_positions import BY_PARAMETERS
from pgm.core.window.transmit_window import Payload
from pgm.messages.arguments import Names, Payloads
from pgm.net.driver.busy_poll_driver import BusyPollDriver, pinned
from pgm.net.driver.node_tape import taping_of
from pgm.net.driver.rest_settings import receiver_read_settings
from pgm.net.endpoint.inbox import Inbox
from pgm.net.endpoint.keywords import NodeParameters
from pgm.net.endpoint.node import SharedNode, sockets_plan
from pgm.net.endpoint.open import Target, plans_of, receiver_parts, resolve, source_parts
from pgm.net.endpoint.open_nodes import OpenNodes
from pgm.net.endpoint.parameter_types import ReceiverParameters, SourceParameters
from pgm.net.endpoint.policies import Ack, OnLoss, Policies, Slow
from pgm.net.endpoint.receiver import ReceiverEndpoint
from pgm.net.endpoint.resumption import earlier_life, resuming
from pgm.net.endpoint.source import SnapshotGiver, SnapshotState, SourceEndpoint, SourceOutbox
from pgm.net.endpoint.start_position import Start, start_parameters
from pgm.net.endpoint.threads import Runner, ThreadReceiver, ThreadSource
from pgm.net.framing.items import BatchItem, Message
from pgm.net.observing import observing
from pgm.telemetry.logger import handler_of
from pgm.topology.node_plan import Role

P = ParamSpec("P")
R = TypeVar("R")


class _ThreadNodes(threading.local):
    """Open nodes of each thread that polls."""

    def __init__(self) -> None:
        self.of_this_thread = OpenNodes[None](lambda _: None)


_NODES = _ThreadNodes()


class BusyPollWaits:
    """Waits of one endpoint: turns of the thread's loop."""

    def __init__(self, driver: BusyPollDriver, poll: Callable[[], None], spin_ivl: int = 0, block_ivl: int = 0) -> None:
        """Wait by calls of `poll` for `spin_ivl` ns, or without end if that is 0. Then block for `block_ivl` ns at a time."""
        self._driver = driver
        self._loop = driver.loop
        self._poll = poll
        self._spin_ivl = spin_ivl
        self._block_ivl = block_ivl
        self._blocks_at_ns = -1

    async def pause(self, *, yields: bool) -> None:
        """Begin a wait, or end one."""
        self._blocks_at_ns = -1

    async def wait(self, until_ns: int) -> None:
        """Poll the sockets once. Raises `UsageError` in a handler, and after closing."""
        self._driver.require_waiting()
        loop = self._loop
        if self._spin_ivl:
            if self._blocks_at_ns < 0:
                self._blocks_at_ns = time.monotonic_ns() + self._spin_ivl
            elif loop.now_ns >= self._blocks_at_ns:
                loop.block(self._block_ivl)
        if until_ns <= loop.now_ns:
            loop.turn()
        else:
            self._poll()

    async def catch_up(self) -> None:
        """Read once from every socket with data."""
        self._loop.turn()


class _CallingThread:
    """Runner of an endpoint's calls in the thread that owns the driver."""

    def __init__(self, driver: BusyPollDriver) -> None:
        self._driver = driver

    def run(self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call to its end."""
        self._driver.require_usable()
        try:
            function(*args, **kwargs).send(None)
        except StopIteration as stop:
            result: R = stop.value
            return result
        raise AssertionError("a wait of a busy-poll endpoint suspended")

    def run_now(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call."""
        self._driver.require_usable()
        return function(*args, **kwargs)


class BusyPollSource(ThreadSource[BusyPollDriver]):
    """Source of one stream in the calling thread. A returning call has passed its data to the kernel.

    A handler of notices may send, too. Its data leaves when the call that called the handler has done its own work, as
    far as the rate allows. The rest leaves with the next calls, so a send in a handler does not wait. Calls that would
    wait or poll raise `UsageError` in a handler, for this source and any other node of the thread.
    """

    def __init__(self, endpoint: SourceEndpoint[BusyPollDriver], runner: Runner) -> None:
        super().__init__(endpoint, runner)
        self._single = endpoint.single if endpoint.is_plain else None
        self._giver = endpoint.giver

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = True) -> int:
        """Send one message at once. Return the sqn of its first packet.

        Busy-polls while the rate, the window or the link makes the call wait. Raises `PayloadTooLarge` if the window
        cannot hold the message, `SourceClosed` after closing, and `UsageError` in another thread. In a handler of
        notices it raises `UsageError` if more than `txw_unsent_bytes` wait already.
        """
        driver, single = self._driver, self._single
        if get_ident() != driver.thread:
            driver.require_usable()
        loop = driver.loop
        is_busy = driver.held or loop.is_performing or self._giver.is_wanted
        if single is not None and subject is None and to is None and not is_busy:
            now_ns = time.monotonic_ns()
            sqn = single.send(payload, now_ns)
            if sqn is not None:
                loop.turn_if_due(now_ns)
                while driver.held:
                    driver.turn()
                return sqn
        return self._sent(self._runner.run(self._endpoint.submit, payload, subject, to, flush=True))

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = True
    ) -> int | None:
        """Send one message if there is room now. Data that the rate holds up leaves with the next calls."""
        return super().try_send(payload, subject=subject, to=to, flush=True)

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts at once, with ZeroMQ's framing. Return the sqn of its first packet."""
        return self._sent(super().send_parts(parts))

    def send_batch(self, payloads: Payloads, *, subject: Names = None, to: Names = None, flush: bool = True) -> int:
        """Send many messages at once. Return the first sqn."""
        return self._sent(super().send_batch(payloads, subject=subject, to=to, flush=True))

    def _sent(self, sqn: int) -> int:
        """Wait until accepted data is with the kernel; a handler of notices does not wait."""
        driver = self._driver
        if not driver.loop.is_performing:
            while driver.held or not self._endpoint.is_sent:
                driver.turn()
        return sqn

    def flush(self) -> None:
        """Give a state if joiners wait for one: no data is left when a send returns. `pgm.Source.flush` has the name."""
        self._driver.require_usable()
        self._endpoint.give_state()

    def poll(self) -> None:
        """Read arrived packets, and send those due: NCFs, repairs, SPMs, states. One turn, without waiting."""
        self._driver.require_waiting()
        self._driver.loop.turn()
        self._endpoint.give_state()

    def abort(self, error: int = 0) -> None:
        """Cut the stream short. Busy-poll to serve repairs until no NAK came for `fin_quiet_ivl`."""
        self._driver.require_waiting()
        super().abort(error)

    def close(self) -> None:
        """Announce the end. Busy-poll to serve repairs until no NAK came for `fin_quiet_ivl`."""
        self._driver.require_waiting()
        super().close()


class BusyPollReceiver(ThreadReceiver[BusyPollDriver]):
    """Receiver of streams in the calling thread.

    Applications call `recv`, or iterate over the receiver or over `batches()`. Reads and repairs happen inside these
    calls only. Packets that arrive between calls wait in the kernel's socket buffer. In a handler of notices these
    calls raise `UsageError`.
    """

    def __init__(self, endpoint: ReceiverEndpoint[BusyPollDriver], runner: Runner) -> None:
        super().__init__(endpoint, runner)
        self._single = endpoint.single if endpoint.is_plain else None

    def _next(self, timeout_s: float | None) -> BatchItem | Message | None:
        driver = self._driver
        driver.require_waiting()
        if self._single is not None and timeout_s != 0:  # the first poll mostly finds something
            message = self._single.poll(driver.loop.poll)
            if message is not None:
                return message
        item = self._endpoint.pop()
        return super()._next(timeout_s) if item is None else item

    def poll(self) -> None:
        """Read arrived packets, and send those due: NAKs. One turn, without waiting."""
        self._driver.require_waiting()
        self._driver.loop.turn()


@contextmanager
def open_source(
    target: Target,
    *,
    node: str | None = None,
    name: str | None = None,
    stream: str | None = None,
    cpu: int | None = None,
    snapshot: SnapshotState | None = None,
    on_notice: Callable[[Notice], None] | None = None,
    seed: str | None = None,
    **parameters: Unpack[SourceParameters],
) -> Iterator[BusyPollSource]:
    """Open a source in this thread, pinned to processor `cpu` if given. Otherwise as `pgm.open_source`."""
    plan = resolve(target, node, Role.SOURCE, parameters, name)
    with pinned(cpu):
        giver, nodes = SnapshotGiver(snapshot), _NODES.of_this_thread
        with source_parts(nodes, plan, stream, seed, has_state=snapshot is not None) as (core, opened, packer):
            outbox = SourceOutbox(packer, handler_of(on_notice, plan.name, stream), giver=giver)
            driver = BusyPollDriver(core, opened.links, outbox)
        try:
            with taping_of(plan, driver), observing(plan, driver):
                endpoint = SourceEndpoint(core, driver, packer, BusyPollWaits(driver, driver.loop.turn), giver)
                source = BusyPollSource(endpoint, _CallingThread(driver))
                source.poll()  # the first SPM
                yield source
                source.close()
        except BaseException:
            driver.perform(core.abort(driver.now_ns()))
            raise
        finally:
            driver.close()


@contextmanager
def open_receiver(
    target: Target,
    *,
    node: str | None = None,
    name: str | None = None,
    stream: str | None = None,
    subscribe: Iterable[bytes] | None = None,
    subjects: Iterable[str] | None = None,
    cpu: int | None = None,
    start: Start = None,
    durable: str | Path | None = None,
    archive: str | Sequence[str] | None = None,
    on_loss: OnLoss = "report",
    slow: Slow = "block",
    ack: Ack = "auto",
    on_notice: Callable[[Notice], None] | None = None,
    seed: str | None = None,
    **parameters: Unpack[ReceiverParameters],
) -> Iterator[BusyPollReceiver]:
    """Open a receiver in this thread, pinned to processor `cpu` if given. Otherwise as `pgm.open_receiver`."""
    policies = Policies.of(on_loss, slow, ack)
    plan = resolve(target, node, Role.RECEIVER, {**start_parameters(start), **parameters}, name)
    limits = plan.parameters
    with earlier_life(durable, start, archive, policies, plan, stream) as life, pinned(cpu):
        starts = BY_PARAMETERS if life is None else life.memory
        parts = receiver_parts(_NODES.of_this_thread, plan, stream, seed, (subscribe, subjects), ack, starts)
        with parts as (core, opened, decoders, reassemblers, positions):
            on_notice = handler_of(on_notice, plan.name, stream)
            inbox = Inbox(
                core, reassemblers, on_notice, lambda: None, policies, is_plain=decoders.is_plain and life is None
            )
            driver = BusyPollDriver(core, opened.links, inbox, receiver_read_settings(limits), inbox.singles.take)
        try:
            with taping_of(plan, driver), observing(plan, driver):
                waits = BusyPollWaits(driver, driver.loop.poll, limits.rx_spin_ivl, limits.rx_block_ivl)
                with resuming(life, core, inbox, positions) as queue:
                    endpoint = ReceiverEndpoint(core, driver, queue, waits, decoders, policies, positions)
                    yield BusyPollReceiver(endpoint, _CallingThread(driver))
                    endpoint.finish()
        finally:
            try:
                driver.perform(core.leave(driver.now_ns()))
            finally:
                positions.close()
                driver.close()


class BusyPollNode(SharedNode[AbstractContextManager[BusyPollSource], AbstractContextManager[BusyPollReceiver]]):
    """Node of the calling thread: any number of its sources and receivers share its sockets."""


@contextmanager
def open_node(
    target: Target,
    *,
    node: str | None = None,
    name: str | None = None,
    cpu: int | None = None,
    seed: str | None = None,
    **parameters: Unpack[NodeParameters],
) -> Iterator[BusyPollNode]:
    """Open the sockets of a node in this thread, pinned to processor `cpu` if given. Otherwise as `pgm.open_node`."""
    plans = plans_of(target, node, parameters, name)
    with pinned(cpu), _NODES.of_this_thread.held(sockets_plan(plans), seed):
        yield BusyPollNode(plans, open_source, open_receiver)
