"""Runs of one tree in one part and in several: all hashes and rows must be equal.

`python -m tests.sim.parts.compare FILE --count 'desk-*=100'` prints one row for each number of parts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from deploy.node.roles import build_core
from deploy.simulation.command import parse_counts, with_losses
from pgm.impairments import Impairment
from pgm.sim.load import Load, NetworkConditions
from pgm.sim.parts.account import Report
from pgm.sim.runs.report import local_links, parts_of, run_parts, whole_tree
from pgm.topology.load import load_checked
from pgm.topology.node_plan import NodePlan
from pgm.topology.plan import plan_all


def run_cut(
    plans: Mapping[str, NodePlan], parts: int, load: Load, conditions: NetworkConditions | None = None, seed: int = 1
) -> tuple[Report, int]:
    """Run a tree in at most `parts` parts of this process. Return its report, and the number of parts.

    The number of events differs with the number of parts, because nodes of one part share the event of an arrival.
    """
    whole = whole_tree(plans, build_core, seed, load, conditions or NetworkConditions())
    cut = parts_of(whole, parts)
    report = run_parts(whole, local_links(cut), shared=frozenset(cut[0].shared))
    del report["events"]
    return report, len(cut)


def lossy_plans(file: Path, counts: Mapping[str, int], loss: float, uplink: float) -> dict[str, NodePlan]:
    """Return the plans of a file with losses on every last hop, and between the tiers."""
    plans = plan_all(load_checked(file), counts)
    return {name: with_losses(plan, Impairment(loss=loss), uplink) for name, plan in plans.items()}


def main() -> int:
    """Compare the runs of a file, and return 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--count", action="append", default=[])
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 2, 5, 1000])
    options = parser.parse_args()
    plans = lossy_plans(options.file, parse_counts(tuple(options.count)), 0.01, 0.005)
    first: Report | None = None
    are_equal = True
    for wanted in options.parts:
        began = time.process_time()
        report, parts = run_cut(plans, wanted, Load(options.messages))
        first = first or report
        are_equal = are_equal and report == first
        seconds = time.process_time() - began
        print(
            f"{parts:4} parts, {len(report['receivers']):,} receivers: {report['digest']}, "
            f"{report['totals']['nak_sqns']:,} sqns requested, equal: {report == first}, {seconds:.1f} s of CPU"
        )
    return 0 if are_equal else 1


if __name__ == "__main__":
    sys.exit(main())
