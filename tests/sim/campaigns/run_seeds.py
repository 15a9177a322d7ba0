"""Run drawn scenarios: `python -m tests.sim.campaigns.run_seeds --seeds 200 [--first N] [--parity] [--verbose]`.

Prints a line per seed when asked, always the failing ones, and ends with 1 if there were any.
"""

from __future__ import annotations

import functools
import sys

from deploy.node.roles import build_core
from pgm.sim.runs import swarm
from pgm.sim.runs.scenario import scenario
from tests.sim.campaigns.campaign import arguments, campaign


def run(seed: int, parity: bool = False) -> swarm.SwarmOutcome:
    """One scenario. Raises `InvariantBroken`."""
    return swarm.run(seed, build_core, drawn=scenario(seed, parity=parity))


def describe(seed: int, parity: bool = False) -> str:
    """What that seed draws."""
    return scenario(seed, parity=parity).describe()


def main() -> int:
    """The command."""
    parser = arguments(__doc__)
    parser.add_argument("--parity", action="store_true", help="streams with parity of some kind")
    given = parser.parse_args()
    return campaign(
        given, functools.partial(run, parity=given.parity), functools.partial(describe, parity=given.parity)
    )


if __name__ == "__main__":
    sys.exit(main())
