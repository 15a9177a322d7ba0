"""Sources and receivers that run in the calling thread: what `pgm.blocking` opens with `busy_poll=True`."""

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
from pgm.net.driver.rest_settings import prefault_settings
from pgm.net.endpoint.base import ReceiverHandle, SourceHandle, SourceOutbox
from pgm.net.endpoint.inbox import OCTETS_BETWEEN_READS, Inbox
from pgm.net.endpoint.loss_policies import REPORTING, Policies
from pgm.net.endpoint.open import Target, new_tsi, receiving_links, resolve
from pgm.net.endpoint.start_position import start_parameters
from pgm.net.framing.batches import BatchSender
from pgm.net.framing.codec import StreamDecoders, packing_of
from pgm.net.framing.items import AnyBatch, BatchItem, Item, Message, batch_of
from pgm.net.framing.objects import ObjectItem, object_of
from pgm.net.framing.zeromq import ZeromqSender
from pgm.net.link.link import closed_on_error, open_links
from pgm.telemetry.observer import observing
from pgm.topology.node_plan import Role
from pgm.units import NEVER, SECOND

_Found = WholeMessages | LargeMessage | Lost | Opened | Closed


def _deadline(timeout_s: float | None) -> int:
    """When a time is over that begins now; 0, which is before all, for no time, and NEVER for none."""
    if not timeout_s:
        return NEVER if timeout_s is None else 0
    return time.monotonic_ns() + round(timeout_s * SECOND)


def _ignore(_: Notice) -> None:
    """The default for notices: nobody listens."""


class BusyPollSource(SourceHandle[BusyPollDriver]):
    """Sends one stream from the calling thread. What a call took is with the kernel when it returns.

    A handler of notices may send, too. What it sends goes when the call that called it back has done what it was at, as
    far as the rate lets it, and for the rest with the next calls: a send in a handler does not wait. What would wait or
    poll raises `UsageError` there, of this source or of any other node of the thread.
    """

    def __init__(self, core: SourceCore, driver: BusyPollDriver, packing: BatchSender | ZeromqSender | None) -> None:
        super().__init__(core, driver, packing)
        self._link = driver.links[core.setup.segment.index]  # that data goes out on

    def send(self, payload: Payload, *, subject: str | None = None, to: str | None = None) -> int:
        """Send one message, now; returns the sqn of its first packet.

        Spins while the rate, the window or the link makes it wait. Raises `PayloadTooLarge` for what cannot fit the
        window, `SourceClosed` after closing, `UsageError` in another thread, and in a handler of notices when more than
        `txw_unsent_bytes` wait already.
        """
        driver, core = self._driver, self._core
        if get_ident() != driver.thread:
            driver.require_usable()
        spinner = driver.spinner
        is_free = not driver.held and not spinner.is_performing
        if is_free and self._packing is None and subject is None and to is None:
            now_ns = time.monotonic_ns()
            packet = core.send_alone(payload, now_ns)
            if packet is not None:
                try:
                    if driver.observer is not None or not self._link.send_alone(packet):
                        driver.send_now(alone(core.setup.segment, packet))
                finally:  # also where a signal ends the call: what has its sqn can be repaired
                    core.sent_alone(packet, now_ns)
                spinner.expect_by(core.next_event_ns)
                sqn = core.window.lead  # a turn calls back, and whoever is called may send, too
                spinner.turn_if_due(now_ns)
                while driver.held:
                    driver.turn()
                return sqn
        self._require_room()
        sqn = self._accept(payload, subject, to, flush=True)
        self._send_all()
        return sqn

    def send_object(self, value: Any, *, codec: Codec = CBOR, subject: str | None = None, to: str | None = None) -> int:
        """Send a value as one message, now, in CBOR unless `codec` says otherwise; else as `send`."""
        return self.send(codec.encode(value), subject=subject, to=to)

    def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts, now; for streams with ZeroMQ's framing. Returns the sqn of its first packet."""
        self._driver.require_usable()
        self._require_room()
        sqn = self._accept_parts(parts)
        self._send_all()
        return sqn

    def send_batch(self, payloads: Payloads, *, subject: Names = None, to: Names = None) -> int:
        """Send many messages, now: a list of byte strings, a (count, size) array of octets, or an array of Arrow. Returns the first sqn."""
        self._driver.require_usable()
        self._require_room()
        sqn = self._accept_batch(payloads, subject, to, flush=True)
        self._send_all()
        return sqn

    def _require_room(self) -> None:
        """Raise `UsageError` where a call from within a callback, which cannot wait, would have to."""
        if self._driver.spinner.is_performing and self._core.room_octets <= 0:
            raise UsageError(
                f"a handler of notices cannot wait, and {self._core.window.unsent_octets} octets wait to be sent",
                remedy="send less in handlers, or keep it for a send outside of them; or raise rate or txw_unsent_bytes",
            )

    def _send_all(self) -> None:
        driver, window, packing = self._driver, self._core.window, self._packing
        if driver.spinner.is_performing:
            driver.spinner.expect_owed(driver)
            return
        driver.push()
        while window.has_unsent or driver.held or (packing is not None and packing.has_rest):
            driver.turn()

    def flush(self) -> None:
        """Nothing is left to be sent when a call returns: the same name as without busy polling."""
        self._driver.require_usable()

    def poll(self) -> None:
        """Take in what has come, and send what is due: NCFs, repairs, SPMs. One turn, without waiting."""
        self._driver.require_waiting()
        self._driver.spinner.turn()

    def stable(self, sqn: int | None = None) -> None:
        """Spin until every member of an acknowledged stream has everything up to `sqn`; all that was sent if None."""
        self._driver.require_waiting()
        wanted = self._core.window.end - 1 if sqn is None else sqn
        while not self.is_stable(wanted):
            self._driver.turn()

    def set_rate(self, rate: str | int) -> None:
        """From now on send at this rate at most, as `pgm.Source.set_rate` has it."""
        self._driver.require_usable()
        self._core.set_rate(checked_rate(self._core, rate), time.monotonic_ns())
        self._driver.spinner.expect_change()

    def advance_trail(self, sqn: int) -> None:
        """Let go of everything before the message whose first packet is `sqn`, as a send returned it."""
        self._driver.require_usable()
        self._core.advance_trail(sqn)
        self._driver.spinner.expect_change()

    def close_window(self) -> None:
        """Let go of everything sent so far, and tell the receivers at once."""
        self._driver.require_usable()
        try:
            self._driver.perform(self._core.close_window(time.monotonic_ns()))
        finally:  # also where a notice's handler raises
            self._driver.spinner.expect_change()

    def close(self) -> None:
        """Announce the end, and serve repairs until nobody has asked for `fin_quiet_ivl`, spinning."""
        self._driver.require_waiting()
        self._core.close()
        self._driver.push()
        while not self._core.is_finished(time.monotonic_ns()):
            self._driver.turn()


class _SpunInbox(Inbox):
    """An inbox that is looked into, not waited for."""

    def pop(self) -> _Found | None:
        """The next thing for the application behind `alone`, if there is one."""
        if not self._queue:
            return None
        queued = self._queue.popleft()
        if queued.frees_octets:
            self._freed += queued.frees_octets
            self.left_octets -= queued.frees_octets
        return queued.found


class BusyPollReceiver(ReceiverHandle[BusyPollDriver]):
    """Receives streams in the calling thread: call `recv`, or iterate over it, or over `batches()`.

    Reads and repairs happen inside these calls only: what comes between them waits in the kernel's socket buffer. In a
    handler of notices they raise `UsageError`.
    """

    def __init__(
        self,
        core: ReceiverCore,
        inbox: _SpunInbox,
        driver: BusyPollDriver,
        unwrapping: StreamDecoders,
        policies: Policies = REPORTING,
    ) -> None:
        super().__init__(core, driver, unwrapping)
        self._policies = policies
        self._inbox = inbox
        inbox.is_plain = unwrapping.is_plain
        driver.take_alone = inbox.take_alone

    def recv(self, timeout_s: float | None = None) -> Item | None:
        """The next message, loss, opening or closing; None when nothing came within `timeout_s`. Spins meanwhile.

        With a `timeout_s` of 0 it takes one turn. Raises `UsageError` in another thread and after closing.
        """
        message = self._unpacker.next() if self._unpacker.has_rest else None
        while message is None:
            found = self._spin(timeout_s)
            if type(found) is Message:
                return found
            if isinstance(
                found, WholeMessages
            ):  # alone, as the next of a stream that is no train: without what many cost
                return Message(found.run.alone(), found.run.first, found.tsi)
            if not isinstance(found, AnyBatch):
                return found
            message = self._unpacker.open(found)
        return message

    def next_batch(self, timeout_s: float | None = None) -> BatchItem | None:
        """The next batch, loss, opening or closing; None when nothing came within `timeout_s`. Spins meanwhile."""
        found = self._unpacker.take_rest() or self._spin(timeout_s)
        return batch_of(found) if isinstance(found, (WholeMessages, Message)) else found

    def batches(self) -> Iterator[BatchItem]:
        """Many messages at a time, in stream order with what befell the stream."""
        while (item := self.next_batch()) is not None:
            yield item

    def __iter__(self) -> Iterator[Item]:
        while (item := self.recv()) is not None:
            yield item

    def objects(self, codec: Codec = CBOR) -> Iterator[ObjectItem]:
        """Messages as the values that they carry, in stream order with what befell the stream."""
        return (object_of(item, codec, self.counters) for item in self)

    def poll(self) -> None:
        """Take in what has come, and send what is due: NAKs. One turn, without waiting."""
        self._driver.require_waiting()
        self._driver.spinner.turn()

    def _spin(self, timeout_s: float | None) -> BatchItem | WholeMessages | Message | None:
        """What comes next; a single message of a plain stream as it is."""
        self._driver.require_waiting()
        inbox, driver, spinner = self._inbox, self._driver, self._driver.spinner
        self._core.note_passed()
        if inbox.spare is None:
            inbox.spare = Message(b"", 0, b"")
        looks_once, has_looked = timeout_s == 0, False
        look = spinner.turn if looks_once else spinner.spin
        until_ns = parks_at_ns = -1  # not found out: mostly the first look brings something
        while not self._ready:
            if inbox.is_empty:
                if looks_once and has_looked:
                    return None  # nothing of what came is wanted
                inbox.left_octets, has_looked = OCTETS_BETWEEN_READS, True
                look()
            elif inbox.left_octets <= 0 and not (looks_once and has_looked):
                before, has_looked = self.counters.received_octets, True
                spinner.turn()
                inbox.left_octets = max(OCTETS_BETWEEN_READS, self.counters.received_octets - before)
            message = inbox.alone
            if message is not None:
                inbox.alone = None
                return message  # policies are about losses
            if not driver.is_turned:
                driver.require_usable()  # a handler has closed it
            found = inbox.pop()
            if found is not None:
                item = self._take(found)
                if item is not None:
                    return self._policies.handed(item)
                if not timeout_s:
                    continue
            if until_ns < 0:
                until_ns = _deadline(timeout_s)
                parks_at_ns = _deadline(self.parameters.rx_spin_ivl / SECOND or None)
            if spinner.now_ns >= min(until_ns, parks_at_ns, inbox.looks_at_ns):
                inbox.look()
                if spinner.now_ns >= until_ns:
                    return None
                if spinner.now_ns >= parks_at_ns:
                    spinner.block(self.parameters.rx_park_ivl)
        return self._policies.handed(self._ready.popleft())

    def _take(self, found: _Found) -> BatchItem | WholeMessages | None:
        try:
            freed = self._inbox.after()
        except BaseException:
            self._driver.abandon()
            raise
        if freed:
            try:
                self._driver.perform(freed)
            except BaseException:  # of a notice's handler, or a signal's
                self._inbox.put_back(found)
                raise
        if isinstance(found, WholeMessages) and found.run.count == 1 and self._unwrapping.is_plain:
            return found
        item = found if isinstance(found, (Lost, Opened, Closed)) else batch_of(found)
        if self._unwrapping.is_plain:
            return item
        self._ready.extend(self._unwrapping.take(item))
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
    """Open a source that runs in this thread, pinned to processor `cpu` if one is named. Otherwise as `pgm.open_source`."""
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
            outbox.packing = packing_of(core, plan, chosen)
            with observing(plan, core, driver.now_ns(), time.time_ns()) as driver.observer:
                source = BusyPollSource(core, driver, outbox.packing)
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
    """Open a receiver that runs in this thread, pinned to processor `cpu` if one is named. Otherwise as `pgm.open_receiver`."""
    policies = Policies.of(on_loss, slow)
    plan = resolve(target, node, Role.RECEIVER, {**start_parameters(start), **parameters})
    streams = plan.streams if stream is None else (stream_of(plan, stream),)
    with pinned(cpu):
        links = receiving_links(plan, seed)
        with closed_on_error(links):
            core = receiver_core(
                plan, streams, [link.segment for link in links], random.Random(random.SystemRandom().random())
            )
            inbox = _SpunInbox(core, plan.parameters, on_notice, unordered_ports(streams), policies)
            driver = BusyPollDriver(
                core, links, inbox, bulk_rte=plan.parameters.rx_bulk_rte, **prefault_settings(plan.parameters)
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
