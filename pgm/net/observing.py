"""Observers of one endpoint of a node: telemetry, if the topology wants it, and the flight recorder."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.core.loss_observer import NO_OBSERVER
from pgm.errors import ProcessError
from pgm.flight.contents import SUFFIX
from pgm.flight.facts import facts_of
from pgm.flight.recorder import FlightRecorder
from pgm.flight.ring import RingFile
from pgm.net.control.status_socket import runtime_dir
from pgm.net.driver.effects import EffectPerformer
from pgm.net.sockets.trusted_folders import make_folder
from pgm.net.wall_clock import wall_offset_ns
from pgm.telemetry.observer import telling
from pgm.telemetry.observers import CoreObserver, ObserverPair
from pgm.topology.node_plan import NodePlan

_MOST_PROCESSES = 4  # of one node that record at a time: each has a ring of its own


@attrs.define
class _OpenRing:
    """Ring of a node in this process, and the endpoints that write it."""

    file: RingFile
    users: int = 0


_RINGS: dict[tuple[str, str], _OpenRing] = {}  # of this process, by topology and node
_LOCK = threading.Lock()


def flight_path(topology: str, node: str, process: int = 1) -> Path:
    """Return the path of a node's ring. Further processes of the same node have rings of their own."""
    name = node.replace("/", "_") + ("" if process == 1 else f"@{process}")
    return runtime_dir(topology) / f"{name}{SUFFIX}"


@contextmanager
def observing(plan: NodePlan, driver: EffectPerformer) -> Iterator[None]:
    """Observe an endpoint during a block.

    Raises `UsageError` if telemetry needs a missing package, and `ProcessError` if its folder is not writable. A node
    whose flight recorder has no room runs without one.
    """
    with telling(plan, driver.now_ns(), wall_offset_ns) as rows, _recording(plan, driver) as recorder:
        observers: list[CoreObserver] = [one for one in (rows, recorder) if one is not None]
        if observers:
            observer = observers[0] if len(observers) == 1 else ObserverPair(*observers)
            driver.observer = driver.core.counters.watch = observer
        try:
            yield
        finally:
            driver.observer, driver.core.counters.watch = None, NO_OBSERVER


@contextmanager
def _recording(plan: NodePlan, driver: EffectPerformer) -> Iterator[FlightRecorder | None]:
    file = _open_ring(plan, driver) if plan.topology and plan.parameters.flight_bytes else None
    if file is None:
        yield None
        return
    recorder = FlightRecorder(plan, driver.core, file.ring, driver.now_ns(), wall_offset_ns)
    try:
        yield recorder
    finally:
        recorder.close()
        _close_ring(plan)


def _open_ring(plan: NodePlan, driver: EffectPerformer) -> RingFile | None:
    """Return the ring of a node, which all of its endpoints in this process share; None if it has no place."""
    with _LOCK:
        shared = _RINGS.get((plan.topology, plan.name))
        if shared is None:
            addresses = [link.segment.address for link in driver.links]
            facts = facts_of(plan, addresses, socket.gethostname())
            for process in range(1, _MOST_PROCESSES + 1):
                path = flight_path(plan.topology, plan.name, process)
                try:
                    make_folder(path.parent)
                    file = RingFile(path, plan.parameters.flight_bytes, facts)
                except (ProcessError, OSError) as error:
                    if not isinstance(error.__cause__, BlockingIOError):
                        return None
                    continue
                shared = _RINGS[plan.topology, plan.name] = _OpenRing(file)
                break
            else:
                return None
        shared.users += 1
        return shared.file


def _close_ring(plan: NodePlan) -> None:
    with _LOCK:
        shared = _RINGS[plan.topology, plan.name]
        shared.users -= 1
        if not shared.users:
            del _RINGS[plan.topology, plan.name]
            shared.file.close()
