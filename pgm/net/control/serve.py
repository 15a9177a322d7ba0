"""Start of a node's services for operators: status socket, control socket, and sampled rates."""

from __future__ import annotations

from collections.abc import Callable

import trio

from pgm.net.control.control_socket import control_path, serve_control
from pgm.net.control.settings import answers_of
from pgm.net.control.status_socket import keep_rates, serve_status, status_path
from pgm.net.driver.trio_driver import TrioDriver
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan


async def start_answering(
    nursery: trio.Nursery, plan: NodePlan, driver: TrioDriver, snapshot: Callable[[], Snapshot]
) -> None:
    """Answer for a node until cancelled. Raises `ProcessError` if it runs already, or if a socket cannot be made."""
    await nursery.start(serve_status, status_path(plan.topology, plan.name), snapshot)
    path = control_path(plan.topology, plan.name)
    await nursery.start(serve_control, path, answers_of(plan, driver), driver.core.counters)
    nursery.start_soon(keep_rates, driver)
