"""Start of a node's services for operators: status socket, control socket, sampled rates, and outages."""

from __future__ import annotations

from collections.abc import Callable

from pgm.net.control.control_socket import control_path, serve_control
from pgm.net.control.files_watch import FilesCheck, files_watch_of
from pgm.net.control.outages import outages_of, watch_outages
from pgm.net.control.reload import answers_with_file
from pgm.net.control.status_socket import keep_rates, serve_status, status_path
from pgm.net.driver.event_loops import Tasks
from pgm.net.driver.node_driver import NodeDriver
from pgm.telemetry.snapshot import Snapshot
from pgm.topology.node_plan import NodePlan


async def start_answering(tasks: Tasks, plan: NodePlan, driver: NodeDriver, snapshot: Callable[[], Snapshot]) -> None:
    """Answer for a node until cancelled. Raises `ProcessError` if it runs already, or if a socket cannot be made."""
    await tasks.start(serve_status, status_path(plan.topology, plan.name), snapshot)
    path = control_path(plan.topology, plan.name)
    await tasks.start(serve_control, path, answers_with_file(plan, driver), driver.core.counters)
    outages = outages_of(driver)
    tasks.start_soon(watch_outages, driver, outages)
    tasks.start_soon(keep_rates, driver, outages, FilesCheck(files_watch_of(plan, driver.now_ns())))
