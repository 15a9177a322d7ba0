"""Checks of `pgm tune` before simulation: writable output, and possible places of a repairer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.tune.command import check_out, shapes_of, tune
from deploy.tune.trial import Candidate, applied
from deploy.tune.tuned_file import require_tables, tuned_text
from pgm.errors import UsageError
from pgm.topology.load import loads
from pgm.topology.plan import plan_all
from pgm.units import MILLISECOND

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


def test_tune_any_suitable_segment_can_have_a_repairer() -> None:
    """This includes trees whose receivers have redundant lines."""
    tree, *_ = re.findall(r"^```toml\n(.*?)^```$", Path("docs/guide/ab-feeds.md").read_text(), re.DOTALL | re.MULTILINE)
    topology = loads(tree)
    assert shapes_of(topology) == ["line-a"]
    plans = plan_all(applied(topology, Candidate(repairer_on="line-a")))
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
