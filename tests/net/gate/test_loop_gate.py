"""The gate of a loop: a thread and the loop take turns, and signals leave it usable."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import pytest
import trio

from pgm import UsageError
from pgm.net.gate.loop_gate import LoopGate

TURNS = 300
PATIENCE_S = 20.0


class Interrupted(Exception):
    """Exception of a handler."""


@attrs.define(eq=False)
class User:
    """Endpoint that counts."""

    is_left_to_loop: bool = False
    is_abandoned: bool = False

    def abandon(self) -> None:
        """Note the call."""
        self.is_abandoned = True


@attrs.define(eq=False)
class Loop:
    """Loop in a thread, which passes its checkpoints without a pause."""

    gate: LoopGate = attrs.Factory(LoopGate)
    passes: int = 0
    is_running: bool = False  # between two checkpoints
    is_over: bool = False
    has_begun: threading.Event = attrs.Factory(threading.Event)

    async def main(self) -> None:
        while not self.is_over:
            self.is_running = False
            await trio.lowlevel.checkpoint()
            self.is_running = True
            self.passes += 1
            self.has_begun.set()

    def run(self) -> None:
        trio.run(self.main, instruments=[self.gate])


@contextmanager
def running() -> Iterator[Loop]:
    loop = Loop()
    loop.gate.begin()
    thread = threading.Thread(target=loop.run)
    thread.start()
    assert loop.has_begun.wait(PATIENCE_S)
    try:
        yield loop
    finally:
        loop.is_over = True
        thread.join(PATIENCE_S)
        loop.gate.end()
    assert not thread.is_alive()


def test_gate_busy_loop_and_busy_threads_take_turns() -> None:
    user, failures = User(), []
    with running() as loop:

        def call() -> None:
            before = loop.passes
            held = loop.passes
            for _ in range(1000):
                held = loop.passes
            failures.extend(["the loop ran inside a call"] * (held != before))

        begun, until_s = loop.passes, time.monotonic() + PATIENCE_S
        made = [0] * 3

        def calls(number: int) -> None:
            while made[number] < TURNS or (loop.passes - begun < TURNS and time.monotonic() < until_s):
                loop.gate.run(user, call)
                made[number] += 1

        threads = [threading.Thread(target=calls, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive()
        assert loop.passes - begun >= TURNS
    assert failures == []


def test_gate_posted_functions_run_once_in_the_loop() -> None:
    user, threads = User(), []
    done = threading.Event()
    with running() as loop:

        def posted() -> None:
            threads.append(threading.current_thread())
            done.set()

        def call() -> bool:
            loop.gate.post(posted)
            loop.gate.post(posted)
            return loop.gate.is_in_loop

        assert loop.gate.run(user, call) is False
        assert done.wait(PATIENCE_S)
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_gate_left_to_the_loop_calls_nothing() -> None:
    user = User(is_left_to_loop=True)
    with running() as loop:
        assert loop.gate.run(user, int) is None
        user.is_left_to_loop = False
        assert loop.gate.run(user, int) == 0


def test_gate_in_the_loop_refuses_to_wait() -> None:
    gate = LoopGate()

    async def main() -> None:
        with pytest.raises(UsageError, match="thread that runs the protocol"):
            gate.run(User(), int)

    trio.run(main, instruments=[gate])


def test_gate_interrupt_in_a_call_is_raised_after_it() -> None:
    user = User()
    before = signal.getsignal(signal.SIGINT)
    assert before is signal.default_int_handler
    results: list[int] = []

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        results.append(1)

    with running() as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.gate.run(user, interrupted)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert loop.gate.run(user, int) == 0
    assert results == [1]
    assert not user.is_abandoned
    assert signal.getsignal(signal.SIGINT) is before


def test_gate_raising_handler_in_a_call_ends_the_endpoint() -> None:
    user = User()

    def interrupted() -> None:
        raise Interrupted

    with running() as loop:
        with pytest.raises(Interrupted):
            loop.gate.run(user, interrupted)
        assert user.is_abandoned
        assert loop.gate.run(user, int) == 0  # no lock is left behind


def test_gate_call_by_a_handler_in_a_call_is_refused() -> None:
    user = User()

    with running() as loop:

        def nested() -> None:
            with pytest.raises(UsageError, match="signal handler interrupted"):
                loop.gate.run(user, int)

        loop.gate.run(user, nested)
        assert loop.gate.run(user, int) == 0
