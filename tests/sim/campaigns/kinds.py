"""Kinds of campaigns: the function that runs one seed of each."""

from __future__ import annotations

import functools
from collections.abc import Callable

import attrs

from tests.attacks import trees as attacked_trees
from tests.sim.campaigns import acked_seeds, forged_formats, fuzz_packets, fuzz_trees, late_join_seeds, swarm_seeds


@attrs.frozen
class Kind:
    """Kind of a campaign. A seed of a fuzzing campaign feeds `packets` mutated packets."""

    name: str
    run: Callable[[int], object]
    describe: Callable[[int], str]
    packets: int = 0

    def repeat(self, seed: int) -> str:
        """Return the command that repeats a seed."""
        return f"python -m tests.sim.campaigns.run_seeds --kind {self.name} --first {seed} --seeds 1 --verbose"


def _plain_text(seed: int) -> str:
    return f"seed {seed}"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("plain", swarm_seeds.run, swarm_seeds.describe),
        Kind("swarm", swarm_seeds.run_with_options, _plain_text),
        Kind(
            "parity",
            functools.partial(swarm_seeds.run, parity=True),
            functools.partial(swarm_seeds.describe, parity=True),
        ),
        Kind("acked", acked_seeds.run, _plain_text),
        Kind("late-join", late_join_seeds.run, _plain_text),
        Kind("fuzz", fuzz_trees.run, fuzz_trees.describe, fuzz_trees.PACKETS),
        Kind("fuzz-cores", fuzz_packets.run, _plain_text, fuzz_packets.PACKETS),
        Kind("forgeries", forged_formats.run, _plain_text, forged_formats.PACKETS),
        Kind("attacks", attacked_trees.run, attacked_trees.describe, attacked_trees.PACKETS),
    )
}
