"""Source for applications: sends messages, and waits if the rate or the window requires it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import trio

from pgm.core.effects import Effects, Notice
from pgm.core.source.source import SourceCore
from pgm.core.window.transmit_window import Payload
from pgm.errors import UsageError
from pgm.messages.arguments import Names, Payloads
from pgm.messages.objects import CBOR, Codec
from pgm.net.control.rate_setting import checked_rate
from pgm.net.driver.trio_driver import TrioDriver
from pgm.net.endpoint.base import SourceEndpoint, SourceOutbox
from pgm.units import MICROSECOND

# Sends between two checkpoints while there is room: a checkpoint costs more than a send.
_SENDS_PER_CHECKPOINT = 32
# Least time after the last message for a message to leave at once. Messages in a loop come sooner, and share a train.
_ALONE_IVL_NS = 20 * MICROSECOND
_MOST_ERROR = 63  # six bits of OPT_RST


class Outbox(SourceOutbox):
    """Application side of a source's core that also wakes tasks when there may be room."""

    def __init__(self, on_notice: Callable[[Notice], None]) -> None:
        super().__init__(on_notice)
        self._waiters = trio.lowlevel.ParkingLot()

    def after(self) -> Effects:
        """Wake waiting tasks: data was sent, or a timer has run out."""
        effects = super().after()
        self._waiters.unpark_all()
        return effects

    async def wait(self) -> None:
        """Wait until data was sent, or a timer has run out."""
        await self._waiters.park()


class Source(SourceEndpoint[TrioDriver]):
    """Source of one stream, opened by `pgm.open_source`."""

    def __init__(self, core: SourceCore, outbox: Outbox, driver: TrioDriver) -> None:
        super().__init__(core, driver, outbox.packer)
        self._outbox = outbox
        self._sends = 0
        self._alone_from_ns = 0

    async def send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int:
        """Send one message. Return the sqn of its first packet.

        On streams with batches a message may have a `subject` and a destination node (`to`). It may wait for others to
        share its packet, up to `flush_ivl`, unless `flush` is set. The call waits while `txw_unsent_bytes` are accepted
        and not sent. Raises `PayloadTooLarge` if the window cannot hold the message, `SourceClosed` after closing,
        `UsageError` for invalid names.
        """
        if self._packer is None and subject is None and to is None:
            self._sends += 1
            if self._sends % _SENDS_PER_CHECKPOINT:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
            alone = self._send_alone(payload)
            if alone is not None:
                return alone
        await self._wait_for_room()
        sqn = self._accept(payload, subject, to, flush=flush)
        self._driver.reschedule()
        return sqn

    def _send_alone(self, payload: Payload) -> int | None:
        """Send a message on the fast path, past the driver's tasks. Return None if that is not possible.

        The general path wakes those tasks, once for this message and once for all behind it.
        """
        now_ns = TrioDriver.now_ns()
        alone_from_ns, self._alone_from_ns = self._alone_from_ns, now_ns + _ALONE_IVL_NS
        if now_ns < alone_from_ns or self._driver.is_held_up:
            return None
        core = self._core
        packet = core.send_alone(payload, now_ns)
        if packet is None:
            return None
        try:
            self._driver.send_alone(packet, core.setup.segment)
        finally:  # also if a signal ends the call: data with its sqn can be repaired
            core.sent_alone(packet, now_ns)
        self._driver.expect_by(core.next_event_ns)
        return core.window.lead

    def try_send(
        self, payload: Payload, *, subject: str | None = None, to: str | None = None, flush: bool = False
    ) -> int | None:
        """Send one message if there is room for it now. Return the sqn of its first packet; None without room."""
        if self._core.room_octets <= 0:
            return None
        sqn = self._accept(payload, subject, to, flush=flush)
        self._driver.reschedule()
        return sqn

    async def send_parts(self, parts: Sequence[Payload]) -> int:
        """Send one message of several parts, as a PUB socket of ZeroMQ does.

        Returns the sqn of its first packet. Messages share packets: a message sent while others wait goes with them,
        and `flush` waits for all. Raises `UsageError` if the stream does not have ZeroMQ's framing, `PayloadTooLarge`
        above `max_apdu`, ValueError without parts.
        """
        self._require_framing()
        await self._wait_for_room()
        sqn = self._accept_parts(parts)
        self._driver.reschedule()
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
        self._driver.reschedule()
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
        """Send a value as one message, in CBOR unless `codec` says otherwise; else as `send`.

        Raises `UsageError` for a value that the codec cannot encode.
        """
        return await self.send(codec.encode(value), subject=subject, to=to, flush=flush)

    async def _wait_for_room(self) -> None:
        self._sends += 1
        if self._core.room_octets > 0:
            if self._sends % _SENDS_PER_CHECKPOINT == 0:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.checkpoint_if_cancelled()
            return
        while self._core.room_octets <= 0:
            await self._outbox.wait()

    async def flush(self) -> None:
        """Wait until everything accepted has been sent."""
        if self._packer is not None:
            self._packer.flush(TrioDriver.now_ns())
            self._driver.reschedule()
        while self._core.window.has_unsent or (self._packer is not None and self._packer.has_rest):
            await self._outbox.wait()
        await trio.lowlevel.checkpoint()

    async def stable(self, sqn: int | None = None) -> None:
        """Wait until every member of an acknowledged stream has everything up to `sqn`.

        None means all accepted data. A message of several packets ends before the sqn of the next message, so wait for
        that sqn less one. Members that are silent for `ack_expiry` are left out. With fewer than `ack_quorum` members
        nothing is stable. Raises `UsageError` for a stream that is not acknowledged.
        """
        wanted = self._core.window.end - 1 if sqn is None else sqn
        while not self.is_stable(wanted):
            await self._outbox.wait()
        await trio.lowlevel.checkpoint()

    async def joined(self, members: int) -> None:
        """Wait until at least `members` receivers acknowledge; they miss no data sent from now on.

        Raises `UsageError` for a stream that is not acknowledged.
        """
        while self.members < members:
            await self._outbox.wait()
        await trio.lowlevel.checkpoint()

    def set_rate(self, rate: str | int) -> None:
        """Set the greatest rate from now on, repairs included.

        The rate is a spelling such as "20Mbit/s", octets a second, or "start" for that of the topology. That rate is
        also the maximum, because windows and caches were made for it. Raises `UsageError`, `UnitError`.
        """
        self._core.set_rate(checked_rate(self._core, rate), TrioDriver.now_ns())
        self._driver.reschedule()

    def advance_trail(self, sqn: int) -> None:
        """Drop everything before the message whose first packet is `sqn`, as a send returned it.

        Dropped data cannot be repaired any more; receivers that lack it are told so. With `txw_adv_mode =
        "application"` nothing else moves the window, and a full window makes `send` wait (RFC 3208, 16.4).
        """
        self._core.advance_trail(sqn)
        self._driver.reschedule()

    def close_window(self) -> None:
        """Drop everything sent so far, and tell the receivers at once."""
        self._driver.perform_now(self._core.close_window(TrioDriver.now_ns()))

    async def abort(self, error: int = 0) -> None:
        """Cut the stream short: drop unsent data, and tell the receivers.

        The call then serves repairs until no NAK comes any more. Receivers get `Closed` with cause RESET and `error`, a
        code of the application's. Raises `UsageError` unless `error` is from 0 to 63. An exception that leaves the
        block does the same with code 0, and serves no repairs.
        """
        if not 0 <= error <= _MOST_ERROR:
            raise UsageError(f"{error} is no code of a reset", remedy=f"choose from 0, unknown, to {_MOST_ERROR}")
        self._driver.perform_now(self._core.abort(TrioDriver.now_ns(), error=error))
        await self._finish()

    async def aclose(self) -> None:
        """Send all accepted data, and announce the end. Serve repairs until no NAK came for `fin_quiet_ivl`."""
        if self._packer is not None:
            self._packer.send_rest(TrioDriver.now_ns())
        self._core.close()
        self._driver.reschedule()
        await self._finish()

    async def _finish(self) -> None:
        while not self._core.is_finished(TrioDriver.now_ns()):
            await self._outbox.wait()
