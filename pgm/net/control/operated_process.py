"""Process that an operator or a service manager runs: it answers questions, ends on a signal, and reports its state."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial

import trio

from pgm.net.control.reload import has_terminal, reload
from pgm.net.control.serve import start_answering
from pgm.net.control.service_manager import report_to_managers
from pgm.net.driver.node_driver import NodeDriver
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan

Log = Callable[[str, str], None]  # code, text
_SIGNALLED = 128  # exit codes of signals begin here, by the convention of shells


async def start_operating(
    nursery: trio.Nursery, plan: NodePlan, driver: NodeDriver, snapshot: Callable[[], Snapshot], log: Log
) -> None:
    """Answer for a node, report to the service manager, and cancel `nursery` on a signal.

    Complaints about socket buffers go to `log`. Returns once no signal is missed. Raises `ProcessError`.
    """
    for link in driver.links:
        if link.sockets.buffers.complaint:
            log("rcvbuf", f"segment {link.plan.name}: {link.sockets.buffers.complaint}")
    await start_answering(nursery, plan, driver, snapshot)
    nursery.start_soon(report_to_managers, driver, plan.parameters.ready_ivl)
    await nursery.start(cancel_on_signal, nursery.cancel_scope, partial(reload, plan, driver))


async def cancel_on_signal(
    scope: trio.CancelScope,
    on_hangup: Callable[[], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Cancel a scope on SIGTERM and SIGINT, and call `on_hangup` on SIGHUP. Report the start once no signal is missed.

    An ignored SIGHUP stays ignored, as under nohup. Raises `SystemExit` if SIGHUP tells that the terminal has gone.
    """
    wanted = {signal.SIGTERM, signal.SIGINT}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.add(signal.SIGHUP)
    had_terminal = has_terminal()
    with trio.open_signal_receiver(*wanted) as signals:
        task_status.started()
        async for number in signals:
            if number != signal.SIGHUP:
                scope.cancel()
            elif had_terminal and not has_terminal():
                raise SystemExit(_SIGNALLED + number)
            else:
                on_hangup()
