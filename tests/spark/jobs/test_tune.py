"""`pgm tune`: a search decided by its seed, with a valid and better file.

Each candidate has the settings that its row reports.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
from pathlib import Path

import attrs
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from deploy.node.roles import build_core
from deploy.simulation.command import with_losses
from deploy.tune.command import (
    cache_lines,
    check_out,
    comparison,
    gain,
    paced,
    same_tree,
    shapes_of,
    with_caches,
    with_timers_of,
)
from deploy.tune.place import SEARCH_DRAWS, LocalRuns, PlaceSearch, proved
from deploy.tune.score import Score, value_of
from deploy.tune.search import SearchResult, TimerSearch, front
from deploy.tune.space import child_of, draw, rounded_up, sound, tunable_parameters
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, TuneTrial, applied, run
from deploy.tune.tuned_file import tuned_text
from pgm.errors import UsageError
from pgm.impairments import Impairment
from pgm.prediction.delays import delays_of
from pgm.prediction.predict import Conditions
from pgm.sim.load import Load
from pgm.sim.runs.report import Observation, simulate
from pgm.spark.jobs.parallel_runs import Sweep
from pgm.topology.load import load_checked, loads
from pgm.topology.plan import plan_all
from pgm.units import MILLISECOND, parse_duration
from tests.cli.command import command, environment, invoked
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT
from tests.sim.support.files import floors

HALL = Path("deploy/topologies/lossy-hall.toml")
# Three devices must miss some 60 packets in a run: with fewer, the luck of one NAK decides a score.
ENOUGH = 200


def place(messages: int = 120) -> TrialSetting:
    topology = load_checked(HALL)
    return TrialSetting(
        HALL.read_text(), str(HALL), messages, 600, tuple(delays_of(topology, {}, ()).items()), (), (("device-*", 4),)
    )


def test_a_candidate_is_what_the_nodes_run_with() -> None:
    topology = load_checked(HALL)
    all_knobs = tunable_parameters(topology, dict(place().delays))
    rng = random.Random(1)
    for _ in range(40):
        candidate = sound(lambda: child_of(rng, draw(rng, all_knobs), all_knobs), topology)
        plans = plan_all(applied(topology, candidate))
        chosen = {(segment, key): value for segment, values in candidate.overrides for key, value in values}
        assert plans["device-1"].parameters.nak_bo_ivl == chosen["hall", "nak_bo_ivl"]
        assert plans["hall-repairer"].parameters.rdata_hold_ivl == chosen["hall", "rdata_hold_ivl"]
        assert plans["tracker"].parameters.rdata_hold_ivl == chosen["wire", "rdata_hold_ivl"]


@pytest.mark.parametrize("file", sorted(Path("deploy/topologies").glob("*.toml")), ids=lambda file: file.stem)
def test_the_file_that_is_written_says_what_was_chosen(file: Path) -> None:
    topology = load_checked(file)
    all_knobs = tunable_parameters(topology, delays_of(topology, {}, ()))
    rng = random.Random(3)
    candidate = sound(lambda: draw(rng, all_knobs), topology)
    why = {(knob.segment, knob.key): f"because of {knob.key}" for knob in all_knobs}
    text = tuned_text(file.read_text(), topology, candidate, ["Made by a test."], why)
    again = loads(text)
    for segment, values in candidate.overrides:
        for key, value in values:
            assert again.segments[segment].parameters[key] == value
    assert text.startswith("# Made by a test.\n")
    assert "# because of nak_bo_ivl" in text
    assert {name: plan.parameters for name, plan in plan_all(again).items()} == {
        name: plan.parameters for name, plan in plan_all(applied(topology, candidate)).items()
    }


def test_one_more_repairer_is_a_tree_that_works() -> None:
    file = Path("deploy/topologies/lossy-wan.toml")
    topology = load_checked(file)
    assert shapes_of(topology) == ["lisbon", "oslo"]
    plans = plan_all(applied(topology, Candidate(repairers_on=("lisbon",))))
    extra = plans["lisbon-extra-repairer"]
    assert plans["lisbon-1"].parents[0] == extra.segments[0].address
    assert len({seat.address for plan in plans.values() for seat in plan.segments if seat.address}) == 6


def test_a_run_is_decided_by_its_seed() -> None:
    one = run(TuneTrial(place(), Candidate(), 5))
    assert one == run(TuneTrial(place(), Candidate(), 5))
    assert one != run(TuneTrial(place(), Candidate(), 6))
    assert one.missed > 0
    assert one.mean_ms < one.p99_ms <= one.worst_ms


def outcome(p99: float, traffic: float, lost: int = 0) -> RunMeasures:
    return RunMeasures(p99 / 2, p99, p99, traffic, 0.1, lost, 100)


def test_tune_worse_candidates_never_win() -> None:
    file = outcome(100, 2)
    assert value_of(file, file) == 1
    assert value_of(outcome(50, 2), file) < 1 < value_of(outcome(200, 2), file)
    assert value_of(outcome(1, 2, lost=1), file) == value_of(outcome(1, 3), file) == float("inf")


def test_the_front_is_what_nothing_beats_in_both() -> None:
    points = [(10, 3), (20, 2), (15, 3.5), (30, 1), (30, 2.5)]
    scores = [Score(Candidate(), outcome(*point), 1.0, 1) for point in points]
    assert [(one.outcome.p99_ms, one.outcome.traffic) for one in front(scores)] == [(10, 3), (20, 2), (30, 1)]


def test_a_search_on_spark_finds_better_and_the_same_again(spark: SparkSession) -> None:
    where = place(60)
    said: list[str] = []

    def search() -> tuple[Score, Score]:
        sweep = Sweep(spark, run, 0.02)
        all_knobs = tunable_parameters(load_checked(HALL), dict(where.delays))
        found = TimerSearch(sweep, where, all_knobs, load_checked(HALL), 1, 100, said.append).go([])
        assert sweep.usage.runs > 80
        assert sweep.usage.cpu_s > 0
        return found.file, found.best

    file, best = search()
    assert best.value < 0.9
    assert best.outcome.p99_ms < file.outcome.p99_ms
    assert search() == (file, best)
    assert said[:5] == ["random settings", "neighbours of the best", "finalists", "proof of the choice", "caches"]
    assert delays_of(load_checked(HALL), {}, ("hall=3ms",))["hall"] == 3 * MILLISECOND


def score_of_cache(milliseconds: int, value: float) -> Score:
    return Score(Candidate(cache_secs=milliseconds * MILLISECOND), outcome(1, 1), value, 4)


def test_the_least_cache_is_the_shortest_before_it_gets_worse() -> None:
    file = Score(Candidate(), outcome(1, 1), 1.0, 4)
    for scored, least in (
        ([(80, 1.0), (40, 1.01), (20, 1.3), (10, 1.0)], 40),
        ([(80, 1.5), (40, 1.0)], 0),
        ([(80, 1.0), (40, 0.99)], 40),
        ([], 0),
    ):
        found = SearchResult(file, file, file, [], [], [], [score_of_cache(*one) for one in scored])
        assert found.least_cache == least * MILLISECOND


def test_tune_writes_sufficient_caches_with_a_margin() -> None:
    own = loads(HALL.read_text())
    without = HALL.read_text().replace("cache = {", "# cache = {")
    free = loads(without)
    file = Score(Candidate(), outcome(1, 1), 1.0, 4)
    enough = SearchResult(file, file, file, [], [], [], [score_of_cache(900, 1.0), score_of_cache(450, 2.0)])
    nothing = SearchResult(file, file, file, [], [], [], [])
    candidate, why = with_caches(enough, free)
    assert candidate.overrides == (("hall", (("cache_secs", 3600 * MILLISECOND),)),)
    assert "4 times the sufficient time" in why["hall", "cache_secs"]
    text = tuned_text(without, free, candidate, cache_lines(enough), why)
    assert plan_all(loads(text))["hall-repairer"].parameters.cache_secs == 3600 * MILLISECOND
    assert "keep packets for 900ms repair as well as with the file's caches; 450ms repairs worse" in text
    assert with_caches(enough, own) == with_caches(nothing, free) == (Candidate(), {})
    assert cache_lines(nothing) == []


def test_tune_unwritable_output_is_told_before_the_search(tmp_path: Path) -> None:
    check_out(tmp_path / "tuned.toml")
    check_out(Path("tuned.toml"))
    with pytest.raises(UsageError, match="no folder"):
        check_out(tmp_path / "nowhere" / "tuned.toml")
    with pytest.raises(UsageError, match="picture"):
        check_out(tmp_path / "tuned.svg")


def test_tune_change_from_zero_is_not_called_unchanged() -> None:
    assert [gain(ours, theirs, 0.031) for ours, theirs in ((1.0, 2.0), (0.0, 0.0), (0.1, 0.0))] == [
        "-50 ± 3 %",
        "unchanged",
        "was 0",
    ]


def test_repairers_keep_packets_for_as_long_as_the_candidate_says() -> None:
    plans = plan_all(applied(load_checked(HALL), Candidate(cache_secs=7 * MILLISECOND)))
    assert plans["hall-repairer"].parameters.cache_secs == 7 * MILLISECOND
    assert plans["device-1"].parameters.cache_secs != 7 * MILLISECOND


def test_tune_compared_file_needs_the_same_tree_and_seeds(spark: SparkSession) -> None:
    by_hand = Path("docs/by-hand/lossy-hall.toml")
    topology, where = load_checked(HALL), place(60)
    other = same_tree(HALL, topology, by_hand)
    all_knobs, candidate = with_timers_of(other, tunable_parameters(topology, dict(where.delays)))
    assert {key: value for key, value in dict(candidate.overrides)["hall"] if key != "rdata_hold_ivl"} == {
        "nak_bo_ivl": 8 * MILLISECOND,
        "nak_rpt_ivl": 15 * MILLISECOND,
        "nak_rdata_ivl": 40 * MILLISECOND,
        "rdata_ignore_ivl": 10 * MILLISECOND,
    }
    found = TimerSearch(Sweep(spark, run, 0.02), where, all_knobs, topology, 1, 100).go([], [candidate])
    (known,) = found.known
    assert (known.candidate, known.runs) == (candidate, found.file.runs)
    assert known.candidate in [one.candidate for one in found.finals]
    screen = Console(width=120)
    with screen.capture() as shown:
        screen.print(comparison(found, HALL, by_hand, 120))
    lines = [line.split() for line in shown.get().splitlines() if line.endswith(f" {known}")]
    assert [str(by_hand), f"{known.outcome.mean_ms:.1f}", "ms"] in [line[:3] for line in lines]
    worse = attrs.evolve(found, known=[attrs.evolve(known, value=float("inf"))])
    with screen.capture() as shown:
        screen.print(comparison(worse, HALL, by_hand, 120))
    assert [line.split()[0] for line in shown.get().splitlines() if line.endswith(" rejected")] == [str(by_hand)]
    with pytest.raises(UsageError, match=r"has another tree than .*lossy-hall\.toml: desk, device-"):
        same_tree(HALL, topology, Path("docs/by-hand/lossy-wan.toml"))


def test_tune_bad_delay_names_its_segment() -> None:
    with pytest.raises(UsageError, match="--delay hall=soon: 'soon' is not a duration"):
        delays_of(load_checked(HALL), {}, ("hall=soon",))


@pytest.mark.usefixtures("spark")
def test_tune_refuses_a_tree_without_losses(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(re.sub(r"^loss = .*$", "", HALL.read_text(), flags=re.MULTILINE))
    words = ["--messages", "20", "--out", tmp_path / "tuned.toml"]
    done = invoked("tune", file, *words)
    assert done.code == 2, done
    assert "nothing is lost in this tree in 20 messages" in done.err
    assert "or more --messages" in done.err


def test_placements_on_spark_are_those_of_one_process(spark: SparkSession) -> None:
    text = floors(["0.2%", "3%"], [4] * 2, "0.1%", keeps=False).text
    topology = loads(text)
    delays = delays_of(topology, {}, ())
    search = PlaceSearch(topology, Conditions(delays=delays, draws=SEARCH_DRAWS), shapes_of(topology))
    setting = TrialSetting(text, "<floors>", 100, 600, tuple(delays.items()))
    here, there = (proved(search, 1, setting, runs, 2, 1) for runs in (LocalRuns(), Sweep(spark, run, 0.1)))
    assert here == there
    assert here.best.place == ("floor-2",)
    assert here.tried == 2


def test_an_interrupt_ends_it_in_silence(tmp_path: Path) -> None:
    """The interrupt comes during a Spark job, as from a terminal."""
    line = command("tune", HALL, "--out", tmp_path / "tuned.toml")
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment(), cwd=ROOT) as tuning:
        assert tuning.stderr is not None
        said = []
        for text in tuning.stderr:
            said.append(text)
            if "random settings" in text:
                tuning.send_signal(signal.SIGINT)
                break
        said += tuning.stderr.readlines()
    assert tuning.returncode == 130, said
    assert all(text.startswith("pgm: ") for text in said), said


@pytest.mark.usefixtures("spark")
def test_the_command_tunes_with_the_losses_of_telemetry(tmp_path: Path) -> None:
    plans = plan_all(load_checked(HALL), {"device-*": 3})
    plans = {name: with_losses(plan, Impairment(loss=0.1), None) for name, plan in plans.items()}
    simulate(
        plans,
        build_core,
        seed=2,
        load=Load(messages=800, size=600),
        observation=Observation(telemetry=str(tmp_path / "events")),
    )
    out = tmp_path / "tuned.toml"
    words = ["--telemetry", tmp_path / "events", "--runs", "200", "--messages", str(ENOUGH), "--count", "device-*=3"]
    done = invoked("tune", HALL, *words, "--out", out, "--json")
    assert done.code == 0, done
    documented("tune", done.json)
    documented("tune.best", done.json["best"])
    assert done.json["best"]["score"] < 0.9
    sizes = [parse_duration(one["cache_secs"]) for one in done.json["caches"]]
    assert sizes == sorted(sizes, reverse=True)
    text = out.read_text()
    assert f"the losses in {tmp_path / 'events'}" in text
    assert "keep packets for" in text or "do not change the caches" in text
    assert "; measured with all values together" in text
    assert out.with_suffix(".svg").read_text().startswith("<svg")
    # Twice the loss of the file: the simulation uses the measured losses.
    where = attrs.evolve(place(ENOUGH), counts=(("device-*", 3),))
    by_file = [run(TuneTrial(where, Candidate(), seed)).missed for seed in range(8)]
    assert done.json["file"]["missed"] / done.json["file"]["runs"] > 1.4 * sum(by_file) / len(by_file)


def test_a_long_step_tells_how_far_it_is_and_a_log_stays_short() -> None:
    told: list[str] = []
    seconds = [0.0]
    say = paced(told.append, lambda: seconds[0])
    for at in range(100):
        seconds[0] = at / 2
        say(f"random settings: {at} of 100 simulations")
    say("caches")
    assert told == [*(f"random settings: {at} of 100 simulations" for at in (0, 30, 60, 90)), "caches"]


def test_bounds_by_measured_round_trips_are_written_with_two_digits() -> None:
    assert [rounded_up(value) for value in (48_686_016, 48_000_000, 100_000_000, 1)] == [
        49_000_000,
        48_000_000,
        100_000_000,
        1_000,
    ]
    topology = load_checked(HALL)
    delays = dict.fromkeys(topology.segments, 12171504)
    least = {knob.key: knob.values[0] for knob in tunable_parameters(topology, delays)}
    assert (least["nak_rpt_ivl"], least["nak_rdata_ivl"]) == (49_000_000, 74_000_000)
