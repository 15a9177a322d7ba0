"""The range service over loopback, with a real Flight client."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from pgm.archive.client import ArchivedLoss, RangeClient
from pgm.archive.errors import ArchiveError
from pgm.archive.requests import RangeRequest
from pgm.archive.service.collection import Archives
from pgm.archive.service.publications import PublicationTarget
from pgm.archive.service.service import RangeService, ServiceAccess, is_on_this_machine
from pgm.archive.store.schema import SCHEMA, plain
from pgm.archive.store.segment import path_of
from pgm.archive.store.writer import ArchiveWriter
from pgm.units import MILLISECOND
from tests.memory import kept_by
from tests.unit.archive.makers import SESSION, TSI_TEXT, append, check_rows, log_to, loss, messages, payload, small

_SHORT = {"archive_poll_ivl": MILLISECOND}


@contextmanager
def _serving(directory: Path, parameters: Any = None, **options: Any) -> Iterator[tuple[RangeService, Any]]:
    service = RangeService(
        Archives(directory), "grpc://127.0.0.1:0", parameters or small(**_SHORT), node="recorder-1", **options
    )
    thread = threading.Thread(target=service.serve)
    thread.start()
    try:
        with flight.connect(f"grpc://127.0.0.1:{service.port}") as client:
            yield service, client
    finally:
        service.end()
        thread.join()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ArchiveWriter]:
    writer = ArchiveWriter(tmp_path, small(), log_to([]))
    for at in range(0, 1000, 100):
        append(writer, [messages(at, 90, at_us=at), loss(at + 90, 10, "window", at_us=at + 90)])
    append(writer, [messages(0, 5)], attrs.evolve(SESSION, tsi="9.9.9.9.9.9.1", stream="other", epoch_us=None))
    writer.sync()
    yield writer
    writer.close()


def _ticket(**request: Any) -> Any:
    return flight.Ticket(RangeRequest(request.pop("tsi", TSI_TEXT), **request).to_bytes())


def _ask(client: Any, action: str, **asked: Any) -> Any:
    (result,) = client.do_action(flight.Action(action, json.dumps(asked).encode() if asked else b""))
    return json.loads(result.body.to_pybytes())


def test_holdings_ranges_and_times(writer: ArchiveWriter) -> None:
    with _serving(writer.directory) as (_, client):
        told = _ask(client, "holdings")
        assert told["node"] == "recorder-1"
        assert [(one["tsi"], one["oldest"], one["next_sqn"]) for one in told["holdings"]] == [
            (TSI_TEXT, 0, 1000),
            ("9.9.9.9.9.9.1", 0, 5),
        ]
        assert [one["tsi"] for one in _ask(client, "holdings", stream="other")["holdings"]] == ["9.9.9.9.9.9.1"]
        rows = client.do_get(_ticket()).read_all()
        assert rows.schema.equals(SCHEMA, check_metadata=True)
        check_rows(rows, 0, 1000)
        check_rows(client.do_get(_ticket(first=95, end=205)).read_all(), 95, 205)
        assert client.do_get(_ticket(columns=("value", "sqn"))).read_all().schema.names == ["value", "sqn"]
        assert _ask(client, "sqn_at", time_us=290, tsi=TSI_TEXT)["sqns"] == [
            {"tsi": TSI_TEXT, "epoch_us": 1_000_000, "node": "recorder-1", "sqn": 290}
        ]
        assert {kind.type for kind in client.list_actions()} == {
            "holdings",
            "sqn_at",
            "blocks",
            "reads",
            "files",
            "publish_batch",
            "discard_batch",
            "published",
        }


def test_blocks_of_sessions_come_in_the_order_of_time(tmp_path: Path) -> None:
    other = attrs.evolve(SESSION, tsi="9.9.9.9.9.9.1")
    writer = ArchiveWriter(tmp_path, small(), lambda *_: None)
    for first in range(0, 40, 10):
        append(writer, [messages(first, 5, at_us=100 + first), messages(first + 5, 5, at_us=105 + first)])
        append(writer, [messages(first, 10, at_us=113 + first)], other)
    append(writer, [messages(40, 10, at_us=90)])  # the clock was set
    writer.sync()
    ranges = [{"tsi": TSI_TEXT, "first": 5}, {"tsi": other.tsi, "end": 25}, {"tsi": "8.8.8.8.8.8.1"}]
    with _serving(tmp_path) as (_, client):
        found = _ask(client, "blocks", sessions=ranges)
        assert found["until_us"] is None
        assert [tuple(one[:3]) for one in found["blocks"]] == [
            (0, 5, 10), (0, 10, 20), (1, 0, 10), (0, 20, 30), (1, 10, 20), (0, 30, 40), (1, 20, 25), (0, 40, 50)
        ]  # fmt: skip
        assert found["blocks"][0] == [0, 5, 10, 10, 100, 105]
        assert found["blocks"][7][4:] == [135, 135]
        assert _ask(client, "blocks", sessions=ranges, sqns=14) == {"blocks": found["blocks"][:3], "until_us": 120}
        assert _ask(client, "blocks", sessions=ranges, rows=30) == {"blocks": found["blocks"][:5], "until_us": 130}
        for asked, text in (
            ({}, "sessions is missing"), ({"sessions": [{}]}, "a range needs a tsi"), ({"sessions": [], "sqns": "1"}, "sqns = '1'"),
            ({"sessions": [], "colour": 1}, "no key 'colour'"),
        ):  # fmt: skip
            with pytest.raises(flight.FlightServerError, match=f"PGM-ARCHIVE-REQUEST: .*{text}"):
                _ask(client, "blocks", **asked)
    writer.close()


def test_the_tickets_of_a_flight_make_up_its_range(writer: ArchiveWriter) -> None:
    with _serving(writer.directory) as (_, client):
        wanted = RangeRequest(TSI_TEXT, first=150, end=950, columns=("sqn", "count", "lost", "value"), parts=4)
        info = client.get_flight_info(flight.FlightDescriptor.for_command(wanted.to_bytes()))
        assert len(info.endpoints) == 4
        assert info.schema.names == ["sqn", "count", "lost", "value"]
        parts = [client.do_get(one.ticket).read_all() for one in info.endpoints]
        check_rows(pa.concat_tables(parts), 150, 950)
        assert [one.total_records for one in client.list_flights()] == [910, 5]


def test_service_encoded_rows_equal_plain_rows(writer: ArchiveWriter) -> None:
    for first in range(1000, 1040):
        append(writer, [messages(first, 1)])
    writer.sync()
    with _serving(writer.directory) as (_, client):
        for wanted in ({}, {"first": 95, "end": 195}, {"columns": ("lost", "count", "node")}, {"subjects": ("a",)}):
            decoded = client.do_get(_ticket(**wanted)).read_all()
            encoded = client.do_get(_ticket(**wanted, encoded=True)).read_all()
            is_encoded = pa.types.is_run_end_encoded(encoded.schema.field("lost").type)
            assert is_encoded == ("subjects" not in wanted)
            batches = [[plain(column) for column in batch.columns] for batch in encoded.to_batches()]
            made = [pa.RecordBatch.from_arrays(columns, schema=decoded.schema) for columns in batches]
            assert pa.Table.from_batches(made) == decoded
            assert len(made) < 30  # small batches are joined


def test_service_errors_carry_their_code(writer: ArchiveWriter) -> None:
    (path_of(writer.directory, 1).parent / "notes.txt").write_text("no segment")
    with _serving(writer.directory) as (_, client):
        for ticket, text in (
            (_ticket(tsi="1.1.1.1.1.1.1"), "PGM-ARCHIVE-UNKNOWN: nothing is held of session 1.1.1.1.1.1.1"),
            (flight.Ticket(b'{"tsi": 7}'), "PGM-ARCHIVE-REQUEST: tsi = 7 is not text"),
            (flight.Ticket(b"\xff"), "PGM-ARCHIVE-REQUEST"),
        ):
            with pytest.raises(flight.FlightServerError, match=text):
                client.do_get(ticket).read_all()
        with pytest.raises(flight.FlightServerError, match="there is no action 'colour'") as unknown:
            _ask(client, "colour")
        assert "ask for one of holdings, sqn_at, blocks, files, reads, publish_batch, discard_batch, published" in str(
            unknown.value
        )
        with pytest.raises(flight.FlightServerError, match="time_us is missing"):
            _ask(client, "sqn_at")
        with pytest.raises(flight.FlightServerError, match="PGM-ARCHIVE-REQUEST: this service does not publish"):
            _put(client, [b"x"])
    octets = bytearray(path_of(writer.directory, 1).read_bytes())
    octets[-100] ^= 1
    path_of(writer.directory, 1).write_bytes(octets)
    with (
        _serving(writer.directory) as (_, client),
        pytest.raises(
            flight.FlightServerError, match=r"PGM-ARCHIVE-CORRUPT: .*000000000001.arrows is damaged at octet"
        ),
    ):
        client.do_get(_ticket(tsi="9.9.9.9.9.9.1")).read_all()


def test_a_live_tail_follows_what_is_synced_up_to_its_end(writer: ArchiveWriter) -> None:
    with _serving(writer.directory) as (service, client):
        stream = client.do_get(_ticket(first=900, end=1100, tail=True))
        found = [stream.read_chunk().data]
        assert found[0].num_rows == 91
        append(writer, [messages(1000, 60)])
        writer.sync()
        found.append(stream.read_chunk().data)
        append(writer, [messages(1060, 60)])
        writer.sync()
        found += [chunk.data for chunk in stream]
        check_rows(pa.Table.from_batches(found), 900, 1100)
        left = client.do_get(_ticket(first=1100, tail=True))
        left.read_chunk()
        left.cancel()
        with pytest.raises(pa.ArrowException):
            left.read_chunk()
        _until(lambda: service.streams == 0)


def _until(is_so: Any) -> None:
    waiting = threading.Event()
    for _ in range(1000):
        if is_so():
            return
        waiting.wait(0.01)
    raise AssertionError("the condition did not hold within 10 s")


def test_streams_of_one_client_are_limited(writer: ArchiveWriter) -> None:
    with _serving(writer.directory, small(archive_client_streams=2, **_SHORT)) as (service, client):
        tails = [client.do_get(_ticket(tail=True)) for _ in range(2)]
        for tail in tails:
            tail.read_chunk()
        with pytest.raises(flight.FlightUnavailableError, match="PGM-ARCHIVE-BUSY"):
            client.do_get(_ticket()).read_all()
        tails[0].cancel()
        _until(lambda: service.streams == 1)
        assert client.do_get(_ticket()).read_all().num_rows == 910
        tails[1].cancel()
        _until(lambda: service.streams == 0)
        counts = [len(one) for one in kept_by(service) if isinstance(one, Counter)]
        assert counts == [0], "the service forgets a client that has cancelled"


def test_service_requires_the_token(writer: ArchiveWriter) -> None:
    with _serving(writer.directory, access=ServiceAccess(token="secret")) as (_, client):
        for header in ([], [(b"authorization", b"Bearer wrong")], [(b"authorization", b"secret")]):
            with pytest.raises(flight.FlightUnauthenticatedError, match="PGM-ARCHIVE-TOKEN"):
                list(client.do_action(flight.Action("holdings", b""), flight.FlightCallOptions(headers=header)))
        good = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer secret")])
        assert client.do_get(_ticket(), good).read_all().num_rows == 910


def test_service_tls_with_a_self_signed_certificate(writer: ArchiveWriter, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")
    files = [tmp_path / name for name in ("key.pem", "cert.pem")]
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", files[0], "-out", files[1]]
    about = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*line, *about], check=True, capture_output=True)
    key, certificate = (path.read_bytes() for path in files)
    service = RangeService(
        Archives(writer.directory),
        "grpc+tls://127.0.0.1:0",
        small(**_SHORT),
        access=ServiceAccess(certificate=(certificate, key)),
    )
    try:
        with flight.connect(f"grpc+tls://127.0.0.1:{service.port}", tls_root_certs=certificate) as client:
            assert client.do_get(_ticket()).read_all().num_rows == 910
        stranger = flight.connect(f"grpc+tls://127.0.0.1:{service.port}")
        with stranger, pytest.raises(flight.FlightUnavailableError):
            stranger.do_get(_ticket(), flight.FlightCallOptions(timeout=5)).read_all()
    finally:
        service.end()


def _put(client: Any, values: list[bytes], column: str = "value", stream: str = "quotes", **more: object) -> list[int]:
    descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": stream, **more}).encode())
    putting, answers = client.do_put(descriptor, pa.schema([(column, pa.binary())]))
    counts = []
    with putting:
        for value in values:
            putting.write_batch(pa.record_batch([pa.array([value], pa.binary())], names=[column]))
            answer = answers.read()
            if answer is None:
                break
            counts.append(json.loads(answer.to_pybytes())["published"])
    return counts


def test_service_rows_put_are_published(writer: ArchiveWriter) -> None:
    published: list[tuple[str, list[bytes]]] = []
    target = PublicationTarget(lambda stream, rows: published.append((stream, rows["value"].to_pylist())))
    with _serving(writer.directory, target=target) as (_, client):
        assert _put(client, [b"one", b"two"]) == [1, 2]
        with pytest.raises(flight.FlightServerError, match="no column value"):
            _put(client, [b"three"], column="valeu")
        with pytest.raises(flight.FlightServerError, match="PGM-ARCHIVE-REQUEST: a put has no key 'atempt'"):
            _put(client, [b"four"], atempt="a")
        with pytest.raises(
            flight.FlightServerError, match=r"PGM-ARCHIVE-REQUEST: columns .*'topic'.* cannot be published"
        ):
            _put(client, [b"five"], columns=["value", "topic"])
    assert published == [("quotes", [b"one"]), ("quotes", [b"two"])]


def test_service_has_no_files_action_unless_enabled(writer: ArchiveWriter) -> None:
    with _serving(writer.directory, files=False) as (_, client):
        assert "files" not in {kind.type for kind in client.list_actions()}
        with pytest.raises(flight.FlightServerError, match="there is no action 'files' here"):
            _ask(client, "files", tsi=TSI_TEXT)


@pytest.mark.parametrize(
    ("peer", "is_here"),
    [
        ("ipv4:127.0.0.1:5000", True),
        ("ipv6:%5B::1%5D:5000", True),
        ("ipv6:[::ffff:127.0.0.1]:5000", True),
        ("unix:/run/archive", True),
        ("ipv4:198.51.100.7:5000", False),
        ("ipv6:%5B2001:db8::7%5D:5000", False),
        ("nonsense", False),
        ("", False),
    ],
)
def test_client_is_on_this_machine_by_its_address(peer: str, is_here: bool) -> None:
    assert is_on_this_machine(peer) is is_here


def test_service_tells_no_directory_to_clients_of_other_machines(
    writer: ArchiveWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory tells names of users and products, and only a client on this machine can use it."""
    with _serving(writer.directory) as (_, client):
        assert _ask(client, "files", tsi=TSI_TEXT)["directory"] == str(writer.directory)
        monkeypatch.setattr("pgm.archive.service.service.is_on_this_machine", lambda _: False)
        assert "files" not in {kind.type for kind in client.list_actions()}
        with pytest.raises(flight.FlightServerError, match="there is no action 'files' here"):
            _ask(client, "files", tsi=TSI_TEXT)


def test_service_refuses_large_requests_before_it_parses_them(writer: ArchiveWriter) -> None:
    """The bodies are valid JSON, so only their size refuses them."""
    with _serving(writer.directory, small(**_SHORT, archive_request_bytes=1 << 16)) as (_, client):
        large = json.dumps({"tsi": TSI_TEXT, "columns": ["sqn"] * 20_000}).encode()
        calls = (
            lambda: list(client.do_action(flight.Action("holdings", large))),
            lambda: list(client.list_flights(large)),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_command(large)),
            lambda: client.do_get(flight.Ticket(large)).read_all(),
        )
        for call in calls:
            with pytest.raises(flight.FlightServerError, match=r"PGM-ARCHIVE-REQUEST: a request of .* octets"):
                call()


def test_several_archives_are_served_as_one_and_new_ones_are_found(tmp_path: Path) -> None:
    def record(node: str, first: int) -> None:
        writer = ArchiveWriter(tmp_path / node, small(), log_to([]))
        append(writer, [messages(first, 10)], attrs.evolve(SESSION, node=node))
        writer.close()

    record("left", 0)
    with _serving(tmp_path) as (_, client):
        assert client.do_get(_ticket()).read_all().num_rows == 10
        record("right", 5)
        told = [(one["node"], one["oldest"]) for one in _ask(client, "holdings")["holdings"]]
        assert told == [("left", 0), ("right", 5)]
        with pytest.raises(flight.FlightServerError, match="several nodes have recorded") as several:
            client.do_get(_ticket()).read_all()
        assert "name a node: left, right" in str(several.value)
        check_rows(client.do_get(_ticket(node="right")).read_all(), 5, 15)
        assert [one["node"] for one in _ask(client, "holdings", node="left")["holdings"]] == ["left"]
        for flight_ in client.list_flights():
            assert client.do_get(flight_.endpoints[0].ticket).read_all().num_rows == 10


def test_service_started_before_its_recorder_finds_rows(tmp_path: Path) -> None:
    archives = Archives(tmp_path)
    assert archives.holdings() == []
    writer = ArchiveWriter(tmp_path, small(), lambda *_: None)
    append(writer, [messages(0, 10)])
    writer.close()
    archives.refresh()
    assert [one.next_sqn for one in archives.holdings()] == [10]


@pytest.mark.usefixtures("writer")
def test_client_gives_rows_and_losses_of_a_range(tmp_path: Path) -> None:
    with _serving(tmp_path) as (service, _):
        client = RangeClient(f"grpc://127.0.0.1:{service.port}", patience_s=30.0)
        [extent] = client.holdings(TSI_TEXT)
        pieces = list(client.rows(RangeRequest(TSI_TEXT, extent.epoch_us, 50, 250)))
        with pytest.raises(ArchiveError, match="UNKNOWN"):
            list(client.rows(RangeRequest("1.1.1.1.1.1.1")))
        client.close()
    assert [(piece.first, piece.end) for piece in pieces] == [(50, 90), (90, 100), (100, 190), (190, 200), (200, 250)]
    for piece in pieces:
        if isinstance(piece, ArchivedLoss):
            assert piece.cause == "window"
        else:
            assert piece.columns.payloads() == [payload(sqn, 16) for sqn in range(piece.first, piece.end)]


def test_client_without_a_service_raises_within_its_patience() -> None:
    client = RangeClient("grpc://127.0.0.1:9", patience_s=0.2)
    with pytest.raises(ArchiveError):
        client.holdings(TSI_TEXT)
