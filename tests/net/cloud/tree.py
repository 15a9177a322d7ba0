"""Process that runs all nodes of a topology file, each with its sockets in the network namespace of its host.

`python -m tests.net.cloud.tree FILE NODE=PID ...` sends messages from the source to all receivers, and prints what they
got, the joined groups of each node, and what `pgm doctor` finds there. A namespace is that of process PID. Sources come
last. The process must be root in the user namespace of the hosts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import trio

from deploy.doctor.network import check_nodes, uses_of
from deploy.node.sample_messages import generate
from pgm.topology.check import load_checked
from pgm.topology.plan import plan_all
from tests.net.support.elements import Tree, running
from tests.net.support.lab import enter_namespaces
from tests.net.support.listening import taking

MESSAGES = 200
SIZE = 4000  # octets: every packet but the last of a message has the largest size


def joined_groups() -> dict[str, str]:
    """Return the version of IGMP of each joined group in the namespace of the only thread."""
    found, version = {}, ""
    for line in Path("/proc/self/net/igmp").read_text().splitlines()[1:]:
        words = line.split()
        if line[0].isdigit():
            version = words[-1]
        else:
            found[".".join(str(octet) for octet in reversed(bytes.fromhex(words[0])))] = version
    return found


async def main(file: Path, hosts: Mapping[str, int]) -> dict[str, Any]:
    """Run the nodes. Return the results."""
    topology = load_checked(file)
    plans = plan_all(topology)
    groups, findings = {}, {}
    rows = [row.tobytes() for batch in generate(MESSAGES, SIZE, 1) for row in batch]
    async with AsyncExitStack() as stack:
        trees = []
        for node, pid in hosts.items():
            enter_namespaces(pid, "net")  # open sockets stay in theirs
            findings[node] = [
                attrs.asdict(one) | {"level": one.level.value} for one in check_nodes([plans[node]], uses_of(plans))
            ]
            trees.append(await stack.enter_async_context(running(topology, node)))
            groups[node] = joined_groups()
        tree = Tree(*({name: one for part in trees for name, one in getattr(part, key).items()} for key in _PARTS))
        (source,) = tree.sources.values()
        async with taking(*tree.receivers.values()) as taken:
            await source.send_batch(rows)
            await source.aclose()
        return {
            "whole": {name: got.messages == rows for name, got in zip(tree.receivers, taken, strict=True)},
            "lost": [str(one) for got in taken for one in got.lost],
            "repaired": {name: one.counters.repaired_sqns for name, one in tree.receivers.items()},
            "groups": groups,
            "findings": findings,
        }


_PARTS = ("drivers", "sources", "receivers")

if __name__ == "__main__":
    pairs = (word.rpartition("=") for word in sys.argv[2:])
    print(json.dumps(trio.run(main, Path(sys.argv[1]), {node: int(pid) for node, _, pid in pairs}), default=str))
