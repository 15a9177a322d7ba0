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

from tests.net.support.lab import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus, which holds it"
)

DESK = {"topology": "floor", "node": "desk-1", "role": "receiver"}
SOURCE = {"topology": "floor", "node": "exchange", "role": "source"}
CALM = "0x120"  # an idle counter over two hours, one sample a minute


@attrs.frozen
class Case:
    """Samples of some series in promtool's notation, and the labels of the alarm that fires."""

    alarm: str
    series: dict[str, str]
    of: dict[str, str]
    told: dict[str, str] | None = None  # None: the labels of the series


CASES = [
    Case("PacketsLost", {"pgm_lost_sqns_total": "0x10 1x110"}, DESK),
    Case("NodeGone", {"pgm_up": "1x10 0x110"}, DESK),
    Case(
        "RepairsFromFarAway",
        {"pgm_repaired_sqns_total": "0+60x120", "pgm_repaired_locally_total": "0+20x120"},
        DESK,
        {"topology": "floor"},
    ),
    Case("SourceAskedForTooMuch", {"pgm_rate_cuts_total": "0x10 1x110"}, SOURCE),
    Case("KernelDropsPackets", {"pgm_socket_drops_total": "0x10 45x110"}, DESK),
    Case("HostSilent", {"pgm_agent_up": "1x10 0x110"}, {"host": "floor-2"}),
    Case("TopologyFilesDiffer", {"pgm_agent_other_file": "0x10 1x110"}, {"host": "floor-2"}),
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
    Case("HostSilent", {"pgm_agent_up": "1x120"}, {"host": "floor-2"}),
    Case("TopologyFilesDiffer", {"pgm_agent_other_file": "0x120"}, {"host": "floor-2"}),
]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """Write the rules of the page into a file."""
    page = (ROOT / "docs/guide/monitoring.md").read_text()
    [found] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith("groups:")]
    file = tmp_path / "rules.yml"
    file.write_text(found)
    return file


def promtool(*arguments: object) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    return told


def fires(rules: Path, case: Case, *, is_told: bool) -> str:
    """Evaluate the rules over a case with promtool; fail if an alarm differs."""
    labels = ",".join(f'{name}="{value}"' for name, value in case.of.items())
    alarms = [{"exp_labels": case.told or case.of}] if is_told else []
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
