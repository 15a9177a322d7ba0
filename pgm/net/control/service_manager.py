"""Reports of a node to the service manager that started it, by the protocol of sd_notify(3).

The manager names its socket in `NOTIFY_SOCKET`, and asks for signs of life by `WATCHDOG_USEC`. Without these variables
nothing is reported. A node is ready once it has heard or sent a packet. A node that hears nothing is ready after
`ready_ivl`, so that the start of a host does not wait for a source that is silent.

The watchdog is fed from the event loop of the packets, and only while every core serves its deadlines in time.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping

import attrs

from pgm.core.counters import Counters
from pgm.net.control.outages import counters_of
from pgm.net.driver.event_loops import current_loop
from pgm.net.driver.node_driver import NodeDriver
from pgm.units import MICROSECOND, MILLISECOND, SECOND

_CHECK_IVL = 100 * MILLISECOND  # between two looks for the first packet: a start may take that much longer
_STATUS_IVL = 10 * SECOND  # between two lines of status where no watchdog sets the interval
_FEEDS = 3  # of the watchdog in each of its intervals, so that one late feed does no harm


@attrs.frozen
class ServiceManager:
    """Socket of the service manager, and how often it wants a sign of life (`watchdog_ivl` in ns; 0: never)."""

    path: str
    watchdog_ivl: int = 0

    @classmethod
    def named_in(cls, environ: Mapping[str, str], pid: int) -> Iterator[ServiceManager]:
        """Yield the manager that the environment of the process `pid` names, if it names one."""
        if path := environ.get("NOTIFY_SOCKET", ""):
            is_meant = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
            microseconds = environ.get("WATCHDOG_USEC", "")
            is_watched = is_meant and microseconds.isdecimal()
            yield cls(path, int(microseconds) * MICROSECOND if is_watched else 0)

    def tell(self, *lines: str) -> None:
        """Send assignments such as `READY=1`. A manager that takes none ends nothing."""
        address = "\0" + self.path[1:] if self.path.startswith("@") else self.path
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            try:
                sock.sendto("\n".join(lines).encode(), address)
            except OSError:
                return  # the manager restarts, or its queue is full: the next report comes soon


async def report_to_managers(driver: NodeDriver, ready_ivl: int) -> None:
    """Report readiness, status and signs of life of a node until cancelled."""
    for manager in ServiceManager.named_in(os.environ, os.getpid()):
        try:
            await _report(manager, driver, ready_ivl)
        finally:
            manager.tell("STOPPING=1", "STATUS=leaving")


async def _report(manager: ServiceManager, driver: NodeDriver, ready_ivl: int) -> None:
    loop = current_loop()
    since_ns = driver.now_ns()
    while not _has_news(counters_of(driver)) and driver.now_ns() - since_ns < ready_ivl:
        manager.tell("STATUS=waiting for the first packet", *_signs_of_life(manager, driver))
        await loop.sleep(_CHECK_IVL / SECOND)
    manager.tell("READY=1")
    while True:
        manager.tell(f"STATUS={status_line(counters_of(driver))}", *_signs_of_life(manager, driver))
        await loop.sleep((manager.watchdog_ivl // _FEEDS or _STATUS_IVL) / SECOND)


def _signs_of_life(manager: ServiceManager, driver: NodeDriver) -> Iterator[str]:
    """Yield the sign of life, if the manager wants it and no core has a deadline that is overdue."""
    now_ns = driver.now_ns()
    if manager.watchdog_ivl and all(now_ns - one.core.deadline_ns < manager.watchdog_ivl for one in driver.endpoints):
        yield "WATCHDOG=1"


def _has_news(counters: Counters) -> bool:
    return counters.trains_in + counters.odata_packets + counters.spm_packets > 0


def status_line(counters: Counters) -> str:
    """Return one line about a node with these counters, as `systemctl status` shows it."""
    if not _has_news(counters):
        return "no packet heard or sent yet"
    return f"{counters.trains_in:,} reads, {counters.repaired_sqns:,} packets repaired, {counters.lost_sqns:,} lost"
