"""Checks of `pgm tune` before simulation: writable output, and possible places of a repairer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.tune.command import check_out, front_line, shapes_of, tune, untouched_lines
from deploy.tune.space import tunable_parameters
from deploy.tune.trial import Candidate, RunMeasures, TrialSetting, applied, asked_segments
from deploy.tune.tuned_file import require_tables, tuned_text
from pgm.errors import UsageError
from pgm.prediction.delays import delays_of
from pgm.topology.load import load_checked, loads
from pgm.topology.plan import plan_all
from pgm.units import MILLISECOND
from tests.cli.command import invoked

_TREE = """\
version = 1
name = "t"
[streams.s]
data_port = 7500
rate = "10Mbit/s"
{segments}
[nodes.source]
role = "source"
segment = "floor.2"
address = "10.0.0.10"
streams = ["s"]
[nodes."desk-*"]
role = "receiver"
segment = "floor.2"
count = 2
parents = ["source"]
"""
_KEYS = 'group = "239.192.0.1"\ninterface = "10.0.0.0/24"\n'


@pytest.mark.parametrize(
    ("segments", "has_table"),
    [
        (f'[segments."floor.2"]\n{_KEYS}', True),
        (f"[segments.'floor.2']  # in other quotes\n{_KEYS}", True),
        ('[segments]\n"floor.2" = {group = "239.192.0.1", interface = "10.0.0.0/24"}\n', False),
        ('[segments]\n"floor.2".group = "239.192.0.1"\n"floor.2".interface = "10.0.0.0/24"\n', False),
    ],
)
def test_tune_file_without_room_for_timers_is_refused_first(segments: str, has_table: bool, tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(_TREE.format(segments=segments))
    topology = loads(file.read_text())
    if not has_table:
        with pytest.raises(UsageError, match=r"tree.toml: there is no table \[segments.\"floor.2\"\]"):
            require_tables(file, topology)
        return
    require_tables(file, topology)
    chosen = Candidate((("floor.2", (("nak_bo_ivl", 5 * MILLISECOND),)),))
    again = loads(tuned_text(file.read_text(), topology, chosen, [], {}))
    assert again.segments["floor.2"].parameters["nak_bo_ivl"] == 5 * MILLISECOND


@pytest.mark.parametrize(
    ("parameters", "tuned"),
    [
        (
            '[segments."floor.2".parameters]\n# Anna\nnak_bo_ivl = "9ms"  # was 16ms; measured with all values together  # mine\n'
            'nak_rpt_ivl = "60ms"   # kept\n',
            '# Anna\nnak_bo_ivl = "5ms"  # was 9ms  # mine\nnak_rpt_ivl = "60ms"   # kept\nrdata_hold_ivl = "2ms"\n',
        ),
        (
            'parameters = { nak_bo_ivl = "9ms" }  # near\n',
            '[segments."floor.2".parameters]  # near\nnak_bo_ivl = "5ms"  # was 9ms\nrdata_hold_ivl = "2ms"\n',
        ),
        (
            'parameters.nak_bo_ivl = "9ms" # near\n',
            '[segments."floor.2".parameters]\nnak_bo_ivl = "5ms"  # was 9ms  # near\nrdata_hold_ivl = "2ms"\n',
        ),
    ],
)
def test_tuned_values_leave_comments_of_the_file(parameters: str, tuned: str) -> None:
    text = _TREE.format(segments=f'[segments."floor.2"]\n{_KEYS}{parameters}# of the source')
    values = (("nak_bo_ivl", 5 * MILLISECOND), ("rdata_hold_ivl", 2 * MILLISECOND))
    why = {("floor.2", "nak_bo_ivl"): "was 9ms"}
    written = tuned_text(text, loads(text), Candidate((("floor.2", values),)), ["head"], why)
    assert tuned + "# of the source\n[nodes.source]" in written


def test_tune_refuses_a_bad_file_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.terminal.svg.require_matplotlib", lambda: None)
    monkeypatch.setattr("deploy.tune.command.spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    file = tmp_path / "tree.toml"
    file.write_text(
        _TREE.format(segments='[segments]\n"floor.2" = {group = "239.192.0.1", interface = "10.0.0.0/24"}\n')
    )
    with pytest.raises(SystemExit) as ended:
        tune.main([str(file), "--out", str(tmp_path / "tuned.toml")], standalone_mode=False)
    assert ended.value.code == 2


def test_small_search_of_timers_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.tune.command.spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    file, out = tmp_path / "tree.toml", tmp_path / "tuned.toml"
    file.write_text(_TREE.format(segments=f'[segments."floor.2"]\n{_KEYS}loss = {{ loss = "10%" }}\n'))
    done = invoked("tune", file, "--runs", "100", "--messages", "30", "--size", "200", "--out", out, "--json")
    assert done.code == 0, done
    assert (done.json["simulations"] >= 100, done.json["best"]["score"] <= 1) == (True, True)
    assert "nak_bo_ivl" in out.read_text()


def test_tune_any_suitable_segment_can_have_a_repairer() -> None:
    """This includes trees whose receivers have redundant lines."""
    tree, *_ = re.findall(r"^```toml\n(.*?)^```$", Path("docs/guide/ab-feeds.md").read_text(), re.DOTALL | re.MULTILINE)
    topology = loads(tree)
    assert shapes_of(topology) == ["line-a"]
    plans = plan_all(applied(topology, Candidate(repairers_on=("line-a",))))
    assert plans["desk"].parents[0] == plans["line-a-extra-repairer"].segments[0].address


def test_tune_unwritable_folder_is_told_before_simulating(tmp_path: Path) -> None:
    (there := tmp_path / "tuned.toml").write_text("as it was")
    check_out(there)
    check_out(tmp_path / "other.toml")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("tuned.toml", "as it was")]
    with pytest.raises(UsageError, match=r"--out: /proc/tuned\.toml: "):
        check_out(Path("/proc/tuned.toml"))
    (tmp_path / "tuned.svg").mkdir()
    with pytest.raises(UsageError, match=r"tuned\.svg: Is a directory"):
        check_out(there)


HALL = Path("deploy/topologies/lossy-hall.toml")


def measures(p99: float, traffic: float, naks: float = 0.1) -> RunMeasures:
    return RunMeasures(p99 / 2, p99, p99, traffic, naks, 0, 100)


def test_segment_that_lost_nothing_keeps_its_timers() -> None:
    """The wire of this tree loses nothing; its two segments have tunable timers."""
    topology = load_checked(HALL)
    delays = delays_of(topology, {}, ())
    asked = asked_segments(TrialSetting(HALL.read_text(), str(HALL), 100, 600, tuple(delays.items())), 1)
    parameters = tunable_parameters(topology, delays)
    assert {one.segment for one in parameters} == {"wire", "hall"}
    assert asked == {"hall"}
    left = [one for one in parameters if one.segment in asked]
    assert untouched_lines(topology, left) == ["no packet was requested on wire: timers there stay as they are"]
    assert untouched_lines(topology, parameters) == []


def test_chosen_candidate_off_the_front_says_why() -> None:
    from deploy.tune.score import Score
    from deploy.tune.search import SearchResult

    file = Score(Candidate(), measures(100, 2), 1.0, 40)
    best = Score(Candidate(cache_secs=1), measures(50, 2, 0.05), 0.7, 40)
    lucky = Score(Candidate(cache_secs=2), measures(20, 1.9), 0.4, 2)
    faster = Score(Candidate(cache_secs=3), measures(45, 1.9, 0.4), 0.8, 40)
    alone = SearchResult(file, best, best, [best], [lucky, best], [], [])
    assert front_line(alone) == (
        "chosen: no finalist repairs faster with less traffic over 40 runs; points before it rest on 2 runs or a few more"
    )
    beaten = SearchResult(file, best, best, [best, faster], [lucky], [], [])
    assert front_line(beaten) == (
        "chosen by its score of 0.70: the finalist before it has 0.80, with a mean wait of 22.5 instead of 25.0 ms and "
        "0.400 instead of 0.050 NAKs at the source"
    )
