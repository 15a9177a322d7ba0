"""Process that an operator or a service manager runs: it answers questions, ends on a signal, and reports its state."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pgm.net.control.reload import RunningPlan
from pgm.net.control.serve import start_answering
from pgm.net.control.service_manager import report_to_managers
from pgm.net.control.signals import heed_signals
from pgm.net.driver.node_driver import NodeDriver
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan

Log = Callable[[str, str], None]  # code, text


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
    running = RunningPlan(plan, driver)
    await nursery.start(heed_signals, lambda _: nursery.cancel_scope.cancel(), lambda _: running.reload())
