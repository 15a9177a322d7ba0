"""asyncio driver: runs one core on its links by callbacks of the event loop, until cancelled.

The loop calls the driver when the core's deadline is reached, and when a link takes data that it refused before. Reads
come from callbacks as well (`pgm.net.driver.asyncio_reads`), each of a bounded number of trains, so other tasks have their
turn. The driver has no task of its own but one that waits for its end. Every loop with the interface of asyncio will do,
such as uvloop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from pgm.core.effects import Send
from pgm.core.interface import Core
from pgm.net.driver.asyncio_loop import end_wait
from pgm.net.driver.asyncio_reads import AsyncioReads
from pgm.net.driver.effects import DEADLINES_IN_A_ROW, LATE_NS, Application
from pgm.net.driver.held_sends import HeldSends
from pgm.net.driver.node_driver import NodeDriver
from pgm.net.driver.rest_settings import NO_MODERATION, ReadSettings
from pgm.net.link.link import Link
from pgm.net.link.reader import SocketRead
from pgm.net.sockets.inputs import Input
from pgm.units import MILLISECOND, NEVER, SECOND

_SOON = 0  # in place of a deadline: the deadline is checked anyway, or never again


class AsyncioDriver(NodeDriver):
    """Driver of `core` on the links of `reads` in the running loop. `settings` bounds rests and prefaulted memory."""

    def __init__(
        self, core: Core, reads: AsyncioReads, application: Application, settings: ReadSettings = NO_MODERATION
    ) -> None:
        super().__init__(core, reads, application, settings)
        self.reads: AsyncioReads = reads
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._held_sends = HeldSends(reads.links)
        self._writer: socket.socket | None = None  # the socket that refused data
        self._timer: asyncio.Handle | None = None
        self._until_ns = _SOON  # when the timer checks the core's deadline
        self._due_ns = NEVER  # the same, or the time of the call that set a deadline of the past
        reads.links.join(self)

    async def run(self) -> None:
        """Run until cancelled. Raises the exception of a handler of notices, which ends the driver."""
        with self.reads.running():
            self._until_ns = NEVER
            self.reschedule()
            try:
                await self._ended
            except asyncio.CancelledError:
                if not self._ended.cancelled():  # a handler of notices has raised since
                    self._ended.result()
                raise
            finally:
                self._stop()

    def _stop(self) -> None:
        """Take all callbacks from the loop."""
        end_wait(self._ended)
        self._until_ns = _SOON
        if self._timer is not None:
            self._timer.cancel()
        if self._writer is not None:
            self.reads.forget(self._writer, self._send_held)
            self._writer = None

    def _guarded(self, callback: Callable[..., None], *args: object) -> None:
        """Run a callback of the loop. An exception, of a handler of notices, ends this endpoint alone."""
        try:
            callback(*args)
        except BaseException as error:
            self.end(error)

    def end(self, error: BaseException) -> None:
        """End the driver by an error, which `run` raises."""
        if not self._ended.done():
            self._ended.set_exception(error)
        self._stop()

    def take(self, link: Link, sock: Input, arrival: SocketRead) -> None:
        """Pass a read to the core, and perform the effects."""
        self._moderations[sock].read(arrival.train.length)
        self._guarded(super().take, link, sock, arrival)

    @property
    def is_open(self) -> bool:
        """Return whether the driver runs."""
        return not self._ended.done()

    @property
    def is_held_up(self) -> bool:
        """Return whether data waits for a link: later data must wait behind it."""
        return bool(self._held_sends.queue)

    # Deadlines

    def reschedule(self) -> None:
        """Check the core's deadline again after a change from outside of the driver."""
        if self._until_ns and (deadline_ns := self.core.deadline_ns) < self._until_ns:
            self._set_timer(deadline_ns)

    push = reschedule  # data leaves in the next turn of the loop, together with data that other tasks accept until then

    def expect_by(self, at_ns: int) -> None:
        """Note that the core was called, and has nothing to do before the given time."""
        if at_ns < self._until_ns:
            self._set_timer(at_ns)

    def _set_timer(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ns = self.now_ns()
        self._due_ns = max(deadline_ns, now_ns)
        wait_ms = -((now_ns - deadline_ns) // MILLISECOND)  # rounded up, as the kernel's wait of the loop is
        if wait_ms <= 0:
            self._until_ns = _SOON
            self._timer = self._loop.call_soon(self._guarded, self._serve)
        else:
            self._until_ns = deadline_ns
            self._timer = self._loop.call_later(wait_ms * MILLISECOND / SECOND, self._guarded, self._serve)

    def _serve(self) -> None:
        """Serve the core's deadline while it is reached, a few times. Held data goes first, and continues this."""
        self._until_ns = _SOON
        for _ in range(DEADLINES_IN_A_ROW):
            now_ns = self.now_ns()
            if now_ns - self._due_ns >= LATE_NS and not self.reads.catch_up():
                self._timer = self._loop.call_soon(self._guarded, self._serve)
                return
            self._due_ns = now_ns
            if self._writer is not None or not self.is_open or self.core.deadline_ns > now_ns:
                break
            self.call(self.core.handle_deadline, now_ns)
        if self._writer is None and self.is_open:
            self._until_ns = NEVER
            self.reschedule()

    # Sends

    def _send_data_now(self, send: Send) -> None:
        """Send data behind all held data; hold data that the link refuses."""
        refused = self._held_sends.send(send)
        if refused is not None and self.is_open:
            self._writer = refused
            self.reads.await_writable(refused, self._send_held)

    def _send_held(self) -> None:
        self._writer = self._held_sends.send_held()
        if self._writer is not None:
            self.reads.await_writable(self._writer, self._send_held)
        else:
            self._guarded(self._serve)
