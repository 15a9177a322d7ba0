"""`pgm plan --predict`, and its prediction beside counters and telemetry."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.report.measured import measured_of
from deploy.report.page import page
from deploy.status.status import _with_predicted
from pgm.impairments import Impairment
from pgm.models.sends import repairs_per_packet
from pgm.prediction.beside import of_report
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT
from tests.unit.deploy.test_report_page import summary
from tests.unit.prediction.test_beside import profile

HALL = ROOT / "deploy/topologies/lossy-hall.toml"


def test_plan_predicts_links_and_nodes(tmp_path: Path) -> None:
    machine = tmp_path / "machine.json"
    profile().write(machine)
    done = invoked("plan", HALL, "--predict", "--machine", machine, "--count", "device-*=40", "--json")
    assert done.code == 0, done
    content = done.json
    documented("plan --predict", content)
    prediction = content["prediction"]
    documented("plan.prediction", prediction)
    [feed] = prediction["feeds"]
    documented("plan.prediction.feeds[]", feed)
    for row in feed["links"]:
        documented("plan.prediction.links[]", row)
    for row in feed["nodes"]:
        documented("plan.prediction.nodes[]", row)
    assert {row["node"]: row["count"] for row in feed["nodes"]}["device-*"] == 40
    text = invoked("plan", HALL, "--predict")
    assert (text.code, "hall-repairer" in text.out, "99 % within" in text.out) == (0, True, True)
    assert "--measure-machine PROFILE" in text.err


def test_plan_without_losses_names_the_remedy() -> None:
    done = invoked("plan", ROOT / "deploy/topologies/campus-1000.toml", "--predict")
    assert (done.code, "--telemetry" in done.err, "--loss" in done.err) == (2, True, True)


def test_plan_takes_the_losses_of_a_simulation(tmp_path: Path) -> None:
    floor = ROOT / "deploy/topologies/trading-floor.toml"
    done = invoked("plan", floor, "--loss", "3%", "--uplink-loss", "0.5%", "--json").json["prediction"]
    rows = {row["link"]: row for row in done["feeds"][0]["links"]}
    assert rows["floor-2"]["missing_at_sender"] == pytest.approx(0.005)
    assert rows["floor-2"]["sends"] == pytest.approx(1 + repairs_per_packet([0.03, 0.005], [4, 1]), rel=0.01)
    both = invoked("plan", floor, "--loss", "3%", "--telemetry", tmp_path)
    assert (both.code, "both tell the losses" in both.err) == (2, True)


def test_plan_of_a_node_refuses_a_prediction() -> None:
    done = invoked("plan", HALL, "--node", "gate", "--loss", "1%")
    assert (done.code, "leave out --node" in done.err) == (2, True)


def test_plan_refuses_counts_of_unknown_patterns() -> None:
    done = invoked("plan", HALL, "--predict", "--count", "devices-*=5")
    assert (done.code, "did you mean 'device-*'?" in done.err) == (2, True)


def test_plan_refuses_profiles_before_a_minute_of_measurement(tmp_path: Path) -> None:
    two = invoked("plan", HALL, "--machine", tmp_path / "old.json", "--measure-machine", tmp_path / "new.json")
    assert (two.code, "name two profiles" in two.err) == (2, True)
    nowhere = invoked("plan", HALL, "--measure-machine", tmp_path / "none" / "new.json")
    assert (nowhere.code, "is no folder" in nowhere.err) == (2, True)
    none = invoked("plan", HALL, "--predict", "--machine", tmp_path / "old.json")
    assert (none.code, "--measure-machine" in none.err) == (2, True)


def test_status_beside_the_prediction_has_documented_keys() -> None:
    prediction = invoked("plan", HALL, "--predict", "--json").json["prediction"]
    counters = {"odata_packets": 1000, "rdata_packets": 900, "nak_sqns_in": 700}
    [row] = _with_predicted([{"node": "gate", "role": "aggregator", "counters": counters}], prediction)
    for one in row["predicted"]:
        documented("status --predicted, each of predicted[]", one)
    assert [(one["figure"], one["differs"]) for one in row["predicted"]] == [
        ("repairs sent", True),
        ("NAKs received", False),
    ]
    assert _with_predicted([{"node": "gate"}], None) == [{"node": "gate"}]


def test_report_page_marks_what_differs() -> None:
    prediction = invoked("plan", HALL, "--predict", "--json").json["prediction"]
    row = {
        "node": "gate",
        "role": "aggregator",
        "sent": 1000,
        "rdata": 900,
        "nak_in": 650,
        "nak_sent": 0,
        "ncf_sent": 0,
    }
    found = summary(traffic=[row])
    text = page({**found, "predicted": [one.as_json() for one in of_report(prediction, found)]}, "Losses")
    assert "Beside the prediction" in text
    assert text.count("<b>DIFFERS</b>") == 1
    assert "Beside the prediction" not in page(found, "Losses")


def test_input_from_telemetry_is_losses_and_round_trips() -> None:
    model = {"loss": 0.02, "burst_loss": 0.01, "burst_length": 4.0}
    links = [{"segment": "hall", "node": "device-1", "model": model}, {"segment": "hall", "node": None, "model": model}]
    timers = [{"segment": "hall", "timer": "nak_rpt_ivl", "answers_p50_ms": value} for value in (3.0, 2.0, None)] + [
        {"segment": "hall", "timer": "nak_rdata_ivl", "answers_p50_ms": 1.0}
    ]
    losses, trips = measured_of({"links": links, "timers": timers})
    assert losses == {("hall", "device-1"): Impairment(0.02, 0.01, 4.0)}
    assert trips == {"hall": 2_000_000}
