"""Gate of an event loop: other threads call its endpoints while the loop waits for I/O.

A call that is handed over to a loop costs two wake-ups of threads, some 70 us. The loop of an idle process sleeps in the
kernel, so its objects are at rest, and the calling thread can use them itself. `LoopGate` excludes the loop meanwhile.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import ClassVar, Protocol, TypeVar, TypeVarTuple

import trio

from pgm.errors import PgmError, UsageError

R = TypeVar("R")
Arguments = TypeVarTuple("Arguments")


class GateUser(Protocol):
    """Endpoint that threads call."""

    is_left_to_loop: bool  # whether only the loop may use it now

    def abandon(self) -> None:
        """End the use of an endpoint that a signal handler interrupted in the middle of its work."""


class LoopGate(trio.abc.Instrument):
    """Lock that a loop of trio holds while its tasks run, as an instrument of that loop.

    Three locks make it fair. A calling thread keeps `_callers` while it waits for `_running`, and the loop waits for
    `_callers` after each wait for I/O. So a busy loop lets a waiting thread in. The loop keeps `_door` meanwhile, so
    threads that call in a row cannot keep it out.

    Signal handlers may raise between any two instructions of the main thread. So calling threads only use `with`
    statements, which leave no lock behind. No handler runs in the loop's thread. Python's own handler of Ctrl-C raises
    after the call, if the main thread made the loop (`begin`).
    """

    _open: ClassVar[set[LoopGate]] = set()  # gates at which Ctrl-C is late

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._callers = threading.Lock()
        self._running = threading.Lock()
        # Threads that may not enter: the loop's, and those that use the gate or wait for it.
        self._inside: set[int] = set()
        self._thread = 0  # of the loop
        self._token: trio.lowlevel.TrioToken | None = None
        self._posted: dict[Callable[[], object], None] = {}
        self._is_interrupted = False  # by Ctrl-C, since the call of the main thread began

    def begin(self) -> None:
        """Replace Python's own handler of Ctrl-C, if this is the main thread; call this before the loop runs."""
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                signal.signal(signal.SIGINT, self._interrupt)
            self._open.add(self)

    def end(self) -> None:
        """Restore Python's own handler of Ctrl-C behind the last gate, if this is the main thread."""
        self._open.discard(self)
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and not self._open and signal.getsignal(signal.SIGINT) is LoopGate._interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @staticmethod
    def _interrupt(number: int, frame: FrameType | None) -> None:
        me = get_ident()
        if not any(gate.interrupt_later(me) for gate in tuple(LoopGate._open)):
            signal.default_int_handler(number, frame)

    def interrupt_later(self, thread: int) -> bool:
        """Raise `KeyboardInterrupt` at the end of a thread's call. Return False if it calls nothing here."""
        self._is_interrupted = self._is_interrupted or thread in self._inside
        return thread in self._inside

    # The loop

    def before_run(self) -> None:
        """Take the gate for the loop."""
        self._thread = get_ident()
        self._inside.add(self._thread)
        self._token = trio.lowlevel.current_trio_token()
        self._running.acquire()

    def before_io_wait(self, timeout: float) -> None:
        """Let other threads in."""
        self._running.release()

    def after_io_wait(self, timeout: float) -> None:
        """Take the gate for the loop, behind the thread that waits already."""
        with self._door, self._callers:
            self._running.acquire()

    def after_run(self) -> None:
        """Leave the gate open: no task is left. Another thread may get the number of this one later."""
        self._inside.discard(self._thread)
        self._thread = 0
        self._running.release()

    # Endpoints

    @property
    def is_in_loop(self) -> bool:
        """Return whether the caller is the loop's thread; otherwise it must not touch tasks."""
        return get_ident() == self._thread

    def post(self, function: Callable[[], object]) -> None:
        """Let the loop call a function soon, once. Callers are inside the gate. One wake-up serves all functions."""
        assert self._token is not None
        if not self._posted:
            self._token.run_sync_soon(self._call_posted)
        self._posted[function] = None

    def _call_posted(self) -> None:
        posted, self._posted = self._posted, {}
        for function in posted:
            function()

    # Other threads

    def run(self, user: GateUser, function: Callable[[*Arguments], R], *args: *Arguments) -> R | None:
        """Call a function of an endpoint that does not wait, while the loop does not run.

        Return None if the loop must do it. An error that is no refusal of the arguments comes from a signal handler. It
        may leave work half done, so it ends the endpoint. Raises `UsageError` in the loop's thread, and in a signal
        handler that interrupted such a call.
        """
        me = get_ident()
        if me in self._inside:
            self._refuse(me)
        try:
            self._inside.add(me)
            if self._door.locked():  # quicker than to enter it each time
                with self._door:
                    pass
            with self._callers, self._running:
                if user.is_left_to_loop:
                    return None
                try:
                    return function(*args)
                except (PgmError, TypeError, ValueError):
                    raise
                except BaseException:
                    user.abandon()
                    raise
        finally:
            self._inside.discard(me)
            if self._is_interrupted:
                self._raise_interrupt(me)

    def _raise_interrupt(self, me: int) -> None:
        if me == threading.main_thread().ident:
            self._is_interrupted = False
            raise KeyboardInterrupt

    def _refuse(self, me: int) -> None:
        if me == self._thread:
            raise UsageError(
                "this call would wait in the thread that runs the protocol",
                remedy="let handlers of notices pass their work on to another thread",
            )
        raise UsageError(
            "a signal handler interrupted a call of this thread, and cannot call meanwhile",
            remedy="let signal handlers set a flag, and act on it later",
        )
