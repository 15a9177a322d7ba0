"""Profile of this machine: three runs of a small tree of processes, as in `pgm demo`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from deploy.bench.machine import describe
from deploy.demo.command import Demo
from deploy.demo.tree import DemoTree
from pgm.fleet.runtime_folders import DEMO_PREFIX
from pgm.prediction.machine import MachineProfile, fitted
from pgm.topology.node_plan import Role

_FEW, _MANY = 4_000, 44_000  # messages: the difference outweighs what the start of a process takes
_SIZE = 1400  # octets of a message
_LOSS = 0.05  # of the third run, on every last hop
_UPLINK_PART = 10  # the uplink loses less by this factor, lest the source cuts its rate, and the run takes longer
# counters of the requests that a node of a role made or answered; the largest one counts
_ANSWERED = ("nak_sqns_in", "rdata_packets", "missing_sqns")
_REQUESTS = {
    Role.SOURCE: _ANSWERED,
    Role.AGGREGATOR: _ANSWERED,
    Role.REPAIRER: _ANSWERED,
    Role.RECEIVER: ("missing_sqns",),
}


def measured(say: Callable[[str], None]) -> MachineProfile:
    """Return the profile of this machine. Raises `ProcessError` if a process fails."""
    runs = []
    for messages, loss in ((_FEW, 0.0), (_MANY, 0.0), (_MANY, _LOSS)):
        say(f"{messages:,} messages, {loss:.0%} loss")
        tree = DemoTree(subnets=1, receivers=2, loss=loss, burst_loss=0.0, uplink_loss=loss / _UPLINK_PART)
        with tempfile.TemporaryDirectory(prefix=DEMO_PREFIX) as folder:
            demo = Demo(tree, messages, _SIZE, 1, lambda *_: None)
            trio.run(demo.run, Path(folder))
        runs.append(_by_role(demo.snapshots))
    return fitted(describe()["cpu"], runs, (_FEW, _MANY))


def _by_role(snapshots: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the means over the nodes of each role."""
    found: dict[str, dict[str, Any]] = {}
    for role, counters in _REQUESTS.items():
        rows = [row for row in snapshots.values() if row["role"] == role.value]
        requests = [max(row["counters"].get(counter, 0) for counter in counters) for row in rows]
        found[role.value] = {
            "cpu_s": sum(row["cpu_s"] for row in rows) / len(rows),
            "rss_bytes": sum(row["rss_bytes"] for row in rows) / len(rows),
            "requests": sum(requests) / len(rows),
        }
    return found
