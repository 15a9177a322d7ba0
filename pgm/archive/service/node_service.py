"""Range service of a recording node: a process of its own, which the node starts again if it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from pgm.parameters import Parameters
from pgm.topology.node_plan import NodePlan
from pgm.units import SECOND

Log = Callable[[str, str], None]  # code, text


class _NodeService:
    """Thread that keeps the process running. The node itself loads neither Arrow nor gRPC."""

    def __init__(self, plan: NodePlan, directory: Path, log: Log) -> None:
        defaults = attrs.asdict(Parameters())
        changed = {key: value for key, value in attrs.asdict(plan.parameters).items() if value != defaults[key]}
        self._order = {
            "directory": str(directory), "address": plan.record_service, "node": plan.name, "parameters": changed
        }  # fmt: skip
        self._retry_s = plan.parameters.record_retry_ivl / SECOND
        self._log = log
        self._ends = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="pgm range service", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            process = self._start()
            if process is None:
                return
            assert process.stdout is not None
            if process.stdout.readline():
                self._log("serves", f"the archive {self._order['directory']} on {self._order['address']}")
            code = process.wait()
            if self._ends.is_set():
                return
            self._log("archive-service-died", f"the service on {self._order['address']} ended with {code}")
            self._ends.wait(self._retry_s)

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Start the process; return None if the node ends."""
        command = [sys.executable, "-m", "pgm.archive.service.service_main", json.dumps(self._order)]
        with self._lock:
            if self._ends.is_set():
                return None
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return self._process

    def close(self) -> None:
        """End the process, and wait for its end."""
        with self._lock:
            self._ends.set()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
        self._thread.join()


@contextmanager
def serving(plan: NodePlan, directory: Path, log: Log) -> Iterator[None]:
    """Serve the archive of a node for a block, if its plan has an address for that."""
    if not plan.record_service:
        yield
        return
    directory.mkdir(parents=True, exist_ok=True)
    service = _NodeService(plan, directory, log)
    try:
        yield
    finally:
        service.close()
