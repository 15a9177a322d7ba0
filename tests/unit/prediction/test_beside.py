"""Measured figures beside predicted ones, and profiles of machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pgm.errors import UsageError
from pgm.prediction.beside import cells, of_report, of_status, read_prediction
from pgm.prediction.delays import delays_of
from pgm.prediction.machine import MachineProfile, fitted
from pgm.prediction.predict import Conditions, predict
from pgm.topology.load import loads
from tests.sim.support.files import floors

TOPOLOGY = loads(floors(["3%"] * 2, [10] * 2, "0.5%").text)
CONDITIONS = Conditions(delays=delays_of(TOPOLOGY, {}, ()))
COSTS = {"cpu_s": 1.0, "rss_bytes": 50_000_000, "requests": 0}


def profile(requests: int = 1000) -> MachineProfile:
    """Return a profile of runs in which a source answers some requests, and other roles answer 1,000."""
    roles = ("source", "receiver", "aggregator", "repairer")
    few, more, lossy = ({role: {**COSTS, "cpu_s": cpu, "requests": 1000} for role in roles} for cpu in (1.0, 3.0, 4.0))
    lossy["source"]["requests"] = requests
    return fitted("a machine", [few, more, lossy], (1000, 21_000))


def test_status_beside_marks_what_differs_by_more_than_a_third() -> None:
    prediction = predict(TOPOLOGY, CONDITIONS)
    node = next(row for row in prediction["feeds"][0]["nodes"] if row["node"] == "relay-floor-1")
    packets = 100_000
    counters = {
        "odata_packets": packets,
        "rdata_packets": round(1.2 * node["repairs"] * packets),
        "nak_sqns_in": round(1.5 * node["naks_in"] * packets),
    }
    rows = [{"node": "relay-floor-1", "role": "aggregator", "counters": counters}]
    repairs, naks = of_status(prediction, rows)
    assert (repairs.figure, repairs.differs, naks.figure, naks.differs) == (
        "repairs sent",
        False,
        "NAKs received",
        True,
    )
    assert cells([naks])[0][-2:] == ("+50 %", "DIFFERS")
    few = {"odata_packets": 20, "rdata_packets": 20, "nak_sqns_in": 20}
    assert [one.differs for one in of_status(prediction, [{**rows[0], "counters": few}])] == [None, None]
    assert of_status(prediction, [{**rows[0], "node": "unknown"}]) == []


def test_report_beside_compares_waits_and_traffic() -> None:
    prediction = predict(TOPOLOGY, CONDITIONS)
    link = next(row for row in prediction["feeds"][0]["links"] if row["link"] == "floor-1")
    summary = {
        "traffic": [{"node": "source", "role": "source", "sent": 50_000, "rdata": 5000, "nak_in": 500}],
        "links": [],
        "repairs": [
            {"segment": "floor-1", "repaired": 900, "p50_ms": link["p50_ms"], "p99_ms": 2 * link["p99_ms"]},
            {"segment": "elsewhere", "repaired": 900, "p50_ms": 1, "p99_ms": 2},
        ],
    }
    found = {(one.place, one.figure): one.differs for one in of_report(prediction, summary)}
    assert found == {
        ("source", "repairs sent"): True,
        ("source", "NAKs received"): False,
        ("floor-1", "median wait, ms"): False,
        ("floor-1", "99 % within, ms"): True,
    }


def test_waits_of_streams_that_share_a_link_count_by_their_packets() -> None:
    [feed] = predict(TOPOLOGY, CONDITIONS)["feeds"]
    link = {**next(row for row in feed["links"] if row["link"] == "floor-1"), "p50_ms": 6.0, "p99_ms": 30.0}
    busy = {**feed, "packets_per_s": 9000, "links": [link]}
    slow = {**feed, "packets_per_s": 1000, "links": [{**link, "p50_ms": 16.0, "p99_ms": 130.0}]}
    idle = {**feed, "links": [{**link, "missed": 0.0, "p50_ms": None, "p99_ms": None}]}
    measured = {"segment": "floor-1", "repaired": 900, "p50_ms": 7.0, "p99_ms": 40.0}
    found = of_report({"feeds": [busy, slow, idle]}, {"traffic": [], "links": [], "repairs": [measured]})
    assert [one.predicted for one in found] == pytest.approx([7.0, 40.0])
    assert [one.differs for one in found] == [False, False]


def test_profile_adds_processor_time_and_memory(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    profile().write(file)
    again = MachineProfile.read(file)
    assert again == profile()
    assert again.roles["source"].data_s == pytest.approx(1e-4)
    assert again.roles["source"].request_s == pytest.approx(1e-3)
    [feed] = predict(TOPOLOGY, CONDITIONS, again)["feeds"]
    source = next(row for row in feed["nodes"] if row["node"] == "source")
    assert source["cpu"] > 1e-4 * feed["packets_per_s"]
    # The transmit window of 30 s at the full rate of 80 Mbit/s.
    assert source["memory_bytes"] == pytest.approx(50e6 + 30 * 10e6, rel=0.01)


def test_role_with_few_requests_has_the_costs_of_others() -> None:
    assert profile().roles["source"].request_s == pytest.approx(1e-3)
    assert profile(requests=20).roles["source"].request_s == profile(requests=20).roles["receiver"].request_s
    assert profile(requests=20).roles["repairer"].request_s == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("nodes", "naks_in", "many"),
        ("nodes", "links", None),
        ("nodes", "node", 5),
        ("links", "missed", float("nan")),
        ("links", "p99_ms", -1),
    ],
)
def test_edited_prediction_names_the_file_and_the_command(tmp_path: Path, table: str, key: str, value: object) -> None:
    file = tmp_path / "plan.json"
    [feed] = predict(TOPOLOGY, CONDITIONS)["feeds"]
    file.write_text(json.dumps({"prediction": {"feeds": [feed]}}))
    assert read_prediction(file)["feeds"][0]["source"] == "source"
    feed[table][-1][key] = value
    file.write_text(json.dumps({"prediction": {"feeds": [feed]}}))
    with pytest.raises(UsageError) as error:
        read_prediction(file)
    assert str(file) in error.value.message
    assert "--predict --json" in error.value.remedy


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "there is no key 'prediction'"),
        ('{"prediction": {"feeds": []}}', "no feeds"),
        ('{"prediction": {"feeds": 3}}', "'int' object is not iterable"),
        ("[]", "list indices"),
        ("\n?", "line 2 is no JSON"),
    ],
)
def test_file_without_a_prediction_names_the_command(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=rf"plan\.json has no whole prediction: {says}"):
        read_prediction(file)
    with pytest.raises(UsageError, match=r"plan\.json is no profile of a machine: "):
        MachineProfile.read(file)


def test_wrong_files_name_the_command_that_writes_a_right_one(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"nodes": []}))
    with pytest.raises(UsageError) as error:
        read_prediction(file)
    assert "--predict --json" in error.value.remedy
    with pytest.raises(UsageError) as error:
        MachineProfile.read(file)
    assert "--measure-machine" in error.value.remedy
    with pytest.raises(UsageError, match="No such file"):
        read_prediction(tmp_path / "none.json")
