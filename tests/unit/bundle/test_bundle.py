"""`pgm bundle` of a tree whose files and nodes hold secrets in every place that formats and options allow."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from deploy.bundle import contents
from deploy.bundle.archive_file import CLOSING_OCTETS, BoundedArchive
from deploy.bundle.redaction import Redactor
from deploy.bundle.telemetry_rows import recent_rows
from deploy.bundle.topology_copy import topology_copy
from deploy.terminal.fleet_options import FleetAccess
from pgm.errors import ProcessError, UsageError
from pgm.fleet.nodes import HostRecord, NodeRecord, NodeState, TreeView
from pgm.flight.contents import contents_untrusted, from_json_untrusted, read_ring, ring_octets, to_json
from pgm.flight.record import NO_PEER, NO_SEGMENT, FlightKind
from pgm.flight.ring import FlightRing
from pgm.net.keys.key_directory import place_of
from pgm.net.keys.key_files import write_private_file
from pgm.parameters import Parameters
from pgm.telemetry.events import EventLog
from pgm.telemetry.schema import Event
from pgm.topology.load import loads
from pgm.topology.plan import plan_node
from pgm.topology.reading import read_text
from pgm.trust.private_keys import PrivateFile
from tests.cli.command import invoked
from tests.cli.test_json import documented
from tests.net.support.lab import ROOT
from tests.unit.fleet.agents import snapshot
from tests.unit.topology.trees import GOOD
from tests.unit.trust.keys import private_keys

TOKEN = hashlib.sha256(b"token").hexdigest()
OWN = "rosebud-of-the-tests"  # a known secret without the form of one
PASSWORD = "hunter2-of-the-tests"  # an unknown one, behind its name
KEYS = private_keys()
SECRET = base64.b64encode(KEYS.secret_octets()).decode()
PEM = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGsecretsecretsecretsecretsecret\n-----END PRIVATE KEY-----"
PLANTED = {"token": TOKEN, "own": OWN, "password": PASSWORD, "key": SECRET, "pem": "MC4CAQAwBQ"}
DIRTY = f"{OWN} password={PASSWORD} private = {SECRET} Bearer {TOKEN} {PEM}"  # where any text may stand

TREE = f"""\
# {DIRTY.replace(chr(10), " ")}
version = 1
name = "good"  # token: {TOKEN}
telemetry = "/tmp/{OWN}/{TOKEN}"
key_directory = "FOLDER/keys"
revoked = {{ ks3gq6lrbv4cm2ya = "2026-12-01 stolen with {OWN} and {PASSWORD}" }}
{GOOD.split("name = ", 1)[1].split(chr(10), 1)[1]}
[keys]
exchange = ["{KEYS.public.line}"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a tree, its keys, a token, a log, telemetry, and a flight recorder."""
    for name in ("keys", "run", "telemetry", "work"):
        (tmp_path / name).mkdir(mode=0o700)
    text = TREE.replace("FOLDER", str(tmp_path)).replace(
        '"4GiB", seconds = 60 }', f'"4GiB", directory = "/srv/{OWN}" }}', 1
    )
    (tmp_path / "work/tree.toml").write_text(text)
    place = place_of("good", "exchange", str(tmp_path / "keys"))
    write_private_file(place, PrivateFile("good", "exchange", KEYS))
    (tmp_path / "token").write_text(OWN + "\n")
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "work/desk.log").write_text(f"begins\n{DIRTY}\nready: source exchange runs\n")
    for text in (DIRTY, "loss"):
        log = EventLog(tmp_path / "telemetry", "exchange", Parameters(), in_background=False)
        log.add(Event(time.time_ns() // 1000, "exchange", "source", "core", "lost", cause=text))
        log.close()
    (tmp_path / "telemetry/other.parquet").write_text(DIRTY)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PGM_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PGM_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "run/good").mkdir(mode=0o700)
    (tmp_path / "run/good/exchange.flight").write_bytes(ring(DIRTY))
    return tmp_path


def ring(text: str) -> bytes:
    memory = bytearray(1 << 18)
    facts = {
        "topology": "good",
        "node": "exchange",
        "role": "source",
        "host": text[:200],
        "note": text,  # a fact that no reader knows
        "segments": [{"name": "core", "side": "up", "address": text[:100]}],
        "streams": [{"name": "quotes", "data_port": 7500}],
    }
    flight = FlightRing(memory, "boot", facts)
    place = flight.session(bytes(range(8)), 7500)
    for number in range(30):
        flight.append([(number, 5, number, 1, place, 0, FlightKind.GAP, NO_SEGMENT, 0, NO_PEER, 0)])
    memory[-60_000 : -60_000 + len(text)] = text.encode()  # behind the records
    return bytes(memory)


def dirty_snapshot(*_: object) -> dict[str, Any]:
    node = snapshot("exchange", "source", odata_packets=7)
    node |= {
        "events": [{"id": "sends-fail", "text": DIRTY, "at_s": 5.0}],
        "subjects": {"quotes": {OWN: 1, "b": 2}},
        "segments": [{"segment": "core", "group": DIRTY}],
        "token": TOKEN,
    }
    return node


class Fleet:
    """Agents of a fleet that tell secrets."""

    name = "good"

    def look(self) -> TreeView:
        node = NodeRecord("good", "exchange", "source", NodeState.UP, snapshot=dirty_snapshot(), host=DIRTY)
        hosts = HostRecord("../up", "10.0.0.1"), HostRecord("b", "10.0.0.2", problem=DIRTY)
        return TreeView((node,), 0.0, 0.0, hosts=hosts)

    def doctor(self, _: TreeView) -> dict[str, Any]:
        row = {"check": "keys", "subject": "exchange", "level": "fault", "found": DIRTY, "wanted": "", "remedy": DIRTY}
        return {"../up": [row]}

    def flight(self, _: TreeView, __: object) -> dict[str, Any]:
        return {"../up": [contents_untrusted(ring(DIRTY))], "b": ProcessError(DIRTY)}


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        found = [(one, archive.extractfile(one)) for one in archive.getmembers()]
        assert all(one.isreg() and one.mode == 0o600 and ".." not in one.name for one, _ in found)
        return {one.name.split("/", 1)[1]: file.read() for one, file in found if file is not None}


def test_bundle_has_every_part_and_no_planted_secret(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "gather", lambda *_: ([dirty_snapshot()], [], []))
    monkeypatch.setattr(FleetAccess, "watch", lambda *_: Fleet())
    monkeypatch.setattr(contents, "_journal", lambda _: f"journal\n{DIRTY}\n")
    monkeypatch.setattr("shutil.which", lambda _: "journalctl")
    done = invoked(
        "bundle", "tree.toml", "--out", "b.tar.gz", "--fleet", "--json", "--log", "desk.log",
        "--telemetry", "../telemetry", "--minutes", "1440", "--ca-file", ROOT / "tests/cli/monitor/none.pem",
    )  # fmt: skip
    assert done.code == 2, "a missing authority is told"
    done = invoked(
        "bundle", "tree.toml", "--out", "b.tar.gz", "--fleet", "--json", "--log", "desk.log",
        "--telemetry", "../telemetry", "--minutes", "1440",
    )  # fmt: skip
    assert done.code == 0, done
    documented("bundle", done.json)
    documented("bundle.members[]", done.json["members"][0])
    assert done.json["left_out"] == []
    found = members(Path("b.tar.gz"))
    parts = ["README.md", "contents.json", *(part.name for part in contents.PARTS)]
    assert [part for part in parts if not any(name.startswith(part) for name in found)] == []
    rows = parquet.read_table(io.BytesIO(found["telemetry/recent.parquet"])).to_pylist()
    assert len(rows) == 2
    found["telemetry rows"] = repr(rows).encode()
    flights = [name for name in found if name.endswith(".flight")]
    assert sorted(flights) == ["flight/good/exchange.flight", "fleet/flight/good/exchange@_up.flight"][::-1]
    hidden = {
        (name, kind) for name, text in found.items() for kind, secret in PLANTED.items() if secret.encode() in text
    }
    assert hidden == set()
    paths = str(folder / "keys").encode(), str(folder / "token").encode()
    assert [name for name, text in found.items() if any(path in text for path in paths)] == []
    assert json.loads(found["status.jsonl"])["counters"] == {"odata_packets": 7}
    assert json.loads(found["status.jsonl"])["subjects"] == {"quotes": 2}
    assert found["logs/1-desk.log"].startswith(b"begins\n")
    assert b"source exchange runs" in found["logs/1-desk.log"]
    assert done.json["removed"] > 20
    assert "PGM_TOKEN_FILE" in json.loads(found["machine.json"])["variables"]


def test_bundle_without_nodes_tells_what_is_left_out(folder: Path) -> None:
    (folder / "run/good/exchange.flight").unlink()
    done = invoked("bundle", "tree.toml", "--out", "b.tar.gz")
    assert done.code == 0, done
    found = members(Path("b.tar.gz"))
    missing = {one["part"] for one in json.loads(found["contents.json"])["left_out"]}
    assert missing == {"status.jsonl", "explain-worst.json", "logs/", "flight/", "telemetry/"}
    assert all(f"- `{part}`: " in found["README.md"].decode() for part in missing)
    assert Path("b.tar.gz").stat().st_mode & 0o777 == 0o600
    again = invoked("bundle", "tree.toml", "--out", "b.tar.gz")
    again.complains(2, "b.tar.gz exists")
    assert [path.name for path in Path().iterdir() if path.name.endswith(".part")] == []
    invoked("bundle", "none.toml").complains(2, "none.toml")
    invoked("bundle", "tree.toml", "--limit", "1kB").complains(2, "--limit 1kB is too little")


@pytest.mark.usefixtures("folder")
def test_bundle_of_a_broken_file_copies_none_of_it() -> None:
    Path("tree.toml").write_text(f'version = 1\nname = "good"\n[keys]\nexchange = ["{PASSWORD}", "{SECRET}"]\n')
    assert invoked("bundle", "tree.toml", "--out", "b.tar.gz", "--json").code == 0
    found = members(Path("b.tar.gz"))
    assert "topology.toml" not in found
    assert "errors of form (line" in found["README.md"].decode()
    assert [name for name, text in found.items() if PASSWORD.encode() in text or SECRET.encode() in text] == []


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/topologies").glob("*.toml")), ids=lambda file: file.stem)
def test_copy_of_each_example_has_the_same_plan(file: Path) -> None:
    """A copy that does not load would be of no use to `pgm sim` and `pgm check`."""
    octets = file.read_bytes()
    copy = topology_copy(octets, read_text(octets.decode(), "tree.toml"), Redactor())
    first, second = loads(octets.decode()), loads(copy.text)
    assert first == second
    assert "#" not in copy.text.split("\n", 1)[1].replace("[removed]", "")


def test_copy_of_sections_with_names_of_secrets_has_the_same_plan() -> None:
    text = GOOD.replace("quotes", "private-token")
    assert "[streams.private-token]" in text
    copy = topology_copy(text.encode(), read_text(text, "tree.toml"), Redactor())
    assert loads(copy.text) == loads(text)


def test_cut_log_begins_with_a_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut within a line would leave half of a known token, or a password without its name."""
    lines = f"token {OWN} password={PASSWORD}\nlast\n".encode()
    (tmp_path / "a.log").write_bytes(lines)
    done = subprocess.CompletedProcess[bytes]([], 0, stdout=lines)
    monkeypatch.setattr("shutil.which", lambda _: "journalctl")
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)
    logs = next(part for part in contents.PARTS if part.name == "logs/")
    parsed, redactor = read_text("", "tree.toml"), Redactor((OWN,))
    case = contents.BundleCase(tmp_path, b"", parsed, "t", redactor, None, 1.0, (tmp_path / "a.log",), None)
    for most, text in (
        (len(lines) - len("token rose"), b"last\n"),
        (len(lines) - len(f"token {OWN} password="), b"last\n"),
        (len(lines), b"token [removed] password=[removed]\nlast\n"),
    ):
        monkeypatch.setattr(contents, "MOST_LOG", most)
        assert dict(logs.make(case)) == {"logs/1-a.log": text, "logs/journal.log": text}


@pytest.mark.usefixtures("folder")
def test_copy_keeps_public_keys_and_ids_of_revoked_ones() -> None:
    text = Path("tree.toml").read_text()
    copy = loads(topology_copy(text.encode(), read_text(text, "tree.toml"), Redactor()).text)
    assert copy.keys == loads(text).keys
    assert copy.revoked == {"ks3gq6lrbv4cm2ya": "2026-12-01 [removed]"}
    assert copy.key_directory == ""
    assert plan_node(copy, "exchange").name == "exchange"


def test_archive_never_grows_beyond_its_limit(tmp_path: Path) -> None:
    noise = b"".join(hashlib.sha512(b"%d" % number).digest() for number in range(3200))
    path, most = tmp_path / "a.tar.gz", 1 << 20
    with BoundedArchive(path, "root", most) as archive:
        added = [archive.add(f"{number}", noise) for number in range(10)]
        assert archive.add("zeros", bytes(1 << 22))
        assert archive.add("last", noise, is_last=True)
    assert added == [True] * 3 + [False] * 7
    assert most - CLOSING_OCTETS - len(noise) < path.stat().st_size < most
    assert set(members(path)) == {"0", "1", "2", "zeros", "last"}


def test_archive_that_fails_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with contextlib.suppress(OSError), BoundedArchive(path, "root", 1 << 20) as archive:
        archive.add("x", b"y")
        raise OSError("disk")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="exists"), BoundedArchive(path, "root", 1 << 20):
        path.write_text("of another process")
    assert path.read_text() == "of another process"
    assert list(tmp_path.iterdir()) == [path]


def test_ring_made_anew_has_the_same_contents(tmp_path: Path) -> None:
    first = contents_untrusted(ring("host"))
    path = tmp_path / "a.flight"
    for own in (first, from_json_untrusted(to_json(first))):  # as a file of this host, and as agents tell it
        path.write_bytes(ring_octets(own))
        assert to_json(read_ring(path)) == to_json(first)
        assert len(read_ring(path).records) == 30


def test_telemetry_rows_are_those_of_the_last_minutes(tmp_path: Path) -> None:
    log = EventLog(tmp_path, "desk-1", Parameters(), in_background=False)
    for second in range(100):
        log.add(Event(second * 1_000_000, "desk-1", "receiver", "core", "gap", first=second))
    log.close()
    table = parquet.read_table(io.BytesIO(recent_rows(tmp_path, 90.0, Redactor())))
    assert table.column("first").to_pylist() == list(range(90, 100))
    with pytest.raises(ProcessError, match="no rows"):
        recent_rows(tmp_path, 100.0, Redactor())
