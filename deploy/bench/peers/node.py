"""One node of a topology file, which runs its role until the benchmark ends it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import trio

import aggregator.process
import repairer.process
from deploy.bench.peers.control import Control
from deploy.bench.peers.loop_control import until_over
from pgm.net.endpoint.open import open_receiver, open_source
from pgm.topology.check import load_checked
from pgm.topology.node_plan import NodePlan, Role
from pgm.topology.plan import plan_node


async def run(control: Control, plan: NodePlan) -> None:
    """Say "ready" and run until standard input closes."""
    if plan.role is Role.SOURCE:
        async with open_source(plan, fin_quiet_ivl="50ms"):
            control.say("ready")
            await until_over(control)
    elif plan.role is Role.RECEIVER:
        async with open_receiver(plan) as receiver, trio.open_nursery() as nursery:
            control.say("ready")

            async def take() -> None:
                async for _ in receiver.batches():
                    pass

            nursery.start_soon(take)
            await until_over(control)
            nursery.cancel_scope.cancel()
    else:
        await _run_element(control, plan)


async def _run_element(control: Control, plan: NodePlan) -> None:
    def log(code: str, text: str) -> None:
        if code == "ready":
            control.say("ready")
        else:
            print(f"{code}: {text}", file=sys.stderr, flush=True)

    element = aggregator.process.run if plan.role is Role.AGGREGATOR else repairer.process.run
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await until_over(control)
            os.kill(os.getpid(), signal.SIGTERM)  # elements stop on SIGTERM

        nursery.start_soon(stop)
        await element(plan, log)
        nursery.cancel_scope.cancel()


def main() -> None:
    """Run a node; the last two arguments are the topology file and the node's name."""
    file, node = sys.argv[-2:]
    trio.run(run, Control(), plan_node(load_checked(Path(file)), node))


if __name__ == "__main__":
    main()
