"""`--json` of every command gives valid JSON with exactly the keys in docs/reference/command.md."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from deploy.node.sample_messages import digest
from pgm.core.events import EVENTS
from tests.cli.command import carried, command, environment, invoked, marked, pgm
from tests.net.support.lab import ROOT
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, processes

DOCUMENTED = {
    heading.replace("`", ""): set(re.findall(r"`(\w+)`", keys))
    for heading, keys in re.findall(
        r"^\| (`[^|]*) \| (.*`.*) \|$", (ROOT / "docs/reference/command.md").read_text(), re.MULTILINE
    )
}
NODES = ["source", "subnet-1-aggregator", "subnet-1-repairer", "receiver-1-1"]  # of the demo's tree
FLOOR = str(ROOT / "deploy/topologies/trading-floor.toml")


def documented(name: str, found: Mapping[str, Any], optional: tuple[str, ...] = ()) -> None:
    """Assert that an object has exactly the keys documented under this name."""
    assert set(found) - set(optional) == DOCUMENTED[name] - set(optional), name


def test_check_of_a_good_and_of_a_broken_file(tmp_path: Path) -> None:
    good = invoked("check", FLOOR, "--json")
    assert good.code == 0
    documented("check", good.json)
    assert good.json == {"ok": True, "errors": [], "warnings": []}
    file = tmp_path / "tree.toml"
    text = (ROOT / FLOOR).read_text()
    file.write_text(text.replace('"exchange"]', '"exchnge"]', 1).replace('bytes = "4GiB"', 'bytes = "1MiB"', 1))
    bad = invoked("check", file, "--json")
    assert (bad.code, bad.json["ok"]) == (2, False)
    documented("check.errors[]", bad.json["errors"][0])
    documented("check.warnings[]", bad.json["warnings"][0])


def test_json_warning_is_an_error_only_with_strict(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text((ROOT / FLOOR).read_text().replace('bytes = "4GiB"', 'bytes = "1MiB"'))
    done = invoked("check", file)
    assert (done.code, "good; warnings: 4" in done.out) == (0, True), done
    assert invoked("check", file, "--strict").code == 2


def test_plan_of_a_tree_and_of_a_node() -> None:
    tree = invoked("plan", FLOOR, "--json").json
    documented("plan", tree)
    documented("plan.streams[]", tree["streams"][0])
    documented("plan.segments[]", tree["segments"][0])
    for row in tree["nodes"]:
        documented("plan.nodes[]", row)
    node = invoked("plan", FLOOR, "--node", "desk-1", "--json").json
    documented("plan --node", node)
    documented("plan --node.segments[]", node["segments"][0])
    documented("plan --node.parameters.*", next(iter(node["parameters"].values())))


def test_sim() -> None:
    """A relay dies during a stream and its standby takes over: a notice appears, and no loss."""
    fault = ("--fault", "crash:hall-relay@1500ms")
    report = invoked(
        "sim", ROOT / "deploy/topologies/standby-relay.toml", "--messages", "300", "--rate", "50", *fault, "--json"
    )
    assert report.code == 0, report
    found = report.json
    documented("sim", found)
    documented("sim.receivers[]", found["receivers"][0])
    for kind in ("sources", "aggregators", "repairers"):
        for row in found[kind]:
            documented("sim.repairers[]", row)
    documented("sim.notices[]", found["notices"][0])
    assert {row["delivered"] for row in found["receivers"]} == {300}


def test_sim_in_parts_with_a_model() -> None:
    file = ROOT / "deploy/topologies/two-subnets.toml"
    options = ("--messages", "60", "--loss", "3%", "--real", "2", "--json")
    cut, whole = (json.loads(invoked("sim", file, *options, "--parts", str(parts)).out) for parts in (3, 1))
    documented("sim", cut)
    documented("sim.crowds[]", cut["crowds"][0])
    documented("sim.parts[]", cut["parts"][0])
    assert (cut["ok"], len(cut["parts"]), len(cut["receivers"])) == (True, 3, 4)
    assert cut["digest"] == whole["digest"]
    assert cut["totals"] == whole["totals"]
    assert cut["totals"]["delivered"] == 20 * 60


def test_json_simulation_with_a_loss_fails(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    file.write_text(one_segment(Place(1), parameters="nak_data_retries = 1, nak_ncf_retries = 1"))
    done = invoked("sim", file, "--messages", "500", "--loss", "40%", "--json")
    assert (done.code, done.json["ok"]) == (1, False)
    assert done.json["totals"]["lost"] + done.json["totals"]["delivered"] == 500
    assert "desk-1: " in done.json["problems"][0]


def test_render(tmp_path: Path) -> None:
    files = invoked("render", FLOOR, "--node", "desk-1", "--json").json
    assert set(files) == {"pgm-trading-floor-desk-1.service", "60-pgm.conf"}
    written = invoked("render", FLOOR, "--node", "desk-1", "--out", tmp_path / "units", "--json").json
    assert {Path(one).name for one in written["written"]} == set(files)
    assert all(Path(one).read_text() == files[Path(one).name] for one in written["written"])


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path, which sockets need."""
    with TemporaryDirectory(prefix="pgm-cli-") as name:
        yield Path(name)


def test_up_and_status_of_a_whole_tree(folder: Path) -> None:
    """The tree is the demo's, with its losses: a source, a relay, repairers and a receiver."""
    file = folder / "tree.toml"
    assert pgm("demo", "--write", file, "--subnets", "1", "--receivers", "1", "--json").json == {"written": [str(file)]}
    env = {"PGM_RUNTIME_DIR": str(folder)}
    with marked() as mark:
        up = Process("up", ["up", str(file), "--generate", "500", "--json"], env={**env, **mark.env})
        try:
            up.line_with("4 nodes run")
            rows = _until_delivered(file, env, 500)
            assert "receiver-1-1 " in pgm("status", file, env=env).out
            _is_told_in_detail(pgm("status", file, "--detail", env=env).out, rows)
            up.process.send_signal(2)
            account = up.account()
        finally:
            up.close()
    _is_documented(rows)
    documented("up", account)
    assert account["failed"] == []
    assert [row["node"] for row in account["nodes"]] == NODES
    kinds = {"source": "a source", "receiver": "a receiver"}
    for row in account["nodes"]:
        documented(f"run, {kinds.get(row['role'], 'an element')}", row)
        documented("status", row["snapshot"])
        assert row["snapshot"]["uptime_s"] < 120
    receiver = next(row for row in account["nodes"] if row["role"] == "receiver")
    assert (receiver["delivered"], receiver["lost"]) == (500, 0)
    assert receiver["sha256"] == digest(500, 1400, 1)


def _until_delivered(file: Path, env: Mapping[str, str], messages: int) -> dict[str, Any]:
    """Poll the status until the receiver has every message; return the last status of each node.

    The source may have left by then.
    """
    rows: dict[str, Any] = {}
    for _ in range(100):
        done = pgm("status", file, "--json", env=env)
        assert done.code == 0, done
        rows |= {row["node"]: row for row in map(json.loads, done.out.splitlines())}
        if rows["receiver-1-1"]["counters"].get("delivered_packets") == messages:
            return rows
    raise AssertionError(f"the receiver never got every message: {rows}")


def _is_told_in_detail(text: str, rows: Mapping[str, Any]) -> None:
    """Assert that every counter, session, child, rate and last event of the running nodes is in the output."""
    told = " ".join(text.split())
    for name, row in rows.items():
        if row["role"] == "source":
            continue  # the source may have left
        assert f"{row['role']} {name}: up " in told
        for session in row["sessions"]:
            assert session["tsi"] in told
            assert all(child["address"] in told for child in session["askers"])
        assert all(f"{key} " in told for key in row["counters"] if key != "rejects")
    assert "delivered packets, 5min" in told
    documented("status.last_event", rows["receiver-1-1"]["last_event"])
    events = re.findall(r"last event, [\d:]+: ([\w-]+): ", told)  # a node may have had another event meanwhile
    assert events
    assert set(events) <= set(EVENTS)
    assert rows["receiver-1-1"]["sessions"][0]["counts"]["delivered_packets"] == 500
    assert rows["receiver-1-1"]["sessions"][0]["source"] == "source"


def _is_documented(rows: Mapping[str, Any]) -> None:
    assert list(rows) in (NODES, NODES[1:]), "the source may have left"
    for row in rows.values():
        documented("status", row)
        documented("status.sessions[]", row["sessions"][0])
        for segment in row["segments"]:
            documented("status.segments[]", segment, optional=("injected",))
            if "injected" in segment:
                documented("status.segments[].injected", segment["injected"])
    assert any("injected" in segment for row in rows.values() for segment in row["segments"])


def test_status_of_a_receiver_beyond_the_count_of_its_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place.new()
    with processes(one_segment(place), f"t{place.number}") as running:
        running.start_all(["desk-7"])
        monkeypatch.setenv("PGM_RUNTIME_DIR", str(running.folder))
        done = invoked("status", running.file, "--json")
        named = [invoked("status", f"t{place.number}", *only, "--json") for only in ((), ("--node", "desk-7"))]
    assert [json.loads(line)["node"] for one in (done, *named) for line in one.out.splitlines()] == ["desk-7"] * 3


def test_json_status_without_nodes_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "tree.toml"
    file.write_text(one_segment(Place.new()))
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
    invoked("status", file).complains(1, "none of these nodes runs", "source, desk-1", f"pgm up {file}")
    done = invoked("status", file, "--json")
    assert done.code == 1
    assert done.json["error"]["code"] == "PGM-PROC"
    invoked("status", "nowhere").complains(1, "no node of a tree called 'nowhere' runs", "give the topology file")
    invoked("status", "nowhere", "--node", "desk-1").complains(1, "no node desk-1 of a tree called 'nowhere'")
    invoked("status", "nowhere.toml").complains(2, "nowhere.toml: cannot read it")


def test_json_strict_check_with_a_warning_is_not_ok(tmp_path: Path) -> None:
    file = tmp_path / "tree.toml"
    text = one_segment(Place.new())
    file.write_text(text.replace('parents = ["source"]', ""))
    done = invoked("check", file)
    assert (done.code, done.out.splitlines()[-1]) == (0, f"{file}: good; warnings: 1"), done
    strict = invoked("check", file, "--strict")
    assert (strict.code, "good" in strict.out) == (2, False), strict
    assert (invoked("check", file, "--json").json["ok"], invoked("check", file, "--strict", "--json").json["ok"]) == (
        True,
        False,
    )


def test_json_status_of_a_stuck_node_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node exists, so a second start would be no remedy."""
    file = folder / "tree.toml"
    file.write_text(one_segment(Place.new()))
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(folder))
    node = Process("desk-1", ["run", str(file), "--node", "desk-1"])
    try:
        node.line_with("ready:")
        node.process.send_signal(signal.SIGSTOP)
        invoked("status", file).complains(1, "running, but not answering: desk-1", "restart the node")
        node.process.send_signal(signal.SIGCONT)
        assert invoked("status", file).code == 0
    finally:
        node.close()


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_json_unwritable_log_changes_nothing(folder: Path, where: str) -> None:
    """An unwritable log does not end the node, and its lines do not go to standard output."""
    file = folder / "tree.toml"
    file.write_text(one_segment(Place.new()))
    line = command("run", file, "--node", "source", "--generate", "3", "--json")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {where}', "sh", *line], stdout=subprocess.PIPE, env=environment(), check=True
    )
    documented("run, a source", json.loads(done.stdout))


def test_send_and_recv(folder: Path) -> None:
    file, place = folder / "tree.toml", Place.new()
    file.write_text(one_segment(place))
    octets = bytes(range(256)) * 40
    got = carried(file, place, octets)
    assert got.code == got.sent.returncode == 0, got
    assert got.out == octets
    sent = json.loads(got.sent.stdout)
    documented("send", sent)
    received = got.account
    documented("recv", received)
    assert sent["octets"] == received["octets"] == len(octets)
    assert sent["messages"] == received["messages"] == -(-len(octets) // 1448)
    assert (received["lost"], received["cut_short"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan", "nowhere.toml"), "PGM-TOPOLOGY"),
        (("send", "nowhere"), "PGM-USE"),
        (("sim", FLOOR, "--loss", "5"), "PGM-UNIT"),
        (("demo", "--receivers", "2000", "--subnets", "1"), "PGM-USE"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_errors_are_json_too(arguments: tuple[str, ...], code: str) -> None:
    done = invoked(*arguments, "--json")
    assert done.code == 2
    assert set(done.json["error"]) - {"problems"} == {"code", "message", "remedy"}
    assert done.json["error"]["code"] == code
    assert done.json["error"]["remedy"]
    assert done.err == ""


def test_json_check_gives_a_row_for_each_problem(folder: Path) -> None:
    file = folder / "tree.toml"
    file.write_text('version = 1\nname = "wrong"\nrtt = 5\nprofle = "wan"\n')
    problems = invoked("plan", file, "--json").json["error"]["problems"]
    assert problems == invoked("check", file, "--json").json["errors"]
    assert [(row["line"], row["rule"]) for row in problems if row["rule"] == "format"] == [(3, "format"), (4, "format")]


def test_replay_of_a_tape_of_the_simulator(tmp_path: Path) -> None:
    tree = ROOT / "deploy/topologies/two-subnets.toml"
    assert invoked("sim", tree, "--messages", "50", "--loss", "5%", "--tape", tmp_path).code == 0
    tape = next(path for path in tmp_path.iterdir() if path.name.endswith("-1"))
    done = invoked("replay", tape, "--break", "delivers", "--break", "sends-spm", "--json")
    assert done.code == 0
    documented("replay", done.json)
    documented("replay.last[], and each line of --decisions", done.json["last"][0])
    assert invoked("replay", tape, "--until-input", "3").code == 0
    invoked("replay", tape, "--break", "lost-nothing").complains(2, "there is no event 'lost-nothing'")
    invoked("replay", tmp_path / "none").complains(1, "has no tape")
