"""Places of event logs that are away: a command tells of them at its start, and a batch is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.fleet.command import warn_of_away
from pgm.spark.fleet.options import read_options
from pgm.spark.fleet.places import PlaceAway
from pgm.spark.fleet.source import FleetReader


def test_command_names_the_places_that_are_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_away({"path": str(tmp_path)})
    assert capsys.readouterr().err == ""
    warn_of_away({"path": str(tmp_path), "agents": "http://127.0.0.1:1"})
    told = capsys.readouterr().err
    assert "1 of 2 places do not answer: http://127.0.0.1:1: Connection refused" in told
    assert "remedy: run pgm agent FILE on each host" in told
    with pytest.raises(PlaceAway, match=r"tokenFile or caFile: .*none"):
        warn_of_away({"agents": "http://127.0.0.1:1", "tokenFile": str(tmp_path / "none")})


def test_batch_without_a_place_names_it_with_a_code(tmp_path: Path) -> None:
    reader = FleetReader(read_options({"path": str(tmp_path / "none")}))
    with pytest.raises(PlaceAway, match=r"^PGM-SPARK-FLEET: \S+none is no folder here\n  remedy: a batch needs all"):
        reader.partitions()
