"""Trees in virtual time with cores of two versions: `python -m tests.versions.cores --old COMMIT --seeds 20`.

    source ── core ── relay ── floor ── repairer, desk-1 of the older version, desk-2 of this one

Every node but the source loses 5 % of its packets. The applications check each delivery, octet for octet.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pgm.core.effects import LossCause
from pgm.sim.invariant_broken import InvariantBroken
from pgm.sim.world import World
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from pgm.units import SECOND
from tests.net.support.places import Place, below_a_relay
from tests.sim.support.worlds import finish, lossy, streams, traffic
from tests.versions.bridge import OtherVersion, mixed
from tests.versions.checkout import BEFORE, unpack, why_not

ELEMENTS = ("source", "relay", "repairer")
OLD_DESK, NEW_DESK = "desk-1", "desk-2"
MESSAGES = 400
LOSS = 0.05

# Keys of the stream, and the role of the relay.
KINDS: Mapping[str, tuple[str, str]] = {
    "plain": ("", "aggregator"),
    "relaying repairer": ("", "repairer"),
    "acked": ('flow = "acked"', "aggregator"),
    "pgmcc": ('flow = "pgmcc"', "aggregator"),
    "parity": ("parameters = { fec_group = 16, fec_proactive = 1 }", "repairer"),
    "unordered": ('order = "unordered"', "aggregator"),
    "unreliable": ('order = "unreliable"', "aggregator"),
    "marked ends": ("parameters = { mark_ends = true }", "aggregator"),
}


def topology(kind: str) -> str:
    """Return a file that both versions read. All nodes have addresses."""
    keys, role = KINDS[kind]
    text = below_a_relay(Place(1), role, rate="8Mbit/s", quiet="2s", has_repairer=True).replace(
        "count = 1", "count = 2"
    )
    return text.replace("data_port = 7500", f"data_port = 7500\n{keys}")


class MixedTree:
    """Tree whose nodes in `older`, and the receiver desk-1, have cores of another version. A node starts as its name says now."""

    def __init__(self, version: OtherVersion, kind: str, older: set[str], seed: int = 1) -> None:
        text = topology(kind)
        self.kind = kind
        self.older = older | {OLD_DESK}
        self.world = World(mixed(version, version.plans_of(text), self.older), seed=seed)
        for name, plan in plan_all(loads(text)).items():
            is_source = name == "source"
            self.world.add_node(
                plan, wiring=None if is_source else lossy(LOSS), traffic=traffic(MESSAGES) if is_source else None
            )

    def finish(self) -> None:
        """Run to the end. Raises `InvariantBroken` unless both receivers have all; `unreliable` may lose packets."""
        allowed = {name: list(LossCause) for name in (OLD_DESK, NEW_DESK)} if self.kind == "unreliable" else {}
        finish(self.world, may_lose=allowed)
        assert len(streams(self.world)) == 2
        if not allowed:
            assert [one.messages for one in streams(self.world)] == [MESSAGES, MESSAGES]

    def replace_in_mid_stream(self, names: tuple[str, ...]) -> None:
        """Restart elements one after the other with the other version, half a second apart, while messages flow."""
        for count, name in enumerate(names):
            self.world.run_until((count + 3) * SECOND // 2)
            self.older ^= {name}
            self.world.nodes[name].stop()
            self.world.start(name)


def all_mixtures() -> Iterator[tuple[str, ...]]:
    """Yield the elements of the older version: all sets of them."""
    for count in range(len(ELEMENTS) + 1):
        yield from itertools.combinations(ELEMENTS, count)


def main() -> int:
    """Run all kinds, mixtures and seeds. Return 1 if a run fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--old", default=BEFORE, help="commit of the older version; default: the last one of 0.1.0")
    parser.add_argument("--seeds", type=int, default=5)
    words = parser.parse_args()
    if reason := why_not(words.old):
        parser.error(reason)
    runs = failed = 0
    with tempfile.TemporaryDirectory(prefix="pgm-old-") as folder:
        version = OtherVersion(unpack(words.old, Path(folder)))
        for seed, kind, older in itertools.product(range(1, words.seeds + 1), KINDS, all_mixtures()):
            runs += 1
            try:
                MixedTree(version, kind, set(older), seed).finish()
            except (InvariantBroken, AssertionError) as error:
                failed += 1
                print(json.dumps({"seed": seed, "kind": kind, "older": older, "error": str(error)}), flush=True)
    print(json.dumps({"runs": runs, "failed": failed}))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
