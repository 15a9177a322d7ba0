"""Trees of many subnets with models: cost of the run, and sends beside their formula.

`python -m tests.sim.crowd.scale --subnets 100 --receivers 10 100 1000` prints a row for each number of receivers a subnet.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from deploy.node.roles import build_core
from deploy.simulation.command import with_losses
from pgm.models.sends import sends_per_packet
from pgm.sim.load import Load
from pgm.sim.parts.account import Report
from pgm.sim.parts.part import Part
from pgm.sim.parts.windows import LocalLink
from pgm.sim.runs.report import run_parts, whole_tree
from pgm.topology.load import load_checked
from pgm.topology.plan import plan_some
from tests.sim.crowd.subnets import subnets

LOSS, UPLINK = 0.01, 0.002


def run_subnets(count: int, receivers: int, messages: int) -> Report:
    """Run a tree of subnets with one real receiver each, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tree.toml"
        file.write_text(subnets(count, receivers, loss=f"{LOSS:%}"))
        plans, rest = plan_some(load_checked(file), {}, 1)
    plans = {name: with_losses(plan, None, UPLINK) for name, plan in plans.items()}
    whole = whole_tree(plans, build_core, 1, Load(messages=messages, size=100), rest=rest)
    part = Part(whole, [])
    return run_parts(whole, [LocalLink(part)]) | {"parts": [part.usage().row]}


def repairs_per_packet(report: Report) -> tuple[float, float]:
    """Return the repairs that a relay sends for each packet, and those of the formula."""
    relays = report["aggregators"]
    sent = sum(row["rdata"] for row in relays) / len(relays) / report["messages"]
    receivers = 1 + report["crowds"][0]["members"]
    return sent, sends_per_packet([LOSS], [receivers]) - 1


def main() -> None:
    """Print a row for each number of receivers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subnets", type=int, default=10)
    parser.add_argument("--receivers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--messages", type=int, default=1000)
    options = parser.parse_args()
    for receivers in options.receivers:
        began = time.process_time()
        report = run_subnets(options.subnets, receivers, options.messages)
        sent, expected = repairs_per_packet(report)
        source = report["source"]
        print(
            f"{options.subnets * receivers:9,} receivers: {time.process_time() - began:6.1f} s of CPU, "
            f"{report['parts'][0]['memory_mb']} MB, {source['nak_packets']} NAKs at the source, {source['rdata']} repairs, "
            f"{sent:.4f} repairs a packet in a subnet, formula {expected:.4f}, ok: {report['ok']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
