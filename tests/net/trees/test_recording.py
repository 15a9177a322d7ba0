"""Recording on real sockets: a repairer and a recorder on a lossy segment.

The tests include SIGKILL in the middle, and the range service on the archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest

import pgm.blocking
from deploy.node.sample_messages import digest
from pgm.archive.requests import RangeRequest
from pgm.archive.session import PROOFS
from pgm.archive.store.reader import ArchiveReader
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.topology.load import loads
from pgm.trust.private_keys import PrivateFile
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.net.support.places import Place, one_segment
from tests.net.support.processes import Process, Processes, count, processes
from tests.unit.trust.keys import private_keys

KEYS = private_keys(1)
MESSAGES = 4000
SIZE = 1000
_WORK = ("--generate", str(MESSAGES), "--size", str(SIZE))


def _tree(place: Place, folder: Path, rate: str = "100Mbit/s") -> str:
    repairer = f'''
[nodes.repairer]
role = "repairer"
segment = "lan"
address = "{place.address(50)}"
parents = ["source"]
record = {{ directory = "{folder}/repairer", bytes = "100MiB", segment_bytes = "1MiB" }}
'''
    text = one_segment(place, loss='{ loss = "2%" }', rate=rate)
    return text.replace('parents = ["source"]', 'parents = ["repairer", "source"]') + repairer


def _rows(directory: Path) -> pa.Table:
    reader = ArchiveReader(directory)
    (held,) = (one for one in reader.holdings() if one.kind != PROOFS)
    found = reader.read(RangeRequest(held.tsi))
    return pa.Table.from_batches(list(found.batches()), found.schema)


def _sha(rows: pa.Table) -> str:
    found = hashlib.sha256()
    for value in rows["value"].to_pylist():
        found.update(value)
    return found.hexdigest()


def _record(tree: Processes, directory: Path) -> None:
    process = tree.start("desk-1", "--dir", str(directory), "--until-closed", verb="record")
    process.line_with("ready:")


def _signed_tree(place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a tree whose stream is signed. The private file of its source is on this host."""
    monkeypatch.setenv("PGM_KEY_DIR", str(folder / "keys"))
    text = _tree(place, folder).replace("data_port = 7500", 'data_port = 7500\nsigned = true\nsources = ["any"]', 1)
    text = f'{text}\n[keys]\nsource = ["{KEYS.public.line}"]\n'
    name = loads(text).name
    write_private_file(place_of(name, "source"), PrivateFile(name, "source", KEYS))
    (folder / "tree.toml").write_text(text)
    return text


def test_recording_of_a_signed_stream_is_proved_and_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place.new()
    with processes(_signed_tree(place, tmp_path, monkeypatch), f"t{place.number}") as tree:
        tree.start_all(["repairer"])
        _record(tree, tmp_path / "desk")
        source = tree.start("source", *_WORK, "--hold", stdin=-1)
        tree.until("desk-1", lambda snapshot: snapshot["sessions"])
        tree.until("repairer", lambda snapshot: snapshot["sessions"])
        assert source.process.stdin is not None
        source.process.stdin.write(b"go\n")
        source.process.stdin.flush()
        account = tree.running["desk-1"].account()
        documented("record", account)
        assert (account["messages"], account["lost"]) == (MESSAGES, {})
        assert source.wait() == 0
        tree.running["repairer"].process.terminate()
        counters = tree.running["repairer"].account()["snapshot"]["counters"]
        assert counters["recorded_rows"] == MESSAGES
    for name, node, repaired in (
        ("desk", "desk-1", account["snapshot"]["counters"]["repaired_sqns"]),
        ("repairer", "repairer", None),
    ):
        rows = _rows(tmp_path / name)
        assert (rows.num_rows, rows["lost"].null_count) == (MESSAGES, MESSAGES)
        assert _sha(rows) == digest(MESSAGES, SIZE, 1)
        assert rows["node"].unique().to_pylist() == [node]
        assert rows["source"].unique().to_pylist() == ["source"]
        assert rows["epoch"].null_count == 0
        if repaired is not None:
            assert repaired >= sum(rows["repaired"].to_pylist()) > 0  # proofs are repaired, too
    listed = invoked("archive", "ls", tmp_path, "--json")
    documented("archive ls", listed.json)
    assert [(one["closed"], one["kind"]) for one in listed.json["holdings"]] == [(True, "signed")] * 2
    documented("archive ls.holdings[]", listed.json["holdings"][0])
    assert "desk-1" in invoked("archive", "ls", tmp_path).out
    sound = invoked("archive", "verify", tmp_path, "--json")
    documented("archive verify", sound.json, ("signatures",))
    all_held = invoked("archive", "ls", tmp_path, "--companions", "--json").json["holdings"]
    assert sorted(one["kind"] for one in all_held) == ["proofs", "proofs", "signed", "signed"]
    proofs = sum(one["rows"] for one in all_held if one["kind"] == "proofs")
    assert (sound.code, sound.json["ok"], sound.json["rows"]) == (0, True, 2 * MESSAGES + proofs)
    _check_signatures(tmp_path)
    _read_over_flight(tmp_path)


def _check_signatures(folder: Path) -> None:
    proved = invoked("archive", "verify", folder, "--signatures", "--topology", folder / "tree.toml", "--json")
    documented("archive verify.signatures", proved.json["signatures"])
    for session in proved.json["signatures"]["sessions"]:
        documented("archive verify.signatures.sessions[]", session)
        assert (session["proved"], session["missing_proofs"], session["rejected_proofs"]) == (MESSAGES, 0, {})
        assert set(session["keys"]) == {KEYS.public.id}
    assert (proved.code, len(proved.json["signatures"]["sessions"])) == (0, 2)
    copied = invoked("archive", "verify", folder, "--signatures")
    assert (copied.code, "every row of a signed stream is proved" in copied.out) == (0, True)
    assert "which a forger of the archive could change" in copied.err


def _read_over_flight(directory: Path) -> None:
    (directory / "token").write_text("a-token-of-many-characters\n")
    service = Process(
        "serve",
        ["serve", str(directory), "--listen", "127.0.0.1:0", "--token-file", str(directory / "token"), "--json"],
    )
    try:
        service.line_with("ready:")
        told = service.first_printed()
        documented("serve", told)
        with flight.connect(told["location"]) as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer a-token-of-many-characters")])
            (answer,) = client.do_action(flight.Action("holdings", b""), options)
            held = json.loads(answer.body.to_pybytes())["holdings"]
            assert [(one["node"], one["rows"]) for one in held] == [("desk-1", MESSAGES), ("repairer", MESSAGES)]
            assert held[0]["epoch_us"] == held[1]["epoch_us"]
            for one in held:
                ticket = flight.Ticket(RangeRequest(one["tsi"], node=one["node"], columns=("value",)).to_bytes())
                assert _sha(client.do_get(ticket, options).read_all()) == digest(MESSAGES, SIZE, 1)
        assert service.stop() == 0
    finally:
        service.close()


def _generated(first: int, end: int) -> list[bytes]:
    return [at.to_bytes(8, "big") * (SIZE // 8) for at in range(first, end)]


def _recorded(archive: Path) -> int:
    """Return the sqn up to which the archive is on disk."""
    return max((one.next_sqn for one in ArchiveReader(archive).holdings()), default=0)


def test_recording_goes_on_after_kills_with_reported_losses(tmp_path: Path) -> None:
    place = Place.new()
    with processes(_tree(place, tmp_path, "20Mbit/s"), f"t{place.number}") as tree:
        archive, desk = tmp_path / "repairer", tmp_path / "desk"
        tree.start_all(["repairer"])
        _record(tree, desk)
        with pgm.blocking.open_source(tree.file, node="source") as source:
            source.send_batch(_generated(0, MESSAGES // 2))
            tree.until("repairer", lambda _: min(_recorded(archive), _recorded(desk)) > 300)
            tree.running["desk-1"].kill()
            has_desk = _recorded(desk)
            _record(tree, desk)
            first = tree.running["repairer"]
            children = Path(f"/proc/{first.process.pid}/task/{first.process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)  # the process that writes the archive
            before = _recorded(archive)
            first.line_with("recorder-died: ")
            tree.until("repairer", lambda snapshot: count(snapshot, "recorder_deaths") == 1)
            tree.until("repairer", lambda _: min(_recorded(archive), _recorded(desk)) >= MESSAGES // 2)
            first.kill()
            (again,) = tree.start_all(["repairer"])
            tree.until("repairer", lambda snapshot: snapshot["sessions"])
            source.send_batch(_generated(MESSAGES // 2, MESSAGES))
        tree.until("repairer", lambda _: ArchiveReader(archive).holdings()[0].closed)
        again.process.terminate()
        again.account()
        tree.running["desk-1"].account()
    assert has_desk < MESSAGES // 2
    rows = _rows(desk)
    assert (rows["lost"].null_count, rows["value"].to_pylist()) == (MESSAGES, _generated(0, MESSAGES))
    rows = _rows(archive)
    sqns, counts = rows["sqn"].to_numpy(), rows["count"].to_numpy()
    assert (sqns[1:] == sqns[:-1] + counts[:-1]).all()
    assert (sqns[-1] + counts[-1], before > 300) == (MESSAGES, True)
    lost = [(row["sqn"], row["lost"]) for row in rows.to_pylist() if row["lost"]]
    assert {cause for _, cause in lost} <= {"recorder"}, lost
    assert all(sqn >= before for sqn, _ in lost)
    found = {int.from_bytes(row["value"][:8], "big") for row in rows.to_pylist() if row["value"]}
    assert found >= set(range(MESSAGES // 2, MESSAGES))


def test_recording_rows_put_are_published_as_a_stream(tmp_path: Path) -> None:
    place = Place.new()
    text = one_segment(place, parameters="batch_times = true").replace("[streams.s]", '[streams.s]\nframing = "batch"')
    began_us = time.time_ns() // 1000
    with processes(text, f"t{place.number}") as tree:
        _record(tree, tmp_path / "desk")
        (tmp_path / "empty").mkdir()
        command = ["serve", str(tmp_path / "empty"), "--listen", "127.0.0.1:0", "--json"]
        service = Process("serve", [*command, "--publish", str(tree.file), "--publish-node", "source"])
        try:
            service.line_with("ready:")
            tree.until("desk-1", lambda snapshot: snapshot["sessions"])
            with flight.connect(service.first_printed()["location"]) as client:
                schema = pa.schema([("value", pa.binary())])
                putting, answers = client.do_put(flight.FlightDescriptor.for_command(b'{"stream": "s"}'), schema)
                with putting:
                    putting.write_batch(pa.record_batch([pa.array([b"one", b"two"], pa.binary())], schema=schema))
                    assert json.loads(answers.read().to_pybytes()) == {"published": 2}
            assert service.stop() == 0
        finally:
            service.close()
        assert tree.running["desk-1"].account()["messages"] == 2
    rows = _rows(tmp_path / "desk")
    assert rows["value"].to_pylist() == [b"one", b"two"]
    sent, received = (rows[name].cast(pa.int64()).to_pylist() for name in ("sent", "received"))
    assert began_us <= sent[0] <= received[0]


def test_recording_service_ends_during_a_clients_call(tmp_path: Path) -> None:
    place = Place.new()
    (tmp_path / "tree.toml").write_text(one_segment(place))
    command = ["serve", str(tmp_path), "--listen", "127.0.0.1:0", "--json", "--set", "archive_end_ivl=1ms"]
    service = Process("serve", [*command, "--publish", str(tmp_path / "tree.toml"), "--publish-node", "source"])
    try:
        client = flight.connect(service.first_printed()["location"])
        schema = pa.schema([("value", pa.binary())])
        putting, answers = client.do_put(flight.FlightDescriptor.for_command(b'{"stream": "s"}'), schema)
        putting.write_batch(pa.record_batch([pa.array([b"one"], pa.binary())], schema=schema))
        assert json.loads(answers.read().to_pybytes()) == {"published": 1}
        assert service.stop() == 0
        assert "cut off" in service.log
    finally:
        service.close()


def test_recording_killed_publisher_goes_on_and_marks_repeats(tmp_path: Path) -> None:
    """SIGKILL in the middle of a batch, then a restart: the batch counts in the recording once and in order."""
    rows = 20_000
    place = Place.new()
    (tmp_path / "empty").mkdir()
    with processes(one_segment(place, rate="8Mbit/s"), f"t{place.number}") as tree:
        tree.start("desk-1", "--dir", str(tmp_path / "desk"), verb="record").line_with("ready:")
        command = ["serve", str(tmp_path / "empty"), "--listen", "127.0.0.1:0", "--json", "--publish", str(tree.file)]
        command += ["--publish-node", "source"]
        services = [Process("killed", command)]
        try:
            killed = services[0]
            killed.line_with("ready:")
            with flight.connect(killed.first_printed()["location"]) as client:
                _put_attempt(client, [b"%d" % row for row in range(rows)])
                asked = threading.Thread(target=_publish, args=(client,))
                asked.start()
                tree.until("desk-1", lambda snapshot: count(snapshot, "delivered_packets") > rows // 2)
                killed.process.kill()
                asked.join()
            killed.close()
            services.append(again := Process("again", command))
            again.line_with("ready:")
            with flight.connect(again.first_printed()["location"]) as client:
                assert _publish(client) == {"published": 0, "repeated": True}
                (told,) = client.do_action(flight.Action("published", b""))
                (repeat,) = json.loads(told.body.to_pybytes())["repeats"]
            assert again.stop() == 0
        finally:
            for service in services:
                service.close()
        tree.running["desk-1"].process.terminate()
        tree.running["desk-1"].account()
    reader = ArchiveReader(tmp_path / "desk")
    values: dict[str, list[int]] = {}
    for held in reader.holdings():
        end = repeat["first"] if held.tsi == repeat["tsi"] else None
        found = reader.read(RangeRequest(held.tsi, end=end))
        table = pa.Table.from_batches(list(found.batches()), found.schema)
        values[held.tsi] = [int(value) for value in table["value"].to_pylist()]
    assert len(values) == 2
    assert 0 < repeat["row"] < rows
    assert values[repeat["tsi"]] == list(range(repeat["row"]))
    assert values[repeat["again"]["tsi"]] == list(range(repeat["row"], rows))


def _put_attempt(client: Any, values: list[bytes]) -> None:
    schema = pa.schema([("value", pa.binary())])
    putting, answers = client.do_put(flight.FlightDescriptor.for_command(b'{"attempt": "a"}'), schema)
    with putting:
        putting.write_batch(pa.record_batch([pa.array(values, pa.binary())], schema=schema))
        assert json.loads(answers.read().to_pybytes()) == {"staged": len(values)}


def _publish(client: Any) -> Any:
    """Publish the batch. Return the answer; None if the service dies meanwhile."""
    asked = {"writer": "w", "batch": 1, "stream": "s", "attempts": ["a"]}
    try:
        (told,) = client.do_action(flight.Action("publish_batch", json.dumps(asked).encode()))
    except pa.ArrowException:
        return None
    return json.loads(told.body.to_pybytes())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("record", "tree.toml"), "name one with --node"),
        (("record", "pgm://239.1.1.1:3056?interface=lo&data_port=7500"), "--dir DIRECTORY"),
        (("archive", "ls", "nowhere"), "nowhere is no directory"),
        (("serve", ".", "--tls-cert", "x"), "--tls-key"),
        (("serve", ".", "--set", "archive_strems=3"), "archive_streams"),
    ],
)
def test_recording_bad_requests_are_told(arguments: tuple[str, ...], says: str) -> None:
    done = invoked(*arguments)
    assert done.code in (1, 2)
    assert says in done.err, done
