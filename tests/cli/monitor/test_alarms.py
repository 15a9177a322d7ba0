"""Alarms of docs/guide/monitoring.md as Prometheus reads them.

promtool checks the rules, and evaluates which of them fire for given samples.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.cli.command import invoked
from tests.net.support.lab import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus, which holds it"
)

DESK = {"topology": "floor", "node": "desk-1", "role": "receiver"}
SOURCE = {"topology": "floor", "node": "exchange", "role": "source"}
FLOOR = ROOT / "deploy/topologies/trading-floor.toml"
RUNBOOKS = "https://pgm.example/alarms.html"
HOST = {"host": "floor-2"}
CALM = "0x120"  # an idle counter over two hours, one sample a minute

FORGED = {f"pgm_{kind}_packets_total": CALM for kind in ("forged_spm", "forged", "uncoded", "unlisted")}


@attrs.frozen
class Case:
    """Samples of some series in promtool's notation, and what the alarm that fires says about them."""

    alarm: str
    series: dict[str, str]
    of: dict[str, str]
    says: str = ""
    severity: str = "critical"
    told: dict[str, str] | None = None  # None: the labels of the series


CASES = [
    Case("PacketsLost", {"pgm_lost_sqns_total": "0x10 1x110"}, DESK, "desk-1 lost packets for good"),
    Case("NodeGone", {"pgm_up": "1x10 0x110"}, DESK, "receiver desk-1 of floor does not answer"),
    Case(
        "RepairsFromFarAway",
        {"pgm_repaired_sqns_total": "0+60x120", "pgm_repaired_locally_total": "0+20x120"},
        DESK,
        "the repairers of floor give less than half of the repairs of their segments",
        "warning",
        {"topology": "floor"},
    ),
    Case(
        "SourceAskedForTooMuch",
        {"pgm_rate_cuts_total": "0x10 1x110"},
        SOURCE,
        "exchange slows down, because too much is requested from it",
        "warning",
    ),
    Case(
        "KernelDropsPackets",
        {"pgm_socket_drops_total": "0x10 45x110"},
        DESK,
        "the receive buffer of desk-1 overflows",
        "warning",
    ),
    Case(
        "RecorderLosesRows",
        {"pgm_recorder_lost_total": "0x10 3x110"},
        DESK,
        "the archive of desk-1 lacks packets that were delivered",
    ),
    Case(
        "ForgedPackets",
        FORGED | {"pgm_uncoded_packets_total": "0x10 9x110"},
        DESK,
        "desk-1 refuses packets that its source or its tree did not send",
        "warning",
    ),
    Case("HostSilent", {"pgm_agent_up": "1x10 0x110"}, HOST, "the agent of host floor-2 does not answer"),
    Case(
        "TopologyFilesDiffer",
        {"pgm_agent_other_file": "0x10 1x110"},
        HOST,
        "host floor-2 has another topology file",
        "warning",
    ),
]
AT_REST = [
    Case("PacketsLost", {"pgm_lost_sqns_total": "7x120"}, DESK),  # an old loss
    Case("NodeGone", {"pgm_up": "1x120"}, DESK),
    Case(
        "RepairsFromFarAway",
        {"pgm_repaired_sqns_total": "0+60x120", "pgm_repaired_locally_total": "0+40x120"},
        DESK,
    ),
    Case("RepairsFromFarAway", {"pgm_repaired_sqns_total": CALM, "pgm_repaired_locally_total": CALM}, DESK),
    Case("SourceAskedForTooMuch", {"pgm_rate_cuts_total": CALM}, SOURCE),
    Case("KernelDropsPackets", {"pgm_socket_drops_total": CALM}, DESK),
    Case("RecorderLosesRows", {"pgm_recorder_lost_total": CALM}, DESK),
    Case("ForgedPackets", FORGED, DESK),
    Case("HostSilent", {"pgm_agent_up": "1x120"}, HOST),
    Case("TopologyFilesDiffer", {"pgm_agent_other_file": "0x120"}, HOST),
]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Write the rules into a file."""
    rendered = invoked("render", FLOOR, "--format", "prometheus", "--out", tmp_path, "--runbooks", RUNBOOKS)
    assert rendered.code == 0, rendered
    return tmp_path / "pgm-alarms.yml"


def promtool(*arguments: object) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    return told


def fires(rules: Path, case: Case, *, is_told: bool) -> str:
    """Evaluate the rules over a case with promtool; fail if an alarm differs."""
    labels = ",".join(f'{name}="{value}"' for name, value in case.of.items())
    expected = {
        "exp_labels": (case.told or case.of) | {"severity": case.severity},
        "exp_annotations": {"summary": case.says, "runbook_url": f"{RUNBOOKS}#{case.alarm.lower()}"},
    }
    alarms = [expected] if is_told else []
    test: dict[str, Any] = {
        "rule_files": [rules.name],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": f"{name}{{{labels}}}", "values": values} for name, values in case.series.items()
                ],
                "alert_rule_test": [{"eval_time": "12m", "alertname": case.alarm, "exp_alerts": alarms}],
            }
        ],
    }
    file = rules.with_name("test.yml")
    file.write_text(json.dumps(test))  # JSON is also YAML
    return promtool("test", "rules", file)


def test_alarm_rules_pass_promtool(rules: Path) -> None:
    count = rules.read_text().count("- alert:")
    assert f"SUCCESS: {count} rules found" in promtool("check", "rules", rules)
    assert {case.alarm for case in CASES} == set(re.findall(r"alert: (\w+)", rules.read_text()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alarm)
def test_alarm_fires_under_its_condition(rules: Path, case: Case) -> None:
    fires(rules, case, is_told=True)


@pytest.mark.parametrize("case", AT_REST, ids=lambda case: case.alarm)
def test_alarm_does_not_fire_at_rest(rules: Path, case: Case) -> None:
    fires(rules, case, is_told=False)


def test_each_alarm_has_a_section_of_the_page() -> None:
    page = (ROOT / "docs/guide/alarms.md").read_text()
    assert {case.alarm for case in CASES} == set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
