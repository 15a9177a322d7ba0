"""Signals of a process that an operator or a service manager runs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

import trio

_SIGNALLED = 128  # plus the signal's number, as shells report a process that a signal ended


def _has_terminal() -> bool:
    """Return whether the process has a terminal that is open: a hangup of it is no request to reload."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def exit_at(number: int) -> NoReturn:
    """End this process with the exit code of a signal. Raises `SystemExit`."""
    raise SystemExit(_SIGNALLED + number)


async def heed_signals(
    on_stop: Callable[[int], object] = exit_at,
    on_hangup: Callable[[int], object] = exit_at,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Call `on_stop` at each SIGTERM and SIGINT, and `on_hangup` at each SIGHUP, with the signal's number.

    Report the start once no signal is missed. Raises `SystemExit` if SIGHUP tells that the terminal of the start has
    gone. An ignored SIGHUP stays ignored, as under nohup. An ignored SIGINT does not, because shells start background
    commands with SIGINT ignored.
    """
    numbers = {signal.SIGINT, signal.SIGTERM}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.add(signal.SIGHUP)
    had_terminal = _has_terminal()
    with trio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP:
                on_stop(number)
            elif had_terminal and not _has_terminal():
                exit_at(number)
            else:
                on_hangup(number)
