"""Sources and receivers that run in the calling thread, for `busy_poll=True` in `pgm.blocking`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from pgm.core.effects import Closed, Lost, Notice, Opened, alone
from pgm.core.receiver.receiver import ReceiverCore
from pgm.core.source.source import SourceCore
from pgm.core.structures.arena import Arena
from pgm.core.window.reassembly import LargeMessage, WholeMessages
from pgm.core.window.transmit_window import Payload
from pgm.errors import UsageError
from pgm.messages.arguments import Names, Payloads
from pgm.messages.objects import CBOR, Codec
from pgm.net.control.rate_setting import checked_rate
from pgm.net.core_factory import receiver_core, source_core, stream_of, unordered_ports
from pgm.net.driver.busy_poll_driver import BusyPollDriver, pinned
from pgm.net.endpoint.base import ReceiverEndpoint, SourceEndpoint, SourceOutbox
from pgm.net.endpoint.inbox import OCTETS_BETWEEN_READS, Inbox
from pgm.net.endpoint.open import Target, new_tsi, receiving_links, resolve
from pgm.net.endpoint.policies import REPORTING, Policies
from pgm.net.endpoint.start_position import start_parameters
from pgm.net.framing.batches import BatchSender
from pgm.net.framing.codec import StreamDecoders, packer_of
from pgm.net.framing.items import AnyBatch, BatchItem, Item, Message, batch_of
from pgm.net.framing.objects import ObjectItem, object_of
from pgm.net.framing.zeromq import ZeromqSender
from pgm.net.link.link import closed_on_error, open_links
from pgm.telemetry.observer import observing
from pgm.topology.node_plan import Role
from pgm.units import NEVER, SECOND

_Entry = WholeMessages | LargeMessage | Lost | Opened | Closed


def _deadline(timeout_s: float | None) -> int:
    """Return the end of a timeout that begins now, in ns; 0 for a timeout of zero, NEVER for None."""
    if not timeout_s:
        return NEVER if timeout_s is None else 0
    return time.monotonic_ns() + round(timeout_s * SECOND)


def _ignore(_: Notice) -> None:
    """Ignore a notice, by default."""


class BusyPollSource(SourceEndpoint[BusyPollDriver]):
    """Source of one stream in the calling thread. A returning call has passed its data to the kernel.

    A handler of notices may send, too. Its data leaves when the call that called the handler has done its own work, as
    far as the rate allows. The rest leaves with the next calls, so a send in a handler does not wait. Calls that would
    wait or poll raise `UsageError` in a handler, for this source and any other node of the thread.
    """

    def __init__(self, core: SourceCore, driver: BusyPollDriver, packer: BatchSender | ZeromqSender | None) -> None:
        super().__init__(core, driver, packer)
        self._link = driver.links[core.setup.segment.index]  # the link for data

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None) -> int:
        """Send one message at once. Return the sqn of its first packet.

        Busy-polls while the rate, the window or the link makes the call wait. Raises `PayloadTooLarge` if the window
        cannot hold the message, `SourceClosed` after closing, and `UsageError` in another thread. In a handler of
        notices it raises `UsageError` if more than `txw_unsent_bytes` wait already.
        """
        driver, core = self._driver, self._core
        if get_ident() != driver.thread:
            driver.require_usable()
        loop = driver.loop
        is_free = not driver.held and not loop.is_performing
        if is_free and self._packer is None and subject is None and to is None:
            now_ns = time.monotonic_ns()
            packet = core.send_alone(payload, now_ns)
            if packet is not None:
                try:
                    if driver.observer is not None or not self._link.send_alone(packet):
                        driver.send_now(alone(core.setup.segment, packet))
                finally:  # also if a signal ends the call: data with its sqn can be repaired
                    core.sent_alone(packet, now_ns)
                loop.expect_by(core.next_event_ns)
                sqn = core.window.lead  # before the turn, whose handlers may send, too
                loop.turn_if_due(now_ns)
                while driver.held:
                    driver.turn()
                return sqn
        self._require_room()
        sqn = self._accept(payload, subject, to, flush=True)
        self._send_all()
        return sqn

    def send_object(self, value: Any, *, codec: Codec = CBOR, subject: str | None = None, to: str | None = None) -> int:
        """Send a value as one message at once, in CBOR unless `codec` says otherwise; else as `send`."""
        return self.send(codec.encode(value), subject=subject, to=to)

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts at once, with ZeroMQ's framing. Return the sqn of its first packet."""
        self._driver.require_usable()
        self._require_room()
        sqn = self._accept_parts(parts)
        self._send_all()
        return sqn

    def send_batch(self, payloads: Payloads, *, subject: Names = None, to: Names = None) -> int:
        """Send many messages at once. Return the first sqn.

        The payloads are a list of byte strings, a (count, size) array of octets, or an Arrow array.
        """
        self._driver.require_usable()
        self._require_room()
        sqn = self._accept_batch(payloads, subject, to, flush=True)
        self._send_all()
        return sqn

    def _require_room(self) -> None:
        """Raise `UsageError` if a call inside a handler, which cannot wait, would have to wait."""
        if self._driver.loop.is_performing and self._core.room_octets <= 0:
            raise UsageError(
                f"a handler of notices cannot wait, and {self._core.window.unsent_octets} octets wait to be sent",
                remedy="send less in handlers, or send after the call; or raise rate or txw_unsent_bytes",
            )

    def _send_all(self) -> None:
        driver, window, packer = self._driver, self._core.window, self._packer
        if driver.loop.is_performing:
            driver.loop.expect_sends(driver)
            return
        driver.push()
        while window.has_unsent or driver.held or (packer is not None and packer.has_rest):
            driver.turn()

    def flush(self) -> None:
        """Do nothing: no data is left when a send returns. The name is that of `pgm.Source.flush`."""
        self._driver.require_usable()

    def poll(self) -> None:
        """Read arrived packets, and send those due: NCFs, repairs, SPMs. One turn, without waiting."""
        self._driver.require_waiting()
        self._driver.loop.turn()

    def stable(self, sqn: int | None = None) -> None:
        """Busy-poll until every member of an acknowledged stream has everything up to `sqn`.

        None means all data sent.
        """
        self._driver.require_waiting()
        wanted = self._core.window.end - 1 if sqn is None else sqn
        while not self.is_stable(wanted):
            self._driver.turn()

    def set_rate(self, rate: str | int) -> None:
        """Set the greatest rate from now on, as `pgm.Source.set_rate` does."""
        self._driver.require_usable()
        self._core.set_rate(checked_rate(self._core, rate), time.monotonic_ns())
        self._driver.loop.expect_change()

    def advance_trail(self, sqn: int) -> None:
        """Drop everything before the message whose first packet is `sqn`, as a send returned it."""
        self._driver.require_usable()
        self._core.advance_trail(sqn)
        self._driver.loop.expect_change()

    def close_window(self) -> None:
        """Drop everything sent so far, and tell the receivers at once."""
        self._driver.require_usable()
        try:
            self._driver.perform(self._core.close_window(time.monotonic_ns()))
        finally:  # also if a notice's handler raises
            self._driver.loop.expect_change()

    def close(self) -> None:
        """Announce the end. Busy-poll to serve repairs until no NAK came for `fin_quiet_ivl`."""
        self._driver.require_waiting()
        self._core.close()
        self._driver.push()
        while not self._core.is_finished(time.monotonic_ns()):
            self._driver.turn()


class _PolledInbox(Inbox):
    """Inbox that the receiver polls instead of waiting."""

    def pop(self) -> _Entry | None:
        """Return the next queued entry, behind `alone`; None if there is none."""
        if not self._queue:
            return None
        queued = self._queue.popleft()
        if queued.frees_octets:
            self._freed += queued.frees_octets
            self.left_octets -= queued.frees_octets
        return queued.found


class BusyPollReceiver(ReceiverEndpoint[BusyPollDriver]):
    """Receiver of streams in the calling thread.

    Applications call `recv`, or iterate over the receiver or over `batches()`. Reads and repairs happen inside these
    calls only. Packets that arrive between calls wait in the kernel's socket buffer. In a handler of notices these
    calls raise `UsageError`.
    """

    def __init__(
        self,
        core: ReceiverCore,
        inbox: _PolledInbox,
        driver: BusyPollDriver,
        decoders: StreamDecoders,
        policies: Policies = REPORTING,
    ) -> None:
        super().__init__(core, driver, decoders)
        self._policies = policies
        self._inbox = inbox
        inbox.is_plain = decoders.is_plain
        driver.take_alone = inbox.take_alone

    def recv(self, timeout_s: float | None = None) -> Item | None:
        """Return the next message, loss, opening or closing; None if none came within `timeout_s`.

        Busy-polls meanwhile. With a `timeout_s` of 0 it takes one turn. Raises `UsageError` in another thread and after
        closing.
        """
        message = self._unpacker.next() if self._unpacker.has_rest else None
        while message is None:
            item = self._next(timeout_s)
            if type(item) is Message:
                return item
            if isinstance(item, WholeMessages):  # a single packet of a plain stream: without the cost of a batch
                return Message(item.run.alone(), item.run.first, item.tsi)
            if not isinstance(item, AnyBatch):
                return item
            message = self._unpacker.open(item)
        return message

    def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """Return the next batch, loss, opening or closing;

        None if none came within `timeout_s`. Busy-polls meanwhile.
        """
        item = self._unpacker.take_rest() or self._next(timeout_s)
        return batch_of(item) if isinstance(item, (WholeMessages, Message)) else item

    def batches(self) -> Iterator[BatchItem]:
        """Iterate over batches, in stream order with losses, openings and closings."""
        while (item := self.next_batch()) is not None:
            yield item

    def __iter__(self) -> Iterator[Item]:
        while (item := self.recv()) is not None:
            yield item

    def objects(self, codec: Codec = CBOR) -> Iterator[ObjectItem]:
        """Iterate over the values of messages, in stream order with losses, openings and closings."""
        return (object_of(item, codec, self.counters) for item in self)

    def poll(self) -> None:
        """Read arrived packets, and send those due: NAKs. One turn, without waiting."""
        self._driver.require_waiting()
        self._driver.loop.turn()

    def _next(self, timeout_s: float | None) -> BatchItem | WholeMessages | Message | None:
        """Return the next item; a single message of a plain stream unconverted; None after `timeout_s`."""
        self._driver.require_waiting()
        inbox, driver, loop = self._inbox, self._driver, self._driver.loop
        self._core.note_passed()
        if inbox.spare is None:
            inbox.spare = Message(b"", 0, b"")
        polls_once, has_polled = timeout_s == 0, False
        poll = loop.turn if polls_once else loop.poll
        until_ns = blocks_at_ns = -1  # unset: the first poll mostly finds something
        while not self._ready:
            if inbox.is_empty:
                if polls_once and has_polled:
                    return None  # no arrived message is wanted
                inbox.left_octets, has_polled = OCTETS_BETWEEN_READS, True
                poll()
            elif inbox.left_octets <= 0 and not (polls_once and has_polled):
                before, has_polled = self.counters.received_octets, True
                loop.turn()
                inbox.left_octets = max(OCTETS_BETWEEN_READS, self.counters.received_octets - before)
            message = inbox.alone
            if message is not None:
                inbox.alone = None
                return message  # policies are about losses
            if not driver.is_in_loop:
                driver.require_usable()  # a handler has closed it
            entry = inbox.pop()
            if entry is not None:
                item = self._take(entry)
                if item is not None:
                    return self._policies.checked(item)
                if not timeout_s:
                    continue
            if until_ns < 0:
                until_ns = _deadline(timeout_s)
                blocks_at_ns = _deadline(self.parameters.rx_spin_ivl / SECOND or None)
            if loop.now_ns >= min(until_ns, blocks_at_ns, inbox.reassemblers.checks_at_ns):
                inbox.drop_stalled()
                if loop.now_ns >= until_ns:
                    return None
                if loop.now_ns >= blocks_at_ns:
                    loop.block(self.parameters.rx_park_ivl)
        return self._policies.checked(self._ready.popleft())

    def _take(self, entry: _Entry) -> BatchItem | WholeMessages | None:
        try:
            freed = self._inbox.after()
        except BaseException:
            self._driver.abandon()
            raise
        if freed:
            try:
                self._driver.perform(freed)
            except BaseException:  # from a notice's handler, or a signal's
                self._inbox.put_back(entry)
                raise
        if isinstance(entry, WholeMessages) and entry.run.count == 1 and self._decoders.is_plain:
            return entry
        item = entry if isinstance(entry, (Lost, Opened, Closed)) else batch_of(entry)
        if self._decoders.is_plain:
            return item
        self._ready.extend(self._decoders.take(item))
        return None


@contextmanager
def open_source(
    target: Target,
    *,
    node: str | None = None,
    stream: str | None = None,
    cpu: int | None = None,
    on_notice: Callable[[Notice], None] = _ignore,
    seed: str | None = None,
    **parameters: Any,
) -> Iterator[BusyPollSource]:
    """Open a source in this thread, pinned to processor `cpu` if given. Otherwise as `pgm.open_source`."""
    plan = resolve(target, node, Role.SOURCE, parameters)
    chosen = stream_of(plan, stream)
    with pinned(cpu):
        links = open_links(plan, Arena(), seed)
        with closed_on_error(links):
            segments = [link.segment for link in links]
            now_ns = BusyPollDriver.now_ns()
            core = source_core(plan, chosen, segments, new_tsi(chosen.data_port), time.time_ns(), now_ns)
            outbox = SourceOutbox(on_notice)
            driver = BusyPollDriver(core, links, outbox)
        try:
            outbox.packer = packer_of(core, plan, chosen)
            with observing(plan, core, driver.now_ns(), time.time_ns()) as driver.observer:
                source = BusyPollSource(core, driver, outbox.packer)
                source.poll()  # the first SPM
                yield source
                source.close()
        except BaseException:
            driver.perform(core.abort(BusyPollDriver.now_ns()))
            raise
        finally:
            driver.close()


@contextmanager
def open_receiver(
    target: Target,
    *,
    node: str | None = None,
    stream: str | None = None,
    subscribe: Iterable[bytes] | None = None,
    subjects: Iterable[str] | None = None,
    cpu: int | None = None,
    start: str | int | None = None,
    on_loss: str = "report",
    slow: str = "block",
    on_notice: Callable[[Notice], None] = _ignore,
    seed: str | None = None,
    **parameters: Any,
) -> Iterator[BusyPollReceiver]:
    """Open a receiver in this thread, pinned to processor `cpu` if given. Otherwise as `pgm.open_receiver`."""
    policies = Policies.of(on_loss, slow)
    plan = resolve(target, node, Role.RECEIVER, {**start_parameters(start), **parameters})
    streams = plan.streams if stream is None else (stream_of(plan, stream),)
    with pinned(cpu):
        links = receiving_links(plan, seed)
        with closed_on_error(links):
            core = receiver_core(
                plan, streams, [link.segment for link in links], random.Random(random.SystemRandom().random())
            )
            inbox = _PolledInbox(core, plan.parameters, on_notice, unordered_ports(streams), policies)
            driver = BusyPollDriver(
                core,
                links,
                inbox,
                bulk_rte=plan.parameters.rx_bulk_rte,
                warm_ivl=plan.parameters.rxw_warm_ivl,
                warm_octets=plan.parameters.rxw_bytes,
            )
        try:
            with observing(plan, core, driver.now_ns(), time.time_ns()) as driver.observer:
                yield BusyPollReceiver(
                    core, inbox, driver, StreamDecoders.of(core, plan, streams, subscribe, subjects), policies
                )
        finally:
            try:
                driver.perform(core.leave(driver.now_ns()))
            finally:
                driver.close()
