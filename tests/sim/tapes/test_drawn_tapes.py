"""Tapes of drawn scenarios, with all options and faults, replay bit for bit.

The test has one kind, because the others take half a minute each. All kinds, and more seeds: `python -m tests.sim.tapes.test_drawn_tapes FIRST COUNT`.
"""

import sys
import tempfile
from pathlib import Path

from deploy.node.roles import build_core
from pgm.sim.runs.scenario import Scenario, scenario
from pgm.sim.runs.swarm import build, play
from pgm.sim.runs.tapes import TapeChecker
from pgm.tape.recorder import TapeLimits
from pgm.tape.replay import Replay
from pgm.tape.segments import segments_of
from pgm.units import MIB, SECOND
from tests.sim.campaigns.swarm_seeds import with_everything_on

KINDS = {
    "plain": scenario,
    "parity": lambda seed: scenario(seed, parity=True),
    "swarm": with_everything_on,
}


def check(drawn: Scenario, folder: Path) -> int:
    """Run a scenario, and replay the tape of each core from its oldest and its newest state. Return the inputs."""
    tapes = TapeChecker(folder, TapeLimits(64 * MIB, 600 * SECOND))
    play(build(drawn, build_core, [tapes]), drawn)
    tapes.finish()
    inputs = 0
    for recorder in (*tapes.recorders.values(), *tapes.ended):
        assert recorder.counts.lost_inputs == 0
        numbers = [segment.number for segment in segments_of(recorder.folder)]
        for number in {numbers[0], numbers[-1]}:
            replay = Replay(recorder.folder, number)
            replay.run()
            assert (replay.fold, replay.inputs, replay.end) == (recorder.fold, recorder.counts.inputs, "")
        inputs += recorder.counts.inputs
    return inputs


def test_tapes_of_a_drawn_scenario_replay_to_the_same_hash(tmp_path):
    assert check(scenario(1), tmp_path) > 0


def main(first: int, count: int) -> None:
    for seed in range(first, first + count):
        for kind, draw in KINDS.items():
            with tempfile.TemporaryDirectory() as folder:
                print(kind, seed, check(draw(seed), Path(folder)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
