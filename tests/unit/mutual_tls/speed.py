"""Processor time of mutual TLS by the number of nodes in the topology file.

`python -m tests.unit.mutual_tls.speed 10 1000` prints one row for each number. Each node has two keys, as in a rotation.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pgm.mutual_tls.contexts import NodeTlsContext, client_context, server_context
from pgm.mutual_tls.gate import PeerGate
from pgm.mutual_tls.identity import TlsIdentity
from pgm.mutual_tls.members import TreeMembers
from pgm.mutual_tls.names import name_of_keys
from tests.unit.mutual_tls.parties import forest, keys, shake

_TIMES = 5


def ms_of(work: Callable[[], object], times: int = _TIMES) -> float:
    """Return the median processor time of some work in milliseconds."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        work()
        found.append(time.process_time() - begin)
    return statistics.median(found) * 1000


def row(nodes: int) -> list[float]:
    """Return the milliseconds of the columns of `HEAD` for a file of some nodes."""
    with tempfile.TemporaryDirectory() as folder:
        tree = forest(Path(folder))
        recorder, desk = (tree.private_file(node, tree.listed[node][0]) for node in ("recorder", "desk-1"))
        listed = {node: (own[0].public, keys(10 + at).public) for at, (node, own) in enumerate(tree.listed.items())}
        for number in range(len(listed), nodes):
            listed[f"desk-{number}"] = (keys(10_000 + 2 * number).public, keys(10_001 + 2 * number).public)
        members = TreeMembers("forest", listed)

        def contexts() -> tuple[NodeTlsContext, NodeTlsContext]:
            return (
                server_context(TlsIdentity.of_members(members, recorder)),
                client_context(TlsIdentity.of_members(members, desk), ("recorder",)),
            )

        server, client = contexts()
        gate = PeerGate(TlsIdentity.of_members(members, recorder))
        name = name_of_keys(tree.listed["desk-1"][0].public.id)

        def calls() -> None:
            for _ in range(1000):
                gate.admit_untrusted(name)

        return [
            ms_of(lambda: server_context(TlsIdentity.of_members(members, recorder))),
            ms_of(lambda: client_context(TlsIdentity.of_members(members, desk), ("recorder",))),
            ms_of(lambda: shake(server, client), 20),
            ms_of(calls) / 1000,
        ]


HEAD = ("nodes", "context of a server", "client of one node", "handshake of both ends", "check of a call")


if __name__ == "__main__":
    print(" | ".join(HEAD), "(ms of processor time)")
    for given in sys.argv[1:] or ["10", "1000"]:
        print(given, *(f"{value:.4g}" for value in row(int(given))), sep=" | ")
