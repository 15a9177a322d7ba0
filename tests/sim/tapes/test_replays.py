"""Tapes of simulated trees replay bit for bit."""

import os
import random

import pytest

import pgm.tape.recorder
from pgm.core.effects import Deliver, Lost, Send
from pgm.core.receiver.session import ReceiverSession
from pgm.sim.runs.tapes import TapeChecker
from pgm.tape.replay import Differs, Replay
from pgm.tape.segments import segments_of
from pgm.units import SECOND
from tests.sim.support.worlds import finish, make_world, traffic
from tests.sim.tapes.support import replayed, taped, tree

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


def test_tape_of_an_error_in_a_core_ends_with_it(tmp_path, monkeypatch):
    on_spm = ReceiverSession.on_spm

    def failing(session, spm, peer, now_ns):
        if spm.spm_sqn >= 4:
            raise ZeroDivisionError("a fault of the core")
        return on_spm(session, spm, peer, now_ns)

    monkeypatch.setattr(ReceiverSession, "on_spm", failing)
    tapes = TapeChecker(tmp_path)
    with pytest.raises(ZeroDivisionError):
        finish(make_world(tree(), traffic(100), seed=3, is_timed=False, more=(tapes,)))
    (recorder,) = [one for one in tapes.recorders.values() if not one.is_on]
    replay = replayed(recorder)
    assert isinstance(replay.error, ZeroDivisionError)
    assert replay.end is not None
    assert "a fault of the core" in replay.end
    monkeypatch.undo()  # the fault is mended: the core goes on where it had ended
    with pytest.raises(Differs):
        replayed(recorder)


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_tape_with_a_torn_end_replays_up_to_it(tmp_path, cut):
    _, tapes = taped(tmp_path, 4, messages=60)
    recorder = tapes.recorders["receiver-0"]
    (path,) = recorder.folder.glob("*.tape")
    os.truncate(path, path.stat().st_size - cut)
    replay = replayed(recorder)
    assert replay.end is None
    assert recorder.counts.inputs - 20 < replay.inputs <= recorder.counts.inputs


def test_tape_of_other_effects_differs(tmp_path, monkeypatch):
    _, tapes = taped(tmp_path, 5, messages=60)
    monkeypatch.setattr(random.Random, "randint", lambda *arguments: arguments[1])
    with pytest.raises(Differs):
        replayed(tapes.recorders["receiver-0"])


def test_states_saved_by_children_replay_to_the_same_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(pgm.tape.recorder, "_FORK_OCTETS", 1)
    _, tapes = taped(tmp_path, 6, messages=1200, tape_bytes=1_500_000)
    states = 0
    for recorder in tapes.recorders.values():
        for segment in segments_of(recorder.folder):
            if segment.has_state:
                replay = Replay(recorder.folder, segment.number)
                replay.run()
                assert (replay.fold, replay.end) == (recorder.fold, "")
                states += segment.number > 1
    assert states > 0
