"""The example of docs/guide/parity.md, unchanged but for this test's own addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.net.support.lab import ROOT
from tests.net.support.pages import blocks, page
from tests.net.support.places import Place

PATIENCE_S = 60
PAGE = page("guide/parity.md")


def block(language: str) -> str:
    [found] = blocks(PAGE, language)
    return found


@pytest.mark.parametrize("on_demand", [True, False])
def test_the_example_does_what_the_page_says(place: Place, tmp_path: Path, on_demand: bool) -> None:
    """The example runs unchanged, and again without on-demand parity, which then repairs single packets."""
    tree = block("toml").replace("127.0.78.", f"{place.net}.").replace("239.192.78.1", place.group())
    tree = tree.replace("3078", f"{place.port}")
    if not on_demand:
        tree = tree.replace("fec_proactive = 2", "fec_proactive = 2, fec_on_demand = false")
    (tmp_path / "tree.toml").write_text(tree)
    done = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert done.stderr == ""
    said = sorted(done.stdout.splitlines())
    assert said[::2] == [f"{node}: 10000 messages, 0 lost" for node in ("desk-1", "desk-2")]
    # A late receiver finds repairs that the other one requested. They are no parity, and come beside the late
    # receiver's own.
    rebuilt = {line for line in said[1::2] if line.endswith("rebuilt some packets: True")}
    assert len(rebuilt) >= (2 if on_demand else 1)


def test_the_table_is_what_the_simulator_says() -> None:
    """A tenth of the table's run: parity spares most repairs and NAKs, and sends fewer packets in total."""
    from tests.sim.figures.models.parity import MODES, rows, tally

    modes = ("no parity", "groups of 32", "32, and 5 unasked")
    tallies = {mode: tally(MODES[mode], receivers=40, packets=256) for mode in modes}
    assert [row for row in rows(tallies, receivers=40) if abs(row.error) > 0.1] == []
    plain, asked, unasked = tallies.values()
    assert asked.repairs < plain.repairs / 3
    assert asked.naks < plain.naks / 3
    assert unasked.repairs < asked.repairs / 2
    assert unasked.naks < asked.naks
    assert unasked.unasked == 5 * 256 // 32
    assert asked.useless < plain.useless / 4
