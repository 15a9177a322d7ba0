"""Runs of drawn scenarios by seed.

`python -m tests.sim.campaigns.run_seeds --seeds 200 [--first N] [--parity] [--verbose]` prints the failed seeds, and with
`--verbose` all others. The exit status is 1 if any seed failed.
"""

from __future__ import annotations

import functools
import sys

from deploy.node.roles import build_core
from pgm.sim.runs import swarm
from pgm.sim.runs.scenario import scenario
from tests.sim.campaigns.campaign import arguments, campaign


def run(seed: int, parity: bool = False) -> swarm.SwarmOutcome:
    """Run one scenario. Raises `InvariantBroken`."""
    return swarm.run(seed, build_core, drawn=scenario(seed, parity=parity))


def describe(seed: int, parity: bool = False) -> str:
    """Return the description of a seed's scenario."""
    return scenario(seed, parity=parity).describe()


def main() -> int:
    """Run the campaign from the command line."""
    parser = arguments(__doc__)
    parser.add_argument("--parity", action="store_true", help="give all streams some kind of parity")
    given = parser.parse_args()
    return campaign(
        given, functools.partial(run, parity=given.parity), functools.partial(describe, parity=given.parity)
    )


if __name__ == "__main__":
    sys.exit(main())
