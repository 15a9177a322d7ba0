"""Source for applications: sends messages, and waits if the rate or the window requires it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pgm.core.effects import NOTHING, Effect, Effects, Notice, SnapshotWanted
from pgm.core.source.companions import CompanionSource
from pgm.core.source.source import SourceCore
from pgm.core.window.transmit_window import Payload
from pgm.errors import UsageError
from pgm.messages.arguments import Names, Payloads, columns_of_arguments, is_arrow, require_octets
from pgm.messages.objects import CBOR, Codec
from pgm.net.control.rate_setting import checked_rate
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.endpoint.base import D, SourceView, Waits
from pgm.net.endpoint.single_packets import SinglePacketSender
from pgm.net.framing.batches import BatchSender
from pgm.net.framing.codec import batches_required
from pgm.net.framing.zeromq import ZeromqSender, messages_of, zeromq_required
from pgm.net.keys.stream_readers import change_readers
from pgm.topology.model import Topology
from pgm.units import MICROSECOND, NEVER

# Sends between two checkpoints while there is room: a checkpoint costs more than a send.
_SENDS_PER_CHECKPOINT = 32
# Least time after the last message for a message to leave at once. Messages in a loop come sooner, and share a train.
_ALONE_IVL_NS = 20 * MICROSECOND
# Full packets of a thread's single messages that leave together, at the latest with the batch that follows them.
_PACKETS_A_PUSH = 4
_MOST_ERROR = 63  # six bits of OPT_RST

# Function of an application: its state, after all messages that it has sent.
SnapshotState = Callable[[], bytes | bytearray | memoryview]


class SnapshotGiver:
    """State of an application, and whether joiners wait for it."""

    def __init__(self, state: SnapshotState | None = None) -> None:
        self._state = state
        self.is_wanted = False

    def take(self) -> Payload:
        """Return the state now. Raises `UsageError` if the application returns something else than octets."""
        assert self._state is not None
        self.is_wanted = False
        payload = self._state()
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise UsageError(
                f"the function of snapshot= returned {type(payload).__name__}, not octets",
                remedy="return bytes, for example json.dumps(state).encode()",
            )
        return memoryview(payload).cast("B")


class SourceOutbox:
    """Application side of a source's core. It passes notices on, and sends open packets once there is room.

    `wake` ends the waits of the application, since there may be room, or joiners wait for the state of `giver`.
    """

    def __init__(
        self,
        packer: BatchSender | ZeromqSender | None,
        on_notice: Callable[[Notice], None],
        wake: Callable[[], None] = lambda: None,
        giver: SnapshotGiver | None = None,
    ) -> None:
        self._packer = packer
        self._giver = giver or SnapshotGiver()
        self._on_notice = on_notice
        self._wake = wake

    def take(self, effect: Effect) -> None:
        """Pass a notice on, or note that joiners wait for a state; ignore other effects."""
        if isinstance(effect, Notice):
            self._on_notice(effect)
        elif isinstance(effect, SnapshotWanted):
            self._giver.is_wanted = True
            self._wake()

    def after(self) -> Effects:
        """Send the open packet if no packet waits ahead: the core has sent data, or a timer has run out."""
        if self._packer is not None:
            self._packer.send_rest_if_idle(time.monotonic_ns())
        self._wake()
        return NOTHING


class SourceEndpoint(SourceView[D]):
    """Source of one stream on any surface: `waits` is all that differs between surfaces."""

    def __init__(
        self,
        core: SourceCore,
        driver: D,
        packer: BatchSender | ZeromqSender | None,
        waits: Waits,
        giver: SnapshotGiver | None = None,
    ) -> None:
        super().__init__(core, driver, packer)
        self._waits = waits
        self.giver = giver or SnapshotGiver()
        self.single = SinglePacketSender(core, driver)
        self._sends = 0
        self._alone_from_ns = 0

    async def send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int:
        """Send one message. Return the sqn of its first packet.

        On streams with batches a message may have a `subject` and a destination node (`to`). It may wait for others to
        share its packet, up to `flush_ivl`, unless `flush` is set. The call waits while `txw_unsent_bytes`, or
        `txw_unsent_secs` of the rate, are accepted and not sent. Raises `PayloadTooLarge` if the window cannot hold the
        message, `SourceClosed` after closing, `UsageError` for invalid names.
        """
        if self._packer is None and subject is None and to is None:
            self._sends += 1
            await self._waits.pause(yields=self._sends % _SENDS_PER_CHECKPOINT == 0)
            now_ns = time.monotonic_ns()
            alone_from_ns, self._alone_from_ns = self._alone_from_ns, now_ns + _ALONE_IVL_NS
            # The general path wakes the driver's tasks, once for this message and once for all behind it.
            if now_ns >= alone_from_ns and not self._driver.is_held_up and not self.giver.is_wanted:
                sqn = self.single.send(payload, now_ns)
                if sqn is not None:
                    return sqn
        # `submit` written out: its coroutine would take 7 % of the time of a message that shares a packet.
        await self._wait_for_room()
        sqn = self._accept(payload, subject, to, flush=flush)
        self._driver.push()
        return sqn

    async def submit(self, payload: Payload, subject: str | None, to: str | None, *, flush: bool) -> int:
        """Send one message on the general path."""
        await self._wait_for_room()
        sqn = self._accept(payload, subject, to, flush=flush)
        self._driver.push()
        return sqn

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int | None:
        """Send one message if there is room for it now. Return the sqn of its first packet; None without room."""
        if self._core.room_octets <= 0:
            return None
        sqn = self._accept(payload, subject, to, flush=flush)
        self._driver.push()
        return sqn

    def send_now(self, payload: Payload, subject: str | None, to: str | None, flush: bool) -> int | None:
        """Send one message as `try_send`, in a packet of its own if the stream is plain."""
        packer = self._packer
        is_plain = packer is None and subject is None and to is None
        if is_plain and not self._driver.is_held_up and not self.giver.is_wanted:
            sqn = self.single.send(payload, time.monotonic_ns())
            if sqn is not None:
                return sqn
        if not isinstance(packer, BatchSender):
            return self.try_send(payload, subject=subject, to=to, flush=flush)
        if self._core.room_octets <= 0:
            return None
        first = self._accept(payload, subject, to, flush=flush)
        if flush or packer.deadline_ns == NEVER or self._core.window.unsent_packets >= _PACKETS_A_PUSH:
            self._driver.push()
        else:
            self._driver.expect_by(packer.deadline_ns)
        return first

    def try_send_parts(self, parts: Sequence[Payload]) -> int | None:
        """Send one message of several parts if there is room now. Return the sqn of its first packet, or None."""
        if self._core.room_octets <= 0:
            return None
        sqn = self._accept_parts(parts)
        self._driver.push()
        return sqn

    def try_send_batch(self, payloads: Payloads, subject: Names, to: Names, flush: bool) -> int | None:
        """Send many messages if there is room now. Return the first sqn, or None."""
        if self._core.room_octets <= 0:
            return None
        sqn = self._accept_batch(payloads, subject, to, flush=flush)
        self._driver.push()
        return sqn

    async def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts, as a PUB socket of ZeroMQ does.

        Returns the sqn of its first packet. Messages share packets: a message sent while others wait goes with them,
        and `flush` waits for all. Raises `UsageError` if the stream does not have ZeroMQ's framing, `PayloadTooLarge`
        above `max_apdu`, ValueError without parts.
        """
        await self._wait_for_room()
        sqn = self._accept_parts(parts)
        self._driver.push()
        return sqn

    async def send_batch(
        self, payloads: Payloads, *, subject: Names = None, to: Names = None, flush: bool = False
    ) -> int:
        """Send many messages. Return the first sqn.

        The payloads are a list of byte strings, a (count, size) array of octets, or an Arrow array. On streams with
        batches, `subject` and `to` are each one name for all messages, a list with a name for each, or a table of names
        and an array of indexes from 0. Messages that fill no packet wait as with `send`.
        """
        await self._wait_for_room()
        sqn = self._accept_batch(payloads, subject, to, flush=flush)
        self._driver.push()
        return sqn

    async def send_object(
        self,
        value: Any,
        *,
        codec: Codec = CBOR,
        subject: str | None = None,
        to: str | None = None,
        flush: bool = False,
    ) -> int:
        """Send a value, in CBOR unless `codec` says otherwise; else as `send`. Raises `UsageError` if not encodable."""
        return await self.send(codec.encode(value), subject=subject, to=to, flush=flush)

    def _accept(self, payload: Payload, subject: str | None, to: str | None, *, flush: bool) -> int:
        """Accept one message. Return the sqn of its first packet."""
        self.give_state()
        packer = self._packer
        try:
            if isinstance(packer, BatchSender):
                return packer.add(payload, subject, to, flush=flush, now_ns=time.monotonic_ns())
            if subject is not None or to is not None:
                raise batches_required("subjects and destination nodes")
            sqn = self._core.window.end
            if packer is None:
                self._core.submit((payload,))
            else:
                packer.submit(((payload,),))
        except TypeError:
            require_octets((payload,))
            raise
        return sqn

    def _accept_parts(self, parts: Sequence[Payload]) -> int:
        """Accept one message of several parts. Return the sqn of its first packet."""
        self.give_state()
        packer = self._packer
        if not isinstance(packer, ZeromqSender):
            raise zeromq_required("messages of several parts")
        sqn = self._core.window.end
        try:
            packer.submit((parts,))
        except TypeError:
            require_octets(parts)
            raise
        return sqn

    def _accept_batch(self, payloads: Payloads, subject: Names, to: Names, *, flush: bool) -> int:
        """Accept many messages. Return the first sqn."""
        self.give_state()
        packer = self._packer
        if isinstance(packer, BatchSender):
            return packer.add_batch(payloads, subject, to, flush=flush, now_ns=time.monotonic_ns())
        if subject is not None or to is not None:
            raise batches_required("subjects and destination nodes")
        if not isinstance(payloads, np.ndarray) and is_arrow(payloads):
            columns = columns_of_arguments(payloads, None, None)
            payloads = columns.payloads()
        sqn = self._core.window.end
        try:
            if packer is not None:
                packer.submit(messages_of(payloads))
            elif isinstance(payloads, np.ndarray):
                self._core.submit_rows(payloads)
            else:
                self._core.submit(payloads)
        except TypeError:
            require_octets(payloads)
            raise
        return sqn

    def give_state(self) -> None:
        """Send the application's state if joiners wait for it.

        A call of the application begins here, so its state covers exactly the messages that were accepted before.
        """
        core = self._core
        if not self.giver.is_wanted or not isinstance(core, CompanionSource):
            return
        now_ns = time.monotonic_ns()
        if self._packer is not None:
            self._packer.send_rest(now_ns)
        self._driver.perform(core.put_state(self.giver.take(), now_ns))
        self._driver.reschedule()

    async def give_states(self) -> None:
        """Send the application's state whenever joiners wait for it, also while the application sends nothing."""
        while True:
            self.give_state()
            await self._waits.wait(NEVER)

    async def _wait_for_room(self) -> None:
        self._sends += 1
        await self._waits.pause(yields=self._sends % _SENDS_PER_CHECKPOINT == 0)
        while self._core.room_octets <= 0:
            await self._waits.wait(NEVER)

    async def _until(self, is_met: Callable[[], bool]) -> None:
        while not is_met():
            await self._waits.wait(NEVER)
        await self._waits.pause(yields=True)

    @property
    def is_sent(self) -> bool:
        """Return whether everything accepted has been sent, as far as links took it."""
        return not (self._core.window.has_unsent or (self._packer is not None and self._packer.has_rest))

    async def flush(self) -> None:
        """Wait until everything accepted has been sent."""
        self.give_state()
        if self._packer is not None:
            self._packer.flush(time.monotonic_ns())
            self._driver.push()
        await self._until(lambda: self.is_sent)

    async def stable(self, sqn: int | None = None) -> None:
        """Wait until every member of an acknowledged stream has everything up to `sqn`.

        None means all accepted data. A message of several packets ends before the sqn of the next message, so wait for
        that sqn less one. Members that are silent for `ack_expiry` are left out. With fewer than `ack_quorum` members
        nothing is stable. Raises `UsageError` for a stream that is not acknowledged.
        """
        wanted = self._core.window.end - 1 if sqn is None else sqn
        await self._until(lambda: self.is_stable(wanted))

    async def joined(self, members: int) -> None:
        """Wait until at least `members` receivers acknowledge; they miss no data sent from now on.

        Raises `UsageError` for a stream that is not acknowledged.
        """
        await self._until(lambda: self.members >= members)

    def set_rate(self, rate: str | int) -> None:
        """Set the greatest rate from now on, repairs included.

        The rate is a spelling such as "20Mbit/s", octets a second, or "start" for that of the topology. That rate is
        also the maximum, because windows and caches were made for it. Raises `UsageError`, `UnitError`.
        """
        self._core.set_rate(checked_rate(self._core, rate), time.monotonic_ns())
        self._driver.reschedule()

    def change_readers(self, topology: str | Path | Topology) -> int:
        """Seal all later messages of a sealed stream by a new secret. Return the first sqn of the secret.

        The readers are those that the topology file names now, so a receiver that was revoked in it reads no further.
        The others lose nothing. Raises `UsageError`, and `TopologyError` for a file that breaks rules.
        """
        if self._packer is not None:
            self._packer.send_rest(time.monotonic_ns())
        first = change_readers(self._core, topology)
        self._driver.reschedule()
        return first

    def advance_trail(self, sqn: int) -> None:
        """Drop everything before the message whose first packet is `sqn`, as a send returned it.

        Dropped data cannot be repaired any more; receivers that lack it are told so. With `txw_adv_mode =
        "application"` nothing else moves the window, and a full window makes `send` wait (RFC 3208, 16.4).
        """
        self._core.advance_trail(sqn)
        self._driver.reschedule()

    def close_window(self) -> None:
        """Drop everything sent so far, and tell the receivers at once."""
        self._driver.perform(self._core.close_window(time.monotonic_ns()))

    async def abort(self, error: int = 0) -> None:
        """Cut the stream short: drop unsent data, and tell the receivers.

        The call then serves repairs until no NAK comes any more. Receivers get `Closed` with cause RESET and `error`, a
        code of the application's. Raises `UsageError` unless `error` is from 0 to 63. An exception that leaves the
        block does the same with code 0, and serves no repairs.
        """
        if not 0 <= error <= _MOST_ERROR:
            raise UsageError(f"{error} is no code of a reset", remedy=f"choose from 0, unknown, to {_MOST_ERROR}")
        self._driver.perform(self._core.abort(time.monotonic_ns(), error=error))
        await self._finish()

    async def aclose(self) -> None:
        """Send all accepted data, and announce the end. Serve repairs until no NAK came for `fin_quiet_ivl`."""
        self.give_state()
        if self._packer is not None:
            self._packer.send_rest(time.monotonic_ns())
        self._core.close()
        self._driver.push()
        await self._finish()

    async def _finish(self) -> None:
        while not self._core.is_finished(time.monotonic_ns()):
            await self._waits.wait(NEVER)


class Source(SourceEndpoint[NodeDriver]):
    """Source of one stream, opened by `pgm.open_source`."""
