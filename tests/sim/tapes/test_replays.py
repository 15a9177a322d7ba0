"""Tapes of simulated trees replay bit for bit."""

import pytest

from pgm.core.effects import Deliver, Lost, Send
from pgm.tape.replay import Replay
from pgm.units import SECOND
from tests.sim.tapes.support import replayed, taped

OCTETS = 900_000
# windows that are small beside the tape
SHORT = {"txw_secs": SECOND // 4, "cache_secs": SECOND // 4, "txw_adv_secs": SECOND // 10}


@pytest.mark.parametrize("seed", range(20))
def test_tapes_at_loss_of_a_fifth_replay_to_the_same_hash(tmp_path, seed):
    _, tapes = taped(tmp_path, seed)
    for recorder in tapes.recorders.values():
        replay = replayed(recorder)
        assert (replay.fold, replay.inputs, replay.end) == (recorder.fold, recorder.counts.inputs, "")
        assert replay.checked_inputs == replay.inputs
        assert recorder.counts.lost_inputs == 0


def test_replay_repeats_each_effect_of_a_receiver(tmp_path):
    world, tapes = taped(tmp_path, 1)
    effects = [effect for step in Replay(tapes.recorders["receiver-0"].folder).steps() for effect in step.effects]
    counters = world.nodes["receiver-0"].counters[-1]
    assert sum(effect.run.count for effect in effects if isinstance(effect, Deliver)) == counters.delivered_packets
    assert sum(effect.count for effect in effects if isinstance(effect, Lost)) == counters.lost_sqns
    assert sum(isinstance(effect, Send) for effect in effects) > 20


def test_small_tape_begins_late_and_replays_from_there(tmp_path):
    _, tapes = taped(tmp_path, 2, messages=9999, rate=400, until_s=6, tape_bytes=OCTETS, **SHORT)
    begun = {}
    for name, recorder in tapes.recorders.items():
        assert sum(path.stat().st_size for path in recorder.folder.iterdir()) <= OCTETS
        begun[name] = Replay(recorder.folder).inputs
        replay = replayed(recorder)
        if recorder.counts.lost_inputs:  # the state of the node became too large for the tape
            assert replay.end is None
        else:
            assert (replay.fold, replay.inputs, replay.end) == (recorder.fold, recorder.counts.inputs, "")
    assert begun["receiver-0"] > 0
    assert not tapes.recorders["receiver-0"].counts.lost_inputs
